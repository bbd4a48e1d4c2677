"""Hard alignments: each system picks a few token pairs and sets Ã to 1 there (ALIGNER §2.2 and §3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from weft.alignment.backend import Array, device_of, top_mask
from weft.alignment.base import Alignment, Pairs
from weft.checks import check_count, check_fraction
from weft.errors import invalid

ROUNDING = 1e-9
"""p·m is meant in decimal: 0.29 · 100 is 29, though floating point makes it 28.999999999999996."""


def first_tokens(mask: Array, k: int, xp: object) -> Array:
    """Mark the first k real tokens of each text; mask and result have shape (..., m)."""
    return mask & (xp.cumulative_sum(xp.astype(mask, xp.int64), axis=-1) <= k)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class SingleVector(Alignment):
    """DPR: the first token of the query with the first of the document, A_11 = 1 (ALIGNER §2.2)."""

    name: ClassVar[str] = "single-vector"
    aliases: ClassVar[tuple[str, ...]] = ("dpr",)
    reference: ClassVar[str] = "DPR; ALIGNER §2.2"
    z: str = "one"

    def pairwise(self, pairs: Pairs) -> Array:
        query = first_tokens(pairs.query_mask, 1, pairs.xp)[:, None, :, None]
        document = first_tokens(pairs.document_mask, 1, pairs.xp)[None, :, None, :]
        return pairs.indicator(query & document & pairs.valid)


@dataclass(frozen=True)
class FirstKMax(Alignment):
    """ME-BERT: the first query token with the best of the first k document tokens (ALIGNER §2.2)."""

    name: ClassVar[str] = "first-k-max"
    aliases: ClassVar[tuple[str, ...]] = ("me-bert",)
    reference: ClassVar[str] = "ME-BERT; ALIGNER §2.2"
    k: int
    z: str = "one"

    def _check(self) -> None:
        self._settle(k=check_count(self.k, "k", type(self).__name__))

    def pairwise(self, pairs: Pairs) -> Array:
        query = first_tokens(pairs.query_mask, 1, pairs.xp)[:, None, :, None]
        document = first_tokens(pairs.document_mask, self.k, pairs.xp)[None, :, None, :]
        return pairs.indicator(top_mask(pairs.S, 1, query & document & pairs.valid))


@dataclass(frozen=True)
class ExactMatch(Alignment):
    """COIL: the best document token among those with the same vocabulary id (ALIGNER §2.2)."""

    name: ClassVar[str] = "exact-match"
    aliases: ClassVar[tuple[str, ...]] = ("coil",)
    reference: ClassVar[str] = "COIL; ALIGNER §2.2"
    z: str = "one"

    def pairwise(self, pairs: Pairs) -> Array:
        if pairs.query_tokens is None or pairs.document_tokens is None:
            missing = "query_tokens" if pairs.query_tokens is None else "document_tokens"
            raise invalid(missing, "exact-match", "given: lexical match needs the vocabulary ids", None)
        same = pairs.query_tokens[:, None, :, None] == pairs.document_tokens[None, :, None, :]
        return pairs.indicator(top_mask(pairs.S, 1, same & pairs.valid))


@dataclass(frozen=True)
class SumOfMax(Alignment):
    """ColBERT: each query token with its best document token (ALIGNER §2.2, XTR eq. 1, GR eq. 21).

    The name says sum, so Z is 1 as in ColBERT itself; ``z="query"`` is XTR's eq. 1.
    """

    name: ClassVar[str] = "sum-of-max"
    aliases: ClassVar[tuple[str, ...]] = ("colbert", "maxsim")
    reference: ClassVar[str] = "ColBERT; XTR eq. 1"
    z: str = "one"

    def pairwise(self, pairs: Pairs) -> Array:
        return pairs.indicator(top_mask(pairs.S, 1, pairs.valid))

    def contributions(self, pairs: Pairs) -> Array | None:
        xp = pairs.xp
        if 0 in pairs.S.shape:
            return None
        least = xp.asarray(-xp.inf, dtype=pairs.S.dtype, device=device_of(pairs.S))
        best = xp.max(xp.where(pairs.document_mask[None, :, None, :], pairs.S, least), axis=-1)
        some = pairs.query_mask[:, None, :] & (best > least)
        return xp.where(some, best, xp.zeros_like(best))


@dataclass(frozen=True)
class TopK(Alignment):
    """ALIGNER top-k: each query token with its k best document tokens, or all if there are fewer (§3.1)."""

    name: ClassVar[str] = "top-k"
    reference: ClassVar[str] = "ALIGNER §3.1"
    k: int
    z: str = "sum"

    def _check(self) -> None:
        self._settle(k=check_count(self.k, "k", type(self).__name__))

    def pairwise(self, pairs: Pairs) -> Array:
        return pairs.indicator(top_mask(pairs.S, self.k, pairs.valid))


@dataclass(frozen=True)
class TopP(Alignment):
    """ALIGNER top-p: each query token with its max(⌊p·m⌋, 1) best document tokens, m the document's length (§3.1)."""

    name: ClassVar[str] = "top-p"
    reference: ClassVar[str] = "ALIGNER §3.1"
    p: float
    z: str = "sum"

    def _check(self) -> None:
        self._settle(p=check_fraction(self.p, "p", type(self).__name__))

    def count(self, lengths: Array) -> np.ndarray:
        """Return max(⌊p·m⌋, 1) for each document length m, as int64.

        Examples
        --------
        >>> TopP(0.29).count([100, 10, 1, 0])
        array([29,  2,  1,  1])
        """
        return np.maximum(np.floor(self.p * np.asarray(lengths) + ROUNDING), 1).astype(np.int64)

    def pairwise(self, pairs: Pairs) -> Array:
        lengths = pairs.document_lengths  # (N,)
        lengths = lengths.cpu().numpy() if hasattr(lengths, "cpu") else lengths
        k = pairs.xp.asarray(self.count(lengths), device=device_of(pairs.S))
        return pairs.indicator(top_mask(pairs.S, k[None, :, None, None], pairs.valid))
