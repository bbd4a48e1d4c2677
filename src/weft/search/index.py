"""`Index`: a store that answers queries: resolve the plan, map it over the segments, merge what they found."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.alignment import XTR, Alignment, InBatchTokenRetrieval
from weft.checks import MOST_COUNT, check_count
from weft.errors import invalid
from weft.search.merged import Query, rank
from weft.stopping import check_stop
from weft.storage.building import build
from weft.storage.check import Report, check
from weft.storage.filters import ID, Filter, In
from weft.storage.filters import parse as parse_filter
from weft.storage.pruning import kept, prune
from weft.storage.segments import Allowed, Effort, Plan
from weft.storage.store import Store
from weft.storage.views import View
from weft.types import Document, Ranking, TokenRetrieval, TokenVectors

FILTERS = 8
"""The results of this many filters are remembered, a byte for each document, until something is written."""


def searchable(alignment: Alignment | str) -> Alignment:
    """Return the alignment; refuse one that is only for training."""
    parsed = Alignment.parse(alignment)
    if isinstance(parsed, InBatchTokenRetrieval):
        raise invalid("alignment", "search", "xtr:k_prime for a corpus (xtr-in-batch is for training)", str(parsed))
    return parsed


class Index(Store):
    """A durable, searchable collection of token vectors. Make one with `Index.create`, open it with `Index.open`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with Index.create(tempfile.mkdtemp(), dim=2) as index:
    ...     index.add(["east", "north"], TokenVectors.from_list([[[1.0, 0.0]], [[0.0, 1.0]]]))
    ...     (ranking,) = index.search(np.array([[0.6, 0.8]]), k=2)
    ...     [(result.id, round(result.score, 2)) for result in ranking]
    [('north', 0.8), ('east', 0.6)]
    """

    def build(
        self,
        stream: Iterable[tuple[Document | str, ArrayLike]],
        *,
        total: int | None = None,
        progress: bool | None = None,
    ) -> int:
        """Add documents from a stream and compact: see `weft.storage.building`. Return how many were new."""
        with self.merging.paused():  # what is added is coded once, by the compaction at the end
            added = build(self, stream, total=total, progress=progress)
        self.compact()
        return added

    def remember_alignment(self, alignment: Alignment | str) -> None:
        """Remember an alignment as the index's own: searches that name none use it."""
        super().remember_alignment(str(searchable(alignment)))

    def matching(self, filter: Filter | str) -> list[str]:  # noqa: A002
        """Return the ids of all documents whose metadata match."""
        condition, parameters = parse_filter(filter).to_sql()
        with self.reading_catalogue() as catalogue:
            return catalogue.ids(catalogue.select(condition, parameters).tolist(), whole="metadata" in condition)

    def value_counts(
        self,
        filter: Filter | str | None = None,  # noqa: A002
        most: int = 20,
    ) -> dict[str, list[tuple[Any, int]]]:
        """Return the `most` commonest values of each metadata field, and how many documents have each.

        A field whose values are lists counts their members, and its name ends in ``[]``.

        Examples
        --------
        >>> import tempfile
        >>> with Index.create(tempfile.mkdtemp(), dim=1) as index:
        ...     documents = [Document("a", "", {"year": 2020, "tags": ["x"]}), Document("b", "", {"year": 2020})]
        ...     index.add(documents, TokenVectors.from_list([[[1.0]], [[1.0]]]))
        ...     index.value_counts()
        {'tags[]': [('x', 1)], 'year': [(2020, 2)]}
        """
        check_count(most, "most", "value_counts")
        condition, parameters = ("1", []) if filter is None else parse_filter(filter).to_sql()
        counts: dict[str, list[tuple[Any, int]]] = {}
        with self.reading_catalogue() as catalogue:
            for name, many, kind, value, number in catalogue.value_counts(condition, parameters, most):
                found = kind == "true" if kind in ("true", "false") else value
                counts.setdefault(name + "[]" * many, []).append((found, number))
        return counts

    def check(self) -> Report:
        """Verify every checksum and every cross-reference."""
        return check(self)

    def search(
        self,
        queries: TokenVectors | ArrayLike,
        k: int = 10,
        *,
        alignment: Alignment | str | None = None,
        filter: Filter | str | None = None,  # noqa: A002
        exact: bool = False,
        n_probe: int | None = None,
        k_prime: int | None = None,
        refine: int | None = None,
        beta_q: float | None = None,
        among: Collection[str] | None = None,
        retrieval: TokenRetrieval | None = None,
        hits: bool = True,
        documents: bool = False,
        threads: int = 1,
    ) -> list[Ranking]:
        """Find the k most relevant documents for each query.

        Parameters
        ----------
        queries : TokenVectors, or array of shape (n, dim) for a single query
        k : int
            The maximum number of documents.
        alignment : Alignment or str, optional
            How relevance is computed; by default as the index does: by the sum of max, or what `remember_alignment` was
            given. ``"xtr:k_prime"`` scores from retrieved tokens alone, ``"xtr"`` with a k′ that suits the collection.
        filter : Filter or str, optional
            Only documents whose metadata match are looked at.
        exact : bool
            Look at every document: the ranking is then certified, and its margin known.
        n_probe, k_prime, refine : int, optional
            How hard to look in large segments: cells probed and document tokens looked at for each query token, and
            the most documents that are scored in full. The defaults suit recall@10 around 0.98. Under XTR ``refine=0``
            scores from retrieved tokens alone.
        beta_q : float, optional
            Search with the top β_q of the query's tokens by salience (ALIGNER §3.2).
        among : collection of str, optional
            Rank only the documents with these ids, scored as they are among all that the filter lets through: under
            XTR, what a query token retrieves depends on the others.
        retrieval : TokenRetrieval, optional
            Of one query under XTR: what it retrieves from a larger collection that this index is a part of (see
            `weft.search.parts`).
        hits : bool
            Whether rankings carry the aligned token pairs.
        documents : bool
            Whether rankings carry the documents with their texts.
        threads : int
            Threads for scoring.

        Returns
        -------
        list of Ranking
            One for each query, all from one committed state.
        """
        if alignment is not None:
            alignment = searchable(alignment)
        for name, value in (
            ("k", k),
            ("threads", threads),
            ("n_probe", n_probe),
            ("k_prime", k_prime),
            ("refine", refine),
        ):
            if value is not None or name in ("k", "threads"):
                alone = name == "refine" and value == 0 and isinstance(self._chosen(alignment), XTR)
                if not alone:  # XTR scores from retrieved tokens alone with refine=0
                    check_count(value, name, "search", MOST_COUNT)
        batch, rows = self.prepared(queries, beta_q)
        if retrieval is not None and (len(batch) != 1 or len(retrieval.last) != batch.n_tokens):
            raise invalid("retrieval", "search", "that of the only query", f"{len(retrieval.last)} tokens")
        effort = None if exact else Effort(n_probe, k_prime, refine)
        with self.view() as view:
            chosen = self._chosen(alignment)
            allowed = self.allowed(view, filter)
            ranked = None if among is None else self._masks(view, *In(ID, tuple(among)).to_sql())
            check_stop()  # a filter may have taken long
            plan = Plan(k, chosen, effort, threads, sum(a.number for a in allowed), retrieval=retrieval)
            texts = [batch] if len(batch) == 1 else [batch[i : i + 1] for i in range(len(batch))]
            own = [None] * len(batch) if rows is None else [rows[a:b] for a, b in pairwise(batch.offsets)]
            with self.reading_catalogue() as catalogue:
                found = [
                    rank(Query(text, hits, documents, of_text), plan, view, allowed, ranked, catalogue)
                    for text, of_text in zip(texts, own, strict=True)
                ]
                if filter is not None:
                    catalogue.verify(id for one in found for id in one.ids)  # noqa: A001
            if view.missing:
                found = [replace(one, missing=view.missing, certified=False, margin=None) for one in found]
            return found

    def _chosen(self, alignment: Alignment | None) -> Alignment:
        """The alignment asked for, or the index's own."""
        return searchable(self.alignment) if alignment is None else alignment

    def prepared(
        self, queries: TokenVectors | ArrayLike, beta_q: float | None = None
    ) -> tuple[TokenVectors, NDArray[np.int64] | None]:
        """Return the queries as they are searched, and which of its query's tokens each one is; None: all are there."""
        batch, rows = self._queries(queries), None
        if beta_q is not None:
            rows = np.arange(batch.n_tokens) - np.repeat(batch.offsets[:-1], batch.lengths)
            rows = rows[kept(batch, beta_q, parameter="beta_q")]
            batch = prune(batch, beta_q, parameter="beta_q")
        weighed = self.salience_weighs or batch.salience is None
        return batch if weighed else batch.without_salience(), rows

    def _queries(self, queries: TokenVectors | ArrayLike) -> TokenVectors:
        if not isinstance(queries, TokenVectors):
            try:
                single = np.asarray(queries)
            except (ValueError, TypeError) as error:
                raise invalid("queries", "search", f"an array of shape (n, dim) ({error})", queries) from None
            offsets = np.array([0, len(single)]) if single.ndim == 2 else None
            queries = TokenVectors.from_list([single]) if offsets is None else TokenVectors(single, offsets)
        if queries.dim != self.dim:
            raise invalid("queries", "search", f"of the index's dimension, {self.dim}", queries.dim)
        return queries if queries.values.dtype == np.float32 else queries.astype(np.float32)

    def allowed(self, view: View, filter: Filter | str | None) -> list[Allowed]:  # noqa: A002
        """Return for each segment which documents may be scored at all."""
        if filter is None:
            return [s.allowed for s in view.segments]
        condition, parameters = parse_filter(filter).to_sql()
        # Evaluating a filter reads the metadata of all documents; the same one often comes with many queries.
        key = (view.generation, condition, tuple(parameters))
        known = self._filtered.get(key)
        if known is None:
            known = [Allowed.of(mask) for mask in self._masks(view, condition, parameters)]
            while len(self._filtered) >= FILTERS:
                self._filtered.pop(next(iter(self._filtered)), None)  # the oldest
            self._filtered[key] = known
        return known

    @cached_property
    def _filtered(self) -> dict[Any, list[Allowed]]:
        return {}

    def _masks(self, view: View, condition: str, parameters: Iterable[Any]) -> list[NDArray[np.bool_]]:
        """Return for each segment, (N,), the documents for which an SQL expression is true."""
        with self.reading_catalogue() as catalogue:
            numbers = np.sort(catalogue.select(condition, parameters))
        masks = []
        for s in view.segments:
            mask = np.zeros(len(s.segment), dtype=bool)
            mask[s.segment.ordinals_of(numbers)] = True
            masks.append(mask)
        return masks
