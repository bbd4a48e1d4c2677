"""PyLate's index over a weft index."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from weft.errors import DataError, IndexExistsError, IndexStateError, invalid
from weft.integrations.pylate.embeddings import RerankResult, as_texts, as_token_vectors
from weft.search import Index
from weft.storage.database import FILE
from weft.types import Document, Ranking, TokenVectors

logger = logging.getLogger("weft.integrations")

_MANY_SEGMENTS = 8
_INTEGER = "integer_id"
"""Metadata of a document whose id was given as an integer, and is given back as one."""
TUNING = frozenset(
    {
        *("M", "ef_construction", "ef_search", "use_fast", "kmeans_niters", "max_points_per_centroid", "seed"),
        *("n_samples_kmeans", "use_triton", "n_ivf_probe", "n_full_scores", "batch_size", "num_threads", "device"),
        *("show_progress", "low_memory", "nranks", "index_bsize", "ndocs", "centroid_score_threshold", "ncells"),
        *("search_batch_size", "store_embeddings", "verbose"),
    }
)
"""Parameters of PyLate's engines, accepted without effect."""


class Weft:
    """A weft index with the methods of PyLate's.

    Ids are strings or integers, and come back as they were given; 7 and "7" are the same document.

    Parameters
    ----------
    index_folder, index_name : str
        The index is the folder ``index_folder/index_name``; ``weft search``, ``weft check`` and `weft.Index` read it.
    override : bool
        Begin anew if there is an index already.
    embedding_size : int, optional
        Dimension of the vectors; by default that of the first documents.
    nbits : {8, 4, 2}, optional
        Bits per coordinate.
    **tuning
        Parameters of PyLate's own engines: without effect here, which is logged once.

    Examples
    --------
    >>> import tempfile
    >>> index = Weft(tempfile.mkdtemp(), "colbert", override=True)
    >>> _ = index.add_documents(["east", "north"], [np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])])
    >>> index(np.array([[[0.6, 0.8]]]), k=1)
    [[{'id': 'north', 'score': 0.800000011920929}]]
    """

    is_end_to_end_index = True

    def __init__(
        self,
        index_folder: str | Path = "indexes",
        index_name: str = "colbert",
        override: bool = False,
        embedding_size: int | None = None,
        nbits: int = 8,
        **tuning: Any,
    ) -> None:
        unknown = sorted(set(tuning) - TUNING)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no parameter {', '.join(map(repr, unknown))}")
        if tuning:
            logger.info("without effect on a weft index: %s", ", ".join(sorted(tuning)))
        if nbits not in (8, 4, 2):
            raise invalid("nbits", type(self).__name__, "8, 4 or 2", nbits)
        self.path = Path(index_folder) / index_name
        self.nbits = nbits
        self.index: Index | None = None
        there = (self.path / FILE).exists()
        if there and override:
            shutil.rmtree(self.path)
        elif there:
            self.index = Index.open(self.path, dim=embedding_size)
        elif self.path.is_dir() and any(self.path.iterdir()):
            raise IndexExistsError(f"{self.path} is not empty and not a weft index: choose another index_name")
        if self.index is None and embedding_size is not None:
            self._make(embedding_size)

    def _make(self, dim: int) -> Index:
        self.index = Index.create(self.path, dim, bits=self.nbits)
        return self.index

    def _opened(self) -> Index:
        if self.index is None:
            raise IndexStateError(f"there are no documents in {self.path} yet: call add_documents first")
        return self.index

    def add_documents(
        self,
        documents_ids: str | int | Iterable[str | int],
        documents_embeddings: Any,
        batch_size: int = 2000,
    ) -> Self:
        """Add documents; those whose id is there are replaced."""
        ids = [documents_ids] if isinstance(documents_ids, (str, int)) else list(documents_ids)
        texts = as_texts(documents_embeddings, "add_documents")
        if len(ids) != len(texts):
            raise invalid("documents_embeddings", "add_documents", f"one for each of the {len(ids)} ids", len(texts))
        if not ids:
            return self
        index = self._make(texts[0].shape[1]) if self.index is None else self.index
        starts = range(0, len(ids), batch_size)
        for start in starts:
            part = TokenVectors.from_list(texts[start : start + batch_size])
            index.add([_document(name) for name in ids[start : start + batch_size]], part, flat=len(starts) > 1)
        if len(starts) > 1 or index.info()["segments"] > _MANY_SEGMENTS:
            index.compact()
        return self

    update_documents = add_documents

    def remove_documents(self, documents_ids: str | int | Iterable[str | int]) -> Self:
        """Remove documents; unknown ids are ignored."""
        ids = [documents_ids] if isinstance(documents_ids, (str, int)) else list(documents_ids)
        self._opened().delete([_name(one) for one in ids])
        return self

    def __call__(
        self,
        queries_embeddings: Any,
        k: int = 10,
        subset: Sequence[Sequence[str | int]] | Sequence[str | int] | None = None,
        **options: Any,
    ) -> list[list[RerankResult]]:
        """Return the k best documents of each query.

        Parameters
        ----------
        queries_embeddings : array, tensor, or list of them
        k : int
        subset : list of ids, or one list of ids for each query, optional
            Only these documents are ranked.
        **options
            More of `Index.search`: ``alignment``, ``exact``, ``filter``, …
        """
        index, queries = self._opened(), as_token_vectors(queries_embeddings, "Weft")
        chosen = _subsets(subset, len(queries))
        with index.view():
            if len(set(map(id, chosen))) <= 1:
                rankings = index.search(queries, k, among=chosen[0], hits=False, **options) if len(queries) else []
            else:
                rankings = [
                    index.search(queries[i : i + 1], k, among=among, hits=False, **options)[0]
                    for i, among in enumerate(chosen)
                ]
            return [_results(index, ranking) for ranking in rankings]

    def get_documents_embeddings(self, documents_ids: Sequence[Sequence[str | int]]) -> list[list[NDArray[np.float32]]]:
        """Return the stored vectors of some documents for each query."""
        index = self._opened()
        with index.view():
            return [[_vectors(index, one) for one in group] for group in documents_ids]


