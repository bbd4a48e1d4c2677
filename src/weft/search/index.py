"""`Index`: a store that answers queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.alignment import XTR, Alignment
from weft.alignment.spec import check_count
from weft.errors import invalid
from weft.index.filters import Filter
from weft.index.filters import parse as parse_filter
from weft.index.pruning import prune
from weft.index.store import Store, View
from weft.kernels import aligned_pairs
from weft.search.brute import NATIVE, allowed_documents, retrieve_tokens, score_documents
from weft.search.imputed import score_hits
from weft.types import Hits, Ranking, TokenVectors


@dataclass(frozen=True, eq=False)
class _Found:
    """Results of one query, best first: where the documents live, and their scores."""

    segment: NDArray[np.int64]
    ordinal: NDArray[np.int64]
    score: NDArray[np.float32]


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

    def search(
        self,
        queries: TokenVectors | ArrayLike,
        k: int = 10,
        *,
        alignment: Alignment | str = "sum-of-max",
        filter: Filter | str | None = None,  # noqa: A002
        beta_q: float | None = None,
        threads: int = 1,
    ) -> list[Ranking]:
        """Find the k most relevant documents for each query.

        Parameters
        ----------
        queries : TokenVectors, or array of shape (n, dim) for a single query
        k : int
            How many documents at the most.
        alignment : Alignment or str
            What relevance is. ``"xtr:k_prime"`` scores from retrieved tokens alone.
        filter : Filter or str, optional
            Only documents whose metadata match are looked at.
        beta_q : float, optional
            Search with the top β_q of the query's tokens by salience (ALIGNER §3.2).
        threads : int
            Threads for scoring.

        Returns
        -------
        list of Ranking
            One for each query, all from one committed state, each with its aligned token pairs.
        """
        alignment = Alignment.parse(alignment)
        check_count(k, "k", "search")
        check_count(threads, "threads", "search")
        batch = self._queries(queries)
        if beta_q is not None:
            batch = prune(batch, beta_q, parameter="beta_q")
        with self.view() as view:
            allowed = self._allowed(view, filter)
            return [self._rank(view, allowed, batch[i : i + 1], k, alignment, threads) for i in range(len(batch))]

    def _queries(self, queries: TokenVectors | ArrayLike) -> TokenVectors:
        if not isinstance(queries, TokenVectors):
            queries = TokenVectors.from_list([np.asarray(queries)])
        if queries.dim != self.dim:
            raise invalid("queries", "search", f"of the index's dimension, {self.dim}", queries.dim)
        return queries

    def _allowed(self, view: View, filter: Filter | str | None) -> list[NDArray[np.bool_]]:  # noqa: A002
        """Return for each segment which documents may be scored at all."""
        if filter is None:
            return [s.live for s in view.segments]
        condition, parameters = parse_filter(filter).to_sql()
        matching = self.catalogue.select(condition, parameters)
        masks = []
        for s in view.segments:
            mask = np.zeros(len(s.segment), dtype=bool)
            mask[matching.get(s.number, [])] = True
            masks.append(mask)
        return masks

    def _rank(
        self,
        view: View,
        allowed: list[NDArray[np.bool_]],
        query: TokenVectors,
        k: int,
        alignment: Alignment,
        threads: int,
    ) -> Ranking:
        if isinstance(alignment, XTR):
            found = self._from_tokens(view, allowed, query, alignment)
        else:
            found = self._from_documents(view, allowed, query, alignment, threads)
        # The order of equal scores is the order of arrival: segment, then ordinal.
        order = np.argsort(-found.score, kind="stable")
        best = order[:k]
        ids = [self.catalogue.ids(int(found.segment[b]), [int(found.ordinal[b])])[0] for b in best]
        margin = float(found.score[order[k - 1]] - found.score[order[k]]) if len(order) > k else None
        hits = self._hits(view, query, found, best, alignment)
        exact = not isinstance(alignment, XTR)
        return Ranking(ids, found.score[best], hits, certified=exact, margin=margin if exact else None)

    def _from_documents(
        self, view: View, allowed: list[NDArray[np.bool_]], query: TokenVectors, alignment: Alignment, threads: int
    ) -> _Found:
        parts = []
        for s, mask in zip(view.segments, allowed, strict=True):
            ordinals, documents = allowed_documents(s.segment, mask)
            scores = score_documents(query, documents, alignment, threads)
            parts.append(_Found(np.full(len(ordinals), s.number), ordinals, scores))
        return _join(parts)

    def _from_tokens(self, view: View, allowed: list[NDArray[np.bool_]], query: TokenVectors, alignment: XTR) -> _Found:
        parts = [allowed_documents(s.segment, mask) for s, mask in zip(view.segments, allowed, strict=True)]
        ordinals = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
        numbers = np.repeat([s.number for s in view.segments], [len(part[0]) for part in parts])
        if not len(ordinals):
            return _join([])
        documents = TokenVectors.concatenate([part[1] for part in parts])
        hits = retrieve_tokens(query[0].astype(np.float32), documents, alignment.k_prime)
        last = hits.similarity.reshape(query.n_tokens, -1)[:, -1] if query.n_tokens else np.zeros(0, np.float32)
        candidates, scores = score_hits(hits, last, documents.lengths, alignment)
        return _Found(numbers[candidates], ordinals[candidates], scores)

    def _hits(
        self, view: View, query: TokenVectors, found: _Found, best: NDArray[np.int64], alignment: Alignment
    ) -> list[Hits] | None:
        if not isinstance(alignment, NATIVE):
            return None
        segments = {s.number: s.segment for s in view.segments}
        documents = [
            segments[int(found.segment[b])].vectors(int(found.ordinal[b]), int(found.ordinal[b]) + 1) for b in best
        ]
        return [aligned_pairs(query, document, alignment)[0] for document in documents]


def _join(parts: list[_Found]) -> _Found:
    empty: Any = np.zeros(0, np.int64)
    return _Found(
        np.concatenate([empty, *(p.segment for p in parts)]),
        np.concatenate([empty, *(p.ordinal for p in parts)]),
        np.concatenate([np.zeros(0, np.float32), *(p.score for p in parts)]),
    )
