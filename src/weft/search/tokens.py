"""XTR inference (eq. 3-4) over all segments: retrieve tokens, score documents from them alone, impute what is missing.

The definition is `weft.alignment.XTR`; what a name means does not depend on the way that was taken.

scan
    Every token is compared, first in bytes, and the k′ best of each query token are kept (native/token_scan.hpp): the
    k′-th similarity is that of the collection, and no document's other tokens are looked at.
sample
    With ``impute=kth`` eq. 4 is Σ_i max(max_j S_ij, m_i): of the retrieved tokens only the k′-th similarity must be
    known. Where k′ is large, a scan of some documents tells it, and the rest is the sum of max with floors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.alignment import XTR
from weft.search.imputed import impute_registered
from weft.storage.segments import Allowed, Found, Plan, Segment, Terms
from weft.types import Hits, TokenRetrieval, TokenVectors

RANK = 200
"""A sample is so large that about this many of its tokens are among the best k′ …"""
SAMPLED = 0.5
"""… or, if it would be more than this share of the collection, all of that is scanned."""
LEAST = 50_000
"""Collections of so few tokens are always scanned."""

Floats = NDArray[np.float32]


def search_tokens(
    query: TokenVectors,
    plan: Plan,
    segments: Sequence[Segment],
    allowed: Sequence[Allowed],
    ranked: Sequence[NDArray[np.bool_]] | None,
    search_sums: Callable[[Plan], list[Found]],
) -> tuple[list[Found], TokenRetrieval]:
    """Return what scores from retrieved tokens found in each segment, and how the tokens were retrieved.

    Parameters
    ----------
    query, plan, segments, allowed
        Of the search, which is one under XTR.
    ranked : one (N,) mask for each segment, optional
        Documents that may be in the ranking; all may be retrieved from.
    search_sums : function of a plan
        Searches under the sum of max, with the floors of the plan.
    """
    alignment = plan.alignment
    assert isinstance(alignment, XTR)
    tokens = _n_tokens(segments, allowed)
    k_prime = min(alignment.retrieves(tokens), max(tokens, 1))
    effort, share = plan.effort, RANK / k_prime
    sampled = effort is not None and effort.refine != 0 and tokens > LEAST and share < SAMPLED
    if sampled and alignment.impute == "kth":
        last = _sampled_last(query, plan, segments, allowed, share, tokens)
        return search_sums(plan.with_floors(last)), TokenRetrieval(k_prime, last, "sampled")
    search = _native.TokenRetrieval(query.n_tokens, k_prime)
    documents = _Documents.of(segments)
    _retrieve(query, plan, segments, allowed, search, documents.bases)
    last = search.settle()
    scoring = _Scoring(query, plan, alignment, segments, documents, last)
    may = None if ranked is None else np.concatenate([np.zeros(0, bool), *ranked]).view(np.uint8)
    return scoring.found(search, may), TokenRetrieval(k_prime, last, "exact" if effort is None else "scanned")


def _n_tokens(segments: Sequence[Segment], allowed: Sequence[Allowed]) -> int:
    """Tokens of all documents that may be retrieved from."""
    return sum(
        segment.n_tokens if a.mask is None else int(np.diff(segment.offsets)[a.mask].sum())
        for segment, a in zip(segments, allowed, strict=True)
    )


def _retrieve(
    query: TokenVectors,
    plan: Plan,
    segments: Sequence[Segment],
    allowed: Sequence[Allowed],
    search: _native.TokenRetrieval,
    bases: NDArray[np.int64],
) -> None:
    # The largest first: what its k′-th reaches, tokens of the others must reach, too.
    for position in sorted(range(len(segments)), key=lambda i: -segments[i].n_tokens):
        segments[position].retrieve_tokens(query, plan, allowed[position], search, int(bases[position]))


def _sampled_last(
    query: TokenVectors,
    plan: Plan,
    segments: Sequence[Segment],
    allowed: Sequence[Allowed],
    share: float,
    tokens: int,
) -> Floats:
    """Each query token's k′-th similarity by a scan of some documents, taken evenly from all segments, (n,)."""
    every = int(1 / share)
    some, seen = [], 0
    for a, segment in zip(allowed, segments, strict=True):
        mask = np.zeros(len(segment), dtype=bool)
        may = np.arange(len(segment)) if a.mask is None else np.flatnonzero(a.mask)
        mask[may[-seen % every :: every]] = True
        seen += len(may)
        some.append(Allowed.of(mask))
    sampled = _n_tokens(segments, some)
    # Documents differ in length, so a sample is never just the share that it should be.
    rank = max(round(RANK / share * sampled / max(tokens, 1)), 1)
    search = _native.TokenRetrieval(query.n_tokens, rank)
    _retrieve(query, plan, segments, some, search, _bases(segments))
    return search.settle()