PLAID = Voyager = ScaNN = WARP = TachiomIndex = Weft
"""PyLate's names, so that a script only changes its import."""


def _name(given: str | int) -> str:
    if isinstance(given, bool) or not isinstance(given, (str, int, np.integer)):
        raise invalid("documents_ids", "Weft", "strings or integers", given)
    return str(given)


def _document(given: str | int) -> Document:
    return Document(_name(given), metadata={} if isinstance(given, str) else {_INTEGER: True})


def _vectors(index: Index, given: str | int) -> NDArray[np.float32]:
    stored = index.vectors(_name(given))
    if stored is None:
        raise DataError(f"no document {given!r} in {index.folder}")
    return np.asarray(stored[0], dtype=np.float32)


def _subsets(subset: Any, queries: int) -> list[tuple[str, ...] | None]:
    """Return the ids to rank for each query; the same object where all share them."""
    if subset is None:
        return [None] * max(queries, 1)
    listed = list(subset)
    if all(isinstance(one, (str, int, np.integer)) for one in listed):
        return [tuple(map(_name, listed))] * max(queries, 1)
    if len(listed) != queries:
        raise invalid("subset", "Weft", f"a list of ids, or one for each of the {queries} queries", len(listed))
    return [tuple(map(_name, ids)) for ids in listed]


def _results(index: Index, ranking: Ranking) -> list[RerankResult]:
    results: list[RerankResult] = []
    for result in ranking:
        document = index.get(result.id)
        integer = document is not None and document.metadata.get(_INTEGER)
        results.append({"id": int(result.id) if integer else result.id, "score": result.score})
    return results
