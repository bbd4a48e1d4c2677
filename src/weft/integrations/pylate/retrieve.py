"""PyLate's retrievers over a weft index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.integrations.pylate.embeddings import RerankResult, as_texts
from weft.integrations.pylate.indexes import Weft

Subset = Sequence[Sequence[str | int]] | Sequence[str | int] | None


class ColBERT:
    """Rank by sum of max.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> index = Weft(tempfile.mkdtemp(), "colbert").add_documents([1, 2], [np.eye(2)[:1], np.eye(2)])
    >>> ColBERT(index).retrieve([np.eye(2)], k=2)
    [[{'id': 2, 'score': 2.0}, {'id': 1, 'score': 1.0}]]
    """

    def __init__(self, index: Weft) -> None:
        self.index = index

    def retrieve(
        self,
        queries_embeddings: Any,
        k: int = 10,
        k_token: int | None = None,  # noqa: ARG002 (PyLate's candidates by token: weft finds its own)
        device: str | None = None,  # noqa: ARG002
        batch_size: int | None = None,  # noqa: ARG002
        subset: Subset = None,
    ) -> list[list[RerankResult]]:
        """Return the k best documents of each query, each with ``id`` and ``score``."""
        return self.index(queries_embeddings, k=k, subset=subset)


class XTR:
    """Score from retrieved tokens alone, missing ones imputed; the sum over query tokens, as PyLate has it."""

    def __init__(self, index: Weft) -> None:
        self.index = index

    def retrieve(
        self,
        queries_embeddings: Any,
        k: int = 10,
        k_token: int | None = None,
        device: str | None = None,  # noqa: ARG002
        batch_size: int | None = None,  # noqa: ARG002
        subset: Subset = None,
    ) -> list[list[RerankResult]]:
        """Return the k best documents of each query; `k_token` is XTR's k′, 10,000 by default as in PyLate."""
        alignment = f"xtr:{10_000 if k_token is None else k_token}"
        found = self.index(queries_embeddings, k=k, subset=subset, alignment=alignment)
        lengths = [len(text) for text in as_texts(queries_embeddings, "XTR.retrieve")]
        # weft's score is the mean over query tokens, as in the paper's inference.
        return [
            [{"id": one["id"], "score": one["score"] * n} for one in results]
            for results, n in zip(found, lengths, strict=True)
        ]
