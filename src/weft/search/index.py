"""`Index`: a store that answers queries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.alignment import XTR, Alignment, InBatchTokenRetrieval
from weft.checks import check_count
from weft.errors import invalid
from weft.search.brute import allowed_documents, score_documents
from weft.search.coded import (
    Allowed,
    Effort,
    comparable,
    probe,
    sampled_top,
    search_above,
    search_coded,
    search_exactly,
)
from weft.search.floors import Top, greatest, kth_similarity, similarities
from weft.search.imputed import Imputed, score_hits
from weft.search.terms import aligned_terms, floor_terms
from weft.search.tokens import retrieve_tokens
from weft.storage.building import build
from weft.storage.check import Report, check
from weft.storage.filters import ID, Filter, In
from weft.storage.filters import parse as parse_filter
from weft.storage.merging import in_parts
from weft.storage.pruning import kept, prune
from weft.storage.store import LiveSegment, Store, View
from weft.types import Document, Hits, Ranking, TokenVectors

FILTERS = 8
"""So many filters' results are remembered, a byte for each document, until something is written."""


@dataclass(frozen=True, eq=False)
class _Found:
    """Results of one query: where the documents live, their scores, and a bound of what was left out."""

    segment: NDArray[np.int64]
    ordinal: NDArray[np.int64] | NDArray[np.int32]
    score: NDArray[np.float32]
    rest: float = -np.inf
    terms: Imputed | None = None
    """What the scores are made of, where they come from retrieved tokens (XTR)."""
    missing: NDArray[np.float32] | None = None
    """(n,) what a query token counted that found less, where scores come from floors (XTR)."""

    @staticmethod
    def joined(parts: list[_Found]) -> _Found:
        if len(parts) == 1:
            return parts[0]
        empty = np.zeros(0, np.int64)
        return _Found(
            np.concatenate([empty, *(p.segment for p in parts)]),
            np.concatenate([empty, *(p.ordinal for p in parts)]),
            np.concatenate([np.zeros(0, np.float32), *(p.score for p in parts)]),
            max((p.rest for p in parts), default=-np.inf),
        )


