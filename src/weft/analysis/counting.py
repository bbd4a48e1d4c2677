"""How many operations scoring and searching take: the papers' formulas, and counts.

An operation is a multiplication, an addition, a comparison or a table look-up of one number, on floats or on bytes: the
same unit for all, as in XTR's table 1, though bytes are many times cheaper.

The engine has no counters of its own (they would cost time in its inner loops). `SearchCounter` walks the same cells,
centroids and lists in Python and counts what they hold. It ranks cells and centroids by floats where the engine ranks
them by bytes, so it misses ties that rounding makes: the counts are too low by at most a few per cent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.search.tokens import LEAST, RANK, SAMPLED, one_in
from weft.storage.codecs.base import to_floats
from weft.storage.codecs.sketch import SUB_VECTOR
from weft.storage.segments.coded import NEAR, NEARER, CodedSegment
from weft.storage.segments.effort import CELLS, SKETCHED
from weft.storage.segments.plan import SPARE

SPREAD = _native.SPREAD
"""How much of a cell's spread counts as similarity: kSpread of native/engine.hpp."""


def colbert_flops(n: float, k_prime: float, m: float, d: float) -> float:
    """Return n²k′(2m̄d + m̄ + 1): XTR table 1, f_ColBERT on n·k′ candidates of m̄ tokens.

    Examples
    --------
    >>> f"{colbert_flops(16, 100, 55, 128):.2e}"
    '3.62e+08'
    """
    return n * n * k_prime * (2 * m * d + m + 1)


def xtr_flops(n: float, k_prime: float, r: float) -> float:
    """Return n²k′(r̄ + 1): XTR table 1, f_XTR′ on n·k′ candidates with r̄ retrieved tokens.

    Examples
    --------
    >>> f"{xtr_flops(16, 100, 2.5):.2e}"
    '8.96e+04'
    """
    return n * n * k_prime * (r + 1)


def colbert_bytes(n: float, k_prime: float, m: float, d: float) -> float:
    """Return 4·n·k′·m̄·d: the vectors of n·k′ candidates that f_ColBERT loads, in float32 (XTR appendix B).

    Examples
    --------
    >>> round(colbert_bytes(16, 1000, 55, 128) / 1e6)
    451
    """
    return 4 * n * k_prime * m * d


def xtr_bytes(n: float, k_prime: float) -> float:
    """Return 8·n·k′: what f_XTR′ reads, a similarity and a document of each retrieved token.

    Examples
    --------
    >>> xtr_bytes(16, 1000) / 1e6
    0.128
    """
    return 8 * n * k_prime


class Scoring(NamedTuple):
    """Operations of the scoring stage for one query, counted on its real candidates."""

    candidates: int
    tokens_hit: float
    """r̄: retrieved tokens of a candidate, the mean."""
    colbert: int
    xtr: int


def count_scoring(document: NDArray[np.int64], n: int, lengths: NDArray[np.int64], d: int) -> Scoring:
    """Count the scoring stage for one query.

    Parameters
    ----------
    document : array, shape (n·k′,)
        The documents of the retrieved tokens.
    n : int
        Query tokens.
    lengths : array, shape (documents,)
    d : int
        Dimension.

    Examples
    --------
    >>> counted = count_scoring(np.array([0, 0, 1, 0]), 2, np.array([3, 4]), 8)
    >>> counted.candidates, counted.colbert == 2 * (2 * 7 * 8 + 7) + 2 * 2, counted.xtr == 4 + 2 * 2 * 2
    (2, True, True)
    """
    found = np.unique(document)
    tokens = int(lengths[found].sum())
    # Inner products, row maxima, the sum over query tokens.
    colbert = n * (2 * tokens * d + tokens) + n * len(found)
    # Every hit enters one maximum; then for each candidate and query token: is it imputed, and add.
    xtr = len(document) + 2 * n * len(found)
    return Scoring(len(found), len(document) / max(len(found), 1), colbert, xtr)