def _bases(segments: Sequence[Segment]) -> NDArray[np.int64]:
    """What each segment's documents are counted from, and all of them, (segments + 1,)."""
    return np.cumsum([0, *(len(segment) for segment in segments)]).astype(np.int64)


class _Documents(NamedTuple):
    """The documents of all segments, counted through."""

    bases: NDArray[np.int64]
    """(segments + 1,)"""
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> _Documents:
        lengths = (np.diff(segment.offsets) for segment in segments)
        return cls(_bases(segments), np.concatenate([np.zeros(0, np.int64), *lengths]))

    def split(self, documents: NDArray[np.int32]) -> list[NDArray[np.int64]]:
        """Return for each segment where its documents stand among these."""
        owner = np.searchsorted(self.bases, documents, side="right") - 1
        return [np.flatnonzero(owner == position) for position in range(len(self.bases) - 1)]


class _Scores(NamedTuple):
    """Documents, and what their scores are the sums of."""

    documents: NDArray[np.int32]
    values: Floats
    """(N, n) what each query token counts, −∞ where nothing does"""
    positions: NDArray[np.int32]
    """(N, n) the token that counts; −1 where m_i stands in, or nothing"""


class _Scoring(NamedTuple):
    """From retrieved tokens to what was found in each segment."""

    query: TokenVectors
    plan: Plan
    alignment: XTR
    segments: Sequence[Segment]
    documents: _Documents
    last: Floats

    def found(self, search: _native.TokenRetrieval, may: NDArray[np.uint8] | None) -> list[Found]:
        missing = self.alignment.missing(self.last)
        if missing is None and self.alignment.impute != "none":
            scores = self._registered(search, may)
        else:
            divided = self.alignment.divides_by != "one"
            best, _, values, positions = search.score(self.documents.lengths, missing, divided, self.plan.wanted, may)
            scores = _Scores(best, values, positions)
        return self._by_segment(scores)

    def _parts(self, documents: NDArray[np.int32]) -> Iterator[tuple[Segment, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield each segment with some of the documents, where they stand among these, and which they are there."""
        places = self.documents.split(documents)
        for segment, base, mine in zip(self.segments, self.documents.bases, places, strict=False):
            if len(mine):
                yield segment, mine, documents[mine].astype(np.int64) - base

    def _registered(self, search: _native.TokenRetrieval, may: NDArray[np.uint8] | None) -> _Scores:
        documents, best, positions, found = search.maxima(int(self.documents.bases[-1]))
        if may is not None:
            allowed = may[documents] != 0
            documents, best, positions, found = documents[allowed], best[allowed], positions[allowed], found[allowed]
        m = np.empty_like(best)
        for segment, mine, ordinals in self._parts(documents):
            m[mine] = impute_registered(self.query, self.alignment, segment, ordinals, self.last)
        # Nothing is missing of a document that was retrieved whole.
        imputed = (m > best) & (found < self.documents.lengths[documents][:, None])
        return _Scores(documents, np.where(imputed, m, best), np.where(imputed, -1, positions).astype(np.int32))

    def _by_segment(self, scores: _Scores) -> list[Found]:
        counted = scores.values > -np.inf
        of = {"one": 1, "query": max(self.query.n_tokens, 1), "sum": np.maximum(counted.sum(axis=1), 1)}
        z = np.broadcast_to(of[self.alignment.divides_by], len(counted))
        totals = (np.where(counted, scores.values, 0).sum(axis=1, dtype=np.float64) / z).astype(np.float32)

        def terms_of(mine: NDArray[np.int64]) -> Callable[[NDArray[np.int64]], list[Terms]]:
            def terms(places: NDArray[np.int64]) -> list[Terms]:
                return [_terms(scores, row, float(z[row])) for row in mine[places].tolist()]

            return terms

        return [
            Found((scores.documents[mine] - base).astype(np.int64), totals[mine], np.inf, terms_of(mine))
            for base, mine in zip(self.documents.bases, self.documents.split(scores.documents), strict=False)
        ]


def _terms(scores: _Scores, row: int, z: float) -> Terms:
    counted = np.flatnonzero(scores.values[row] > -np.inf)
    pairs = Hits.trusted(
        query_token=counted.astype(np.int32),
        document=np.zeros(len(counted), np.int64),
        document_token=scores.positions[row][counted],
        similarity=scores.values[row][counted],
    )
    return Terms(pairs, z)
