"""PyLate's re-ranking, by weft's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.errors import invalid
from weft.integrations.pylate.embeddings import RerankResult, as_texts, as_token_vectors
from weft.kernels import score_ragged
from weft.types import TokenVectors

__all__ = ["RerankResult", "rerank"]


def rerank(
    documents_ids: Sequence[Sequence[str | int]],
    queries_embeddings: Any,
    documents_embeddings: Any,
    device: str | None = None,  # noqa: ARG001
    *,
    alignment: str = "sum-of-max",
) -> list[list[RerankResult]]:
    """Order the documents of each query by relevance.

    Parameters
    ----------
    documents_ids : one list of ids for each query
    queries_embeddings : array, tensor, or list of them
    documents_embeddings : for each query, the embeddings of its documents
    device
        Without effect.
    alignment : str
        How relevance is computed; not in PyLate.

    Examples
    --------
    >>> rerank([["a", "b"]], [np.eye(2)], [[np.eye(2)[:1], np.eye(2)]])
    [[{'id': 'b', 'score': 2.0}, {'id': 'a', 'score': 1.0}]]
    """
    queries = as_token_vectors(queries_embeddings, "rerank")
    groups = list(documents_embeddings)
    if not len(documents_ids) == len(queries) == len(groups):
        counts = (len(documents_ids), len(queries), len(groups))
        raise invalid("documents_ids", "rerank", "as many lists as there are queries and lists of documents", counts)
    results: list[list[RerankResult]] = []
    for i, (ids, group) in enumerate(zip(documents_ids, groups, strict=True)):
        texts = as_texts(group, "rerank") if len(group) else []
        if len(ids) != len(texts):
            raise invalid("documents_embeddings", "rerank", f"one for each of the {len(ids)} ids", len(texts))
        documents = TokenVectors.from_list(texts, dim=queries.dim)
        scores = score_ragged(queries[i : i + 1], documents, alignment)[0]
        order = np.argsort(-scores, kind="stable")
        results.append([{"id": ids[j], "score": float(scores[j])} for j in order])
    return results
