"""Searching a coded segment: probe for candidates, re-rank them in integers, refine the best under the alignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.alignment import Alignment, SumOfMax
from weft.search.brute import NATIVE, score_documents
from weft.search.floors import LEAST_RANK, Top
from weft.storage.codec import TOKENS_PER_CENTROID
from weft.storage.segment import Segment
from weft.types import TokenVectors

CELLS = 12
CENTROIDS = 64
REFINE = 120
SKETCHED = 5
"""Where tokens have sketches, so many times `refine` documents are found, and the best by sketch scored in full."""
UNSKETCHED = 3
"""Where they have none, so many times as many as by default must be scored in full for the same recall."""
SPARE = 4
"""So many more documents than asked for are ranked with the unrounded query."""
WIDEST = 8
"""Under a filter that keeps few documents, at most so many times as many centroids are probed."""
FEW = 3200
"""So many documents that a filter keeps are looked at one and all: probing would miss too many of them."""


class Allowed(NamedTuple):
    """Which documents of a segment may be found at all."""

    mask: NDArray[np.bool_] | None
    """(N,); None: all"""
    number: int

    @classmethod
    def of(cls, mask: NDArray[np.bool_]) -> Allowed:
        """Count once what every query asks for."""
        number = int(np.count_nonzero(mask))
        return cls(None if number == len(mask) else mask, number)


@dataclass(frozen=True)
class Effort:
    """How hard to look. None leaves a choice to the segment."""

    n_probe: int | None = None
    """Cells probed for each query token."""
    k_prime: int | None = None
    """Document tokens looked at for each query token, about (XTR's k′): their centroids' lists are read."""
    refine: int | None = None
    """Documents scored in full."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Documents of a segment with their scores, in no order; `rest` bounds the score of all others allowed."""

    ordinal: NDArray[np.int32]
    score: NDArray[np.float32]
    rest: float


def probe(
    segment: Segment, rotated: NDArray[np.float32], allowed: Allowed, k: int, effort: Effort
) -> NDArray[np.int32]:
    """Return the documents worth scoring, best first."""
    share = max(allowed.number, 1) / max(len(segment), 1)
    by_default = REFINE if segment.sketched else UNSKETCHED * REFINE
    keep = max(effort.refine or max(by_default, 4 * k), k)
    centroids = -(-effort.k_prime // TOKENS_PER_CENTROID) if effort.k_prime else CENTROIDS
    # A filter thins out the lists: probe deeper for what it keeps, and look at a small remainder one and all.
    widened = min(1 / share, WIDEST)
    count = SKETCHED * keep if segment.sketched else keep
    if share < 1 / WIDEST:
        count = max(count, min(allowed.number, FEW))
        keep = max(keep, REFINE if segment.sketched else count)
    return segment.candidates(
        rotated,
        allowed.mask,
        round((effort.n_probe or CELLS) * min(widened, 2)),
        round(centroids * widened),
        count,
        keep,
    )


def search_coded(
    segment: Segment,
    query: TokenVectors,
    allowed: Allowed,
    k: int,
    alignment: Alignment,
    effort: Effort,
    threads: int,
) -> Scores:
    """Return the best documents found; `rest` is +inf, for nothing is known of those that were not candidates."""
    rotated = segment.rotate(query.values)
    listed = probe(segment, rotated, allowed, k, effort)
    if isinstance(alignment, SumOfMax) and not _salient(segment, query):
        best, scores = segment.best(rotated, listed, k + max(SPARE, k // 8))
        return Scores(best, scores if alignment.z == "one" else scores / np.float32(max(len(rotated), 1)), np.inf)
    best, _, _ = segment.rerank(rotated, listed, max(10 * k, 100))
    return Scores(best, refine(segment, query, rotated, best, alignment, threads), np.inf)


def sampled_top(segment: Segment, query: TokenVectors, allowed: Allowed, k_prime: int) -> Top | None:
    """Return the best similarities of a segment's sample, or None where it tells too little about the k′-th of all."""
    sample, tokens, rows = segment.sample, int(segment.offsets[-1]), len(segment.sample.values)
    values = sample.values
    if allowed.mask is not None:
        values = values[allowed.mask[sample.document]]
        tokens, rows = int(np.diff(segment.offsets)[allowed.mask].sum()), len(values)
    weight = tokens / max(rows, 1)
    if weight > 1 and k_prime < LEAST_RANK * weight:
        return None
    return Top.of(segment.rotate(query.values) @ values.T, weight, k_prime)


def search_above(
    segment: Segment, query: TokenVectors, allowed: Allowed, k: int, missing: NDArray[np.float32], effort: Effort
) -> Scores:
    """Return the best documents found under XTR (eq. 4, Z = 1): m_i of `missing`, (n,), where a query token finds less.

    A document of which no token reaches its m_i is none of XTR's candidates.
    """
    rotated = segment.rotate(query.values)
    listed = probe(segment, rotated, allowed, k, effort)
    best, scores = segment.best(rotated, listed, k + max(SPARE, k // 8), missing)
    found = scores > np.float32(missing.astype(np.float64).sum())
    return Scores(best[found], scores[found], np.inf)


def search_exactly(
    segment: Segment, query: TokenVectors, allowed: Allowed, k: int, alignment: Alignment, threads: int
) -> Scores:
    """Return the certified best k under the stored codes, and what the best document left out can reach at most."""
    rotated = segment.rotate(query.values)
    listed = segment.with_tokens(allowed.mask).astype(np.int32)
    rest = -np.inf
    if isinstance(alignment, SumOfMax) and not _salient(segment, query) and len(listed) > k:
        # Integer scores are off by at most `error`: only documents within twice that of the k-th can be in the top k.
        order, scores, error = segment.rerank(rotated, listed, len(listed))
        near = int(np.searchsorted(-scores, -(scores[k - 1] - 2 * error), side="right"))
        listed = order[:near]
        if near < len(scores):
            z = len(rotated) if alignment.z != "one" else 1
            rest = float(scores[near] + error) / max(z, 1)
    return Scores(listed, refine(segment, query, rotated, listed, alignment, threads), rest)


def refine(
    segment: Segment,
    query: TokenVectors,
    rotated: NDArray[np.float32],
    listed: NDArray[np.int32],
    alignment: Alignment,
    threads: int,
) -> NDArray[np.float32]:
    """Score documents with the unrounded query under any alignment, a few thousand at a time."""
    parts = [np.zeros(0, np.float32)]
    turned = TokenVectors.trusted(rotated, query.offsets, query.token_ids, query.salience)
    for start in range(0, len(listed), 2048):
        some = listed[start : start + 2048]
        if isinstance(alignment, NATIVE):  # inner products are the same in the space of the codes
            parts.append(score_documents(turned, segment.decoded(some), alignment, threads))
        else:
            parts.append(score_documents(query, segment.select(some.astype(np.int64)), alignment, threads))
    return np.concatenate(parts)


def comparable(segment: Segment, query: TokenVectors, ordinals: NDArray[np.int64]) -> tuple[TokenVectors, TokenVectors]:
    """Return query and documents in a space where their inner products are the stored ones, as cheaply as can be."""
    if not segment.coded:
        return query, segment.select(ordinals)
    rotated = segment.rotate(query.values)
    turned = TokenVectors.trusted(rotated, query.offsets, query.token_ids, query.salience)
    return turned, segment.decoded(ordinals.astype(np.int32))


def _salient(segment: Segment, query: TokenVectors) -> bool:
    return query.salience is not None or segment.salient