class SearchCounter:
    """Counts the operations of searches of one coded segment by the sum of max, with the default effort."""

    def __init__(self, segment: CodedSegment) -> None:
        self.segment = segment
        self.lengths: NDArray[np.int64] = np.diff(segment.offsets)
        book = segment.codebook()
        assert book is not None, "written by an earlier version"
        self._cells = to_floats(book.cells, book.scale)  # (cells, dim)
        self._centroids = to_floats(book.centroids, book.scale)  # (centroids, dim)
        self._starts = book.cell_starts
        self._list_lengths = np.diff(segment.arrays["list_starts"])
        self._spread = book.spread
        self.centroids = max(round(segment.size.centroids), 1)
        """Whose lists are read for each query token."""

    def count(self, query: NDArray[np.float32], k: int) -> dict[str, int]:
        """Return the operations of each stage for query vectors (n, dim)."""
        segment, n = self.segment, len(query)
        rotated = segment.rotate(query)
        dim = rotated.shape[1]
        keep = max(segment.size.refine, 4 * k)
        wanted = min(SKETCHED * keep if segment.sketched else keep, len(segment))
        listed = segment.candidates(rotated, None, CELLS, self.centroids, wanted)
        refined = segment.candidates(rotated, None, CELLS, self.centroids, wanted, keep)
        counts = {"rotation": 2 * n * segment.dim * dim}
        if wanted < int((self.lengths > 0).sum()):  # else all documents are candidates, and nothing is probed
            scored, touched = self.walk(rotated)
            counts["cells"] = 2 * n * len(self._cells) * dim
            counts["centroids"] = 2 * scored * dim
            # A maximum for each entry and query token; then the row of each document is summed.
            counts["lists"] = n * int(self._list_lengths[touched].sum()) + n * len(segment)
        if len(refined) < len(listed):
            counts["sketches"] = n * int(self.lengths[listed].sum()) * (2 * (dim // SUB_VECTOR) + 1)
        tokens = int(self.lengths[refined].sum())
        counts["integer scores"] = n * (2 * tokens * dim + tokens)
        # At least one unrounded product for each query token and each of the last few documents.
        counts["final scores"] = 2 * n * dim * min(k + max(SPARE, k // 8), len(refined))
        return counts

    def count_last(self, query: NDArray[np.float32], k_prime: int) -> int:
        """Return what XTR takes in addition: finding the k′-th similarity of each query token (`weft.search.tokens`).

        If a sample is used, it is laid out by cells, as it is from the third query on; otherwise everything is scanned.
        """
        segment, n = self.segment, len(query)
        rotated = segment.rotate(query)
        dim, tokens = int(rotated.shape[1]), segment.n_tokens
        if tokens <= LEAST or RANK / k_prime >= SAMPLED:
            return n * (2 * tokens * dim + tokens)
        numbers = segment.arrays["sketches"][:: one_in(k_prime), :2].astype(np.int64)  # the cell's, in two bytes
        sampled = np.bincount(numbers[:, 0] + 256 * numbers[:, 1], minlength=len(self._cells))
        visited = max(round(len(self._cells) * max(NEAR, NEARER * k_prime / tokens)), 1)
        nearest = np.argsort(-self._nearness(rotated), axis=1)[:, :visited]
        return 2 * n * len(self._cells) * dim + (2 * dim + 1) * int(sampled[nearest].sum())

    def _nearness(self, rotated: NDArray[np.float32]) -> NDArray[np.float32]:
        """The similarity of each cell to each query token, (n, cells), with a bonus for wide cells."""
        lift = SPREAD * np.linalg.norm(rotated, axis=1, keepdims=True) * self._spread
        near: NDArray[np.float32] = rotated @ self._cells.T + lift
        return near

    def walk(self, rotated: NDArray[np.float32]) -> tuple[int, NDArray[np.int64]]:
        """Return how many centroids are compared with query tokens, and which of them have their lists read."""
        probed = np.argsort(-self._nearness(rotated), axis=1)[:, :CELLS]  # (n, cells probed)
        scored, touched = 0, [np.zeros(0, np.int64)]
        for i, cells in enumerate(probed):
            own = np.concatenate([np.arange(self._starts[c], self._starts[c + 1]) for c in cells])
            scored += len(own)
            touched.append(own[np.argsort(-(self._centroids[own] @ rotated[i]))[: self.centroids]])
        return scored, np.unique(np.concatenate(touched))