def searchable(alignment: Alignment | str) -> Alignment:
    """Return the alignment; refuse one that only training has a use for."""
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
        added = build(self, stream, total=total, progress=progress)
        self.compact()
        return added

    def remember_alignment(self, alignment: Alignment | str) -> None:
        """Keep an alignment as the index's own: searches that name none take it."""
        super().remember_alignment(str(searchable(alignment)))

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
        hits: bool = True,
        threads: int = 1,
    ) -> list[Ranking]:
        """Find the k most relevant documents for each query.

        Parameters
        ----------
        queries : TokenVectors, or array of shape (n, dim) for a single query
        k : int
            How many documents at the most.
        alignment : Alignment or str, optional
            What relevance is; by default the index's own: the sum of max, or what `remember_alignment` was given.
            ``"xtr:k_prime"`` scores from retrieved tokens alone, ``"xtr"`` with a k′ that suits the collection.
        filter : Filter or str, optional
            Only documents whose metadata match are looked at.
        exact : bool
            Look at every document: the ranking is then certified, and its margin known.
        n_probe, k_prime, refine : int, optional
            How hard to look in large segments: cells probed and document tokens looked at for each query token, and
            documents scored in full. The defaults suit recall@10 around 0.98.
        beta_q : float, optional
            Search with the top β_q of the query's tokens by salience (ALIGNER §3.2).
        among : collection of str, optional
            Rank only the documents with these ids, scored as they are among all that the filter lets through: under
            XTR, what a query token retrieves depends on the others.
        hits : bool
            Whether rankings carry the aligned token pairs.
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
                check_count(value, name, "search")
        batch = self._queries(queries)
        rows = np.arange(batch.n_tokens) - np.repeat(batch.offsets[:-1], batch.lengths)
        if beta_q is not None:
            rows = rows[kept(batch, beta_q, parameter="beta_q")]
            batch = prune(batch, beta_q, parameter="beta_q")
        if not self.salience_weighs:
            batch = batch.without_salience()
        effort = None if exact else Effort(n_probe, k_prime, refine)
        with self.view() as view:
            if alignment is None:
                alignment = searchable(self.alignment)
            allowed = self._allowed(view, filter)
            ranked = None if among is None else self._masks(view, self.catalogue.select(*In(ID, tuple(among)).to_sql()))
            if ranked is not None and not isinstance(alignment, XTR):  # no score depends on other documents
                both = zip(allowed, ranked, strict=True)
                allowed = [Allowed.of(mask if a.mask is None else a.mask & mask) for a, mask in both]
            search = _Search(self, view, allowed, k, alignment, effort, threads, ranked)
            texts = [batch] if len(batch) == 1 else [batch[i : i + 1] for i in range(len(batch))]
            own = [rows[a:b] for a, b in pairwise(batch.offsets)] if hits else [None] * len(batch)
            return [search.rank(text, of_text) for text, of_text in zip(texts, own, strict=True)]

    def _queries(self, queries: TokenVectors | ArrayLike) -> TokenVectors:
        if not isinstance(queries, TokenVectors):
            single = np.asarray(queries)
            offsets = np.array([0, len(single)]) if single.ndim == 2 else None
            queries = TokenVectors.from_list([single]) if offsets is None else TokenVectors(single, offsets)
        if queries.dim != self.dim:
            raise invalid("queries", "search", f"of the index's dimension, {self.dim}", queries.dim)
        return queries if queries.values.dtype == np.float32 else queries.astype(np.float32)

    def _allowed(self, view: View, filter: Filter | str | None) -> list[Allowed]:  # noqa: A002
        """Return for each segment which documents may be scored at all."""
        if filter is None:
            return [Allowed.of(s.live) for s in view.segments]
        condition, parameters = parse_filter(filter).to_sql()
        # Evaluating a filter reads the metadata of all documents; the same one often comes with many queries.
        key = (view.generation, condition, tuple(parameters))
        known = self._filtered.get(key)
        if known is None:
            known = [Allowed.of(mask) for mask in self._masks(view, self.catalogue.select(condition, parameters))]
            while len(self._filtered) >= FILTERS:
                del self._filtered[next(iter(self._filtered))]  # the oldest
            self._filtered[key] = known
        return known

    @cached_property
    def _filtered(self) -> dict[Any, list[Allowed]]:
        return {}

    @staticmethod
    def _masks(view: View, matching: dict[int, NDArray[np.int64]]) -> list[NDArray[np.bool_]]:
        masks = []
        for s in view.segments:
            mask = np.zeros(len(s.segment), dtype=bool)
            mask[matching.get(s.number, [])] = True
            masks.append(mask)
        return masks


@dataclass(frozen=True, eq=False)
class _Search:
    """One call of `Index.search` over one committed state."""

    index: Index
    view: View
    allowed: list[Allowed]
    k: int
    alignment: Alignment
    effort: Effort | None
    threads: int
    ranked: list[NDArray[np.bool_]] | None = None
    """Where given, which documents of each segment may be in the ranking."""

    def rank(self, query: TokenVectors, rows: NDArray[np.int64] | None) -> Ranking:
        """Rank for one query; `rows`, if hits are wanted, tells where its tokens stood before β_q pruned it."""
        found = self._from_tokens(query) if isinstance(self.alignment, XTR) else self._from_documents(query)
        # The order of equal scores is the order of arrival: segment, then ordinal.
        order = np.lexsort((found.ordinal, found.segment, -found.score))
        if self.ranked is not None and found.terms is not None:
            numbers = [s.number for s in self.view.segments]
            wanted = np.zeros(len(order), dtype=bool)
            for number, mask in zip(numbers, self.ranked, strict=True):
                here = found.segment == number
                wanted[here] = mask[found.ordinal[here]]
            order = order[wanted[order]]
        best = order[: self.k]
        rest = max(found.rest, float(found.score[order[self.k]]) if len(order) > self.k else -np.inf)
        certified = rest < np.inf and not isinstance(self.alignment, XTR)
        margin = float(found.score[best[-1]] - rest) if certified and len(best) and rest > -np.inf else None
        hits, z = (None, None) if rows is None else self._hits(query, found, best, rows)
        return Ranking(self._ids(found, best), found.score[best], hits, certified=certified, margin=margin, z=z)

    def _ids(self, found: _Found, best: NDArray[np.int64]) -> list[str]:
        places = list(zip(found.segment[best].tolist(), found.ordinal[best].tolist(), strict=True))
        known = {s.number: s.ids for s in self.view.segments}
        for number in {number for number, _ in places}:
            new = [ordinal for of, ordinal in places if of == number and ordinal not in known[number]]
            if new:
                known[number].update(zip(new, self.index.catalogue.ids(number, new), strict=True))
        return [known[number][ordinal] for number, ordinal in places]

    def _from_documents(self, query: TokenVectors) -> _Found:
        parts = []
        for s, allowed in zip(self.view.segments, self.allowed, strict=True):
            if not s.segment.coded:
                ordinals, documents = allowed_documents(s.segment, allowed.mask)
                scores = score_documents(query, documents, self.alignment, self.threads)
                parts.append(_Found(np.full(len(ordinals), s.number), ordinals, scores))
                continue
            if self.effort is None:
                result = search_exactly(s.segment, query, allowed, self.k, self.alignment, self.threads)
            else:
                result = search_coded(s.segment, query, allowed, self.k, self.alignment, self.effort, self.threads)
            parts.append(_Found(np.full(len(result.ordinal), s.number), result.ordinal, result.score, result.rest))
        return _Found.joined(parts)

    def _from_tokens(self, query: TokenVectors) -> _Found:
        assert isinstance(self.alignment, XTR)
        if self.effort is not None and self.alignment.impute == "kth" and query.n_tokens:
            found = self._above_floors(query, self.alignment, self.effort)
            if found is not None:
                return found
        ordinals = [self._with_tokens(s, query, mask) for s, mask in zip(self.view.segments, self.allowed, strict=True)]
        parts = (
            comparable(s.segment, query, some)
            for s, o in zip(self.view.segments, ordinals, strict=True)
            for some in in_parts(s.segment, o)
        )
        hits, last = retrieve_tokens(query.n_tokens, parts, self.alignment.retrieves(self._n_tokens))
        lengths = [np.diff(s.segment.offsets)[o] for s, o in zip(self.view.segments, ordinals, strict=True)]
        numbers = np.repeat([s.number for s in self.view.segments], [len(o) for o in ordinals]).astype(np.int64)
        empty = np.zeros(0, np.int64)
        terms = score_hits(hits, last, np.concatenate([empty, *lengths]), self.alignment)
        places = np.concatenate([empty, *ordinals])[terms.documents]
        return _Found(numbers[terms.documents], places, terms.scores, terms=terms)

    def _above_floors(self, query: TokenVectors, alignment: XTR, effort: Effort) -> _Found | None:
        """Score by `weft.search.floors`, or return None where a sample tells too little about the k′-th similarity."""
        k_prime = alignment.retrieves(self._n_tokens)
        tops, flat = [], {}
        for s, allowed in zip(self.view.segments, self.allowed, strict=True):
            if s.segment.coded:
                top = sampled_top(s.segment, query, allowed, k_prime)
                if top is None:
                    return None
                tops.append(top)
                continue
            ordinals, maxima = s.segment.with_tokens(allowed.mask), [np.zeros((query.n_tokens, 0), np.float32)]
            for some in in_parts(s.segment, ordinals):
                documents = s.segment.select(some)
                similarity = similarities(query, documents)
                tops.append(Top.of(similarity, 1.0, k_prime))
                maxima.append(greatest(similarity, documents))
            flat[s.number] = ordinals, np.concatenate(maxima, axis=1)
        if not any(top.similarity.size for top in tops):
            return None
        missing = kth_similarity(tops, k_prime)
        z = np.float32(1 if alignment.divides_by == "one" else query.n_tokens)
        parts = []
        ranked: Sequence[NDArray[np.bool_] | None] = self.ranked or [None] * len(self.allowed)
        for s, allowed, wanted in zip(self.view.segments, self.allowed, ranked, strict=True):
            if s.number in flat:
                ordinals, greatest_of = flat[s.number]
                found = (greatest_of >= missing[:, None]).any(axis=0)
                if wanted is not None:
                    found &= wanted[ordinals]
                scores = np.maximum(greatest_of[:, found], missing[:, None]).sum(axis=0)
                parts.append(_Found(np.full(len(scores), s.number), ordinals[found], scores / z))
                continue
            if wanted is not None:
                allowed = Allowed.of(wanted if allowed.mask is None else allowed.mask & wanted)
            result = search_above(s.segment, query, allowed, self.k, missing, effort)
            parts.append(_Found(np.full(len(result.ordinal), s.number), result.ordinal, result.score / z))
        return replace(_Found.joined(parts), missing=missing)

    @cached_property
    def _n_tokens(self) -> int:
        """Tokens of all documents that may be scored."""
        lengths = (np.diff(s.segment.offsets) for s in self.view.segments)
        allowed = (n if a.mask is None else n[a.mask] for n, a in zip(lengths, self.allowed, strict=True))
        return sum(int(n.sum()) for n in allowed)

    def _with_tokens(self, s: LiveSegment, query: TokenVectors, allowed: Allowed) -> NDArray[np.int64]:
        """Return the documents whose tokens are worth comparing: all of a flat segment, candidates of a coded one."""
        if self.effort is None or not s.segment.coded:
            return s.segment.with_tokens(allowed.mask)
        return np.sort(probe(s.segment, s.segment.rotate(query.values), allowed, self.k, self.effort).astype(np.int64))

    def _hits(
        self, query: TokenVectors, found: _Found, best: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[list[Hits], NDArray[np.float32]]:
        """Return the pairs behind the best scores, and Z of each."""
        pairs: list[Hits | None] = [None] * len(best)
        z = np.ones(len(best), dtype=np.float32)
        if found.terms is not None:
            pairs, z = [found.terms.pairs(position) for position in best], found.terms.z[best]
        else:
            for s in self.view.segments:
                here = np.flatnonzero(found.segment[best] == s.number)
                if len(here):
                    ordinals = found.ordinal[best[here]].astype(np.int64)
                    if found.missing is None:
                        terms = aligned_terms(s.segment, query, ordinals, self.alignment)
                    else:
                        terms = floor_terms(s.segment, query, ordinals, self.alignment, found.missing)
                    for position, (found_pairs, found_z) in zip(here, terms, strict=True):
                        pairs[position], z[position] = found_pairs, found_z
        named = [_named(p, rows, rank) for rank, p in enumerate(pairs) if p is not None]
        return named, z


def _named(pairs: Hits, rows: NDArray[np.int64], rank: int) -> Hits:
    """Name query tokens as the caller does, and documents by their place in the ranking."""
    names = {"query_token": rows[pairs.query_token].astype(np.int32), "document": np.full(len(pairs), rank)}
    return Hits.trusted(**{**vars(pairs), **names})
