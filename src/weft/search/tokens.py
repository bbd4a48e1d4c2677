"""XTR inference (eq. 3-4) over all segments: retrieve tokens, score documents from them alone, impute what is missing.

The definition is `weft.alignment.XTR`; scores mean the same whichever way was taken.

scan
    Every token is compared, first in bytes, and the k′ best of each query token are kept (native/token_scan.hpp): the
    k′-th similarity is that of the collection, and no document's other tokens are looked at.
sample
    With ``impute=kth`` eq. 4 is Σ_i max(max_j S_ij, m_i): of the retrieved tokens only the k′-th similarity must be
    known. Where k′ is large, it is estimated from an even sample of the tokens, and the rest is the sum of max with
    floors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.alignment import XTR
from weft.errors import invalid
from weft.search.imputed import impute_registered
from weft.storage.segments import Allowed, Found, Plan, Sample, Segment, Terms
from weft.types import Hits, TokenRetrieval, TokenVectors

RANK = 80
"""A sample of tokens holds at least about this many of the best k′ …"""
SAMPLED = 0.5
"""… and if it would be more than this share of the collection, everything is scanned."""
LEAST = 50_000
"""Collections of at most this many tokens are always scanned."""
SAMPLE = "sampled"
"""What a ranking's retrieval says if the k′-th similarity was estimated from a sample."""

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
    alignment, given = plan.alignment, plan.retrieval
    assert isinstance(alignment, XTR)
    tokens = n_tokens(segments, allowed)
    k_prime = min(alignment.retrieves(tokens), max(tokens, 1)) if given is None else given.k_prime
    if given is not None and given.how == SAMPLE:
        return search_sums(plan.with_floors(given.last)), given
    if given is None and is_sampled(plan, k_prime, tokens):
        last = _finite(_sampled_last(query, segments, allowed, k_prime, tokens))
        return search_sums(plan.with_floors(last)), TokenRetrieval(k_prime, last, SAMPLE)
    search = _native.TokenRetrieval(query.n_tokens, k_prime)
    if given is not None:
        search.raise_floors(given.last)
    documents = _Documents.of(segments)
    retrieve(query, plan, segments, allowed, search, documents.bases)
    last = _finite(search.settle() if given is None else given.last)
    scoring = _Scoring(query, plan, alignment, segments, documents, last)
    may = None if ranked is None else np.concatenate([np.zeros(0, bool), *ranked]).view(np.uint8)
    how = "exact" if plan.effort is None else "scanned"
    return scoring.found(search, may), given or TokenRetrieval(k_prime, last, how)


def _finite(last: Floats) -> Floats:
    if not np.isfinite(last).all():
        raise invalid("queries", "search", "of numbers whose products are finite", "infinite similarities")
    return last


def is_sampled(plan: Plan, k_prime: int, tokens: int) -> bool:
    """Tell whether a sample of a collection's tokens is enough to estimate the k′-th similarity."""
    assert isinstance(plan.alignment, XTR)
    effort = plan.effort
    enough = effort is not None and effort.refine != 0 and tokens > LEAST and RANK / k_prime < SAMPLED
    return enough and plan.alignment.impute == "kth"


def one_in(k_prime: int) -> int:
    """Return the step of a sample, which takes one in so many tokens."""
    # In steps of √2, so that a growing collection keeps its segments' samples for a while.
    return int(2 ** (math.floor(2 * math.log2(k_prime / RANK)) / 2))


def n_tokens(segments: Sequence[Segment], allowed: Sequence[Allowed]) -> int:
    """Tokens of all documents that may be retrieved from."""
    return sum(
        segment.n_tokens if a.mask is None else int(np.diff(segment.offsets)[a.mask].sum())
        for segment, a in zip(segments, allowed, strict=True)
    )


def retrieve(
    query: TokenVectors,
    plan: Plan,
    segments: Sequence[Segment],
    allowed: Sequence[Allowed],
    search: _native.TokenRetrieval,
    bases: NDArray[np.int64],
) -> None:
    """Hand in the tokens of all segments."""
    # The largest first: what its k′-th reaches, tokens of the others must reach, too.
    for position in sorted(range(len(segments)), key=lambda i: -segments[i].n_tokens):
        segments[position].retrieve_tokens(query, plan, allowed[position], search, int(bases[position]))


def _sampled_last(
    query: TokenVectors,
    segments: Sequence[Segment],
    allowed: Sequence[Allowed],
    k_prime: int,
    tokens: int,
) -> Floats:
    """Each query token's k′-th similarity, estimated from one in so many tokens of all segments, (n,)."""
    samples = samples_of(segments, allowed, one_in(k_prime))
    rank = max(round(k_prime / tokens * sum(len(sample.rows) for sample in samples)), 1)
    search = _native.TokenRetrieval(query.n_tokens, rank)
    compare_samples(query, segments, samples, search, k_prime / tokens)
    return search.settle()


def samples_of(segments: Sequence[Segment], allowed: Sequence[Allowed], every: int, seen: int = 0) -> list[Sample]:
    """Return one in so many tokens of each segment, counted through all of them and `seen` before."""
    samples = []
    for a, segment in zip(allowed, segments, strict=True):
        samples.append(segment.sample(a, -seen % every, every))
        seen += n_tokens([segment], [a])
    return samples


def compare_samples(
    query: TokenVectors,
    segments: Sequence[Segment],
    samples: Sequence[Sample],
    search: _native.TokenRetrieval,
    share: float,
) -> None:
    """Hand in the sampled tokens of all segments; about `share` of them are wanted."""
    for segment, sample in zip(segments, samples, strict=True):
        if len(sample.rows):
            segment.sample_tokens(query, search, sample, share)


def bases_of(segments: Sequence[Segment]) -> NDArray[np.int64]:
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
        return cls(bases_of(segments), np.concatenate([np.zeros(0, np.int64), *lengths]))

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
