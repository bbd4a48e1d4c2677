"""Codes for large segments: cells, centroids with lists of documents, and 8, 4 or 2 bits per coordinate of every token.

    rotate      x ← x·R, R orthogonal and random: spreads the energy of a few strong coordinates over all of
                them, so that rounding to bytes costs every token the same little
    codes       u = 128 + round(x·scale), the scale chosen so that native/byte_kernels.hpp cannot overflow
    cells       k-means over a sample of codes, about 1.1·√T of them; every token goes to its nearest
    centroids   k-means within each cell, one for about 32 tokens; a document is listed where it has a token
    residuals   with 4 or 2 bits, the byte rounded to the centroid's byte plus one of 16 or 4 levels (`residual.py`)

What was tried, and why this won, is in docs/notes/engine.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.storage.arrays import release

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

CODE_NORM = _native.CODE_NORM
"""Norm of the longest vector in coded units: native code relies on it."""
BLOCK = _native.BLOCK
"""Centroids in a block: see native/byte_kernels.hpp."""
TOKENS_PER_CENTROID = 32
CELLS_PER_ROOT = 1.1
SAMPLES_PER_CELL = 64
ITERATIONS = 4
CUT = 0.001
"""At most this share of tokens may have a coordinate clipped to the range of a byte."""
CUT_OFF = 0.25
"""At most this part of a coordinate may be clipped."""
CUT_DIM = 64
"""Vectors of fewer dimensions are never clipped: one coordinate can be most of such a vector."""
CHUNK = 8192
TAKEN = 1024
"""Scattered rows that are read before their pages are given back: the system maps 64 KB around each."""
GATHERED = 1 << 18
"""Tokens read together when they are wanted cell by cell."""


class Clusters(NamedTuple):
    """Two levels of centroids and where every token went, all in the units of byte codes."""

    cells: Bytes
    """(K, dim)"""
    centroids: Bytes
    """(C, dim), those of a cell together"""
    cell_starts: NDArray[np.int32]
    """(K + 1,)"""
    assigned: NDArray[np.int32]
    """(T,) each token's centroid"""
    spread: Floats
    """(K,) root mean squared distance of a cell's tokens to it"""

    def cells_of(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the cells of some tokens."""
        return np.searchsorted(self.cell_starts, self.assigned[rows], side="right") - 1


def padded_dim(dim: int) -> int:
    """Return the dimension of the codes: the next multiple of 4."""
    return -(-dim // 4) * 4


def rotation(dim: int, seed: int) -> Floats:
    """Return a random matrix (dim, padded_dim) with orthonormal rows: x @ R keeps all inner products."""
    size = padded_dim(dim)
    gaussian = np.random.default_rng(seed).standard_normal((size, size))
    return np.ascontiguousarray(np.linalg.qr(gaussian)[0][:dim], dtype=np.float32)


def choose_scale(parts: Iterable[Floats], tokens: int = 0) -> float:
    """Return the largest scale at which no vector is longer than CODE_NORM and hardly any coordinate leaves a byte.

    A share CUT of the `tokens` vectors may have a coordinate clipped, by at most CUT_OFF of it. If one outlier could
    lower the scale, segments would have different ones, and each merge would round codes again. Vectors of few
    dimensions, of which one coordinate can be most, are never clipped.
    """
    longest = greatest = 0.0
    size = 0
    tops = np.zeros(int(CUT * tokens) + 1, np.float32)  # the greatest coordinates: all but the least may be clipped
    for part in parts:
        here = np.abs(part).max(axis=1, initial=0)
        top = float(here.max(initial=0))
        greatest, size = max(greatest, top), part.shape[1]
        if top > 0:  # divided by it, for squares of large or small numbers do not fit
            shrunk = part / np.float32(top)
            longest = max(longest, top * float(np.sqrt(np.einsum("td,td->t", shrunk, shrunk).max())))
            tops = np.partition(np.concatenate([tops, here]), len(here))[len(here) :]
    if longest == 0:
        return 1.0
    kept = max(float(tops.min()), (1 - CUT_OFF) * greatest) if size >= CUT_DIM else greatest
    room = 127 / kept
    return min(room, CODE_NORM / longest) * (1 - 2**-10)


def encode(vectors: Floats, scale: float) -> NDArray[np.uint8]:
    """Round vectors to bytes, shape kept: 128 + x·scale, up or down so that little error is along the vector itself."""
    codes = np.empty(vectors.shape, dtype=np.uint8)
    _native.round_to_bytes(np.ascontiguousarray(vectors, np.float32), float(np.float32(scale)), codes)
    return codes


def number_of_cells(tokens: int) -> int:
    """Return how many cells suit a segment of so many tokens."""
    return max(1, round(CELLS_PER_ROOT * math.sqrt(tokens)))


def find_cells(codes: Bytes, count: int, rng: np.random.Generator) -> Bytes:
    """Find cells (count, dim) by a sample of byte codes (T, dim), T not less than `count`."""
    tokens = len(codes)
    sample = np.sort(rng.choice(tokens, min(tokens, count * SAMPLES_PER_CELL), replace=False))
    return _kmeans(taken(codes, sample), count, rng)


def cluster(
    codes: Bytes, seed: int = 0, tokens_per_centroid: float = TOKENS_PER_CENTROID, cells: Bytes | None = None
) -> Clusters:
    """Find cells, unless they are given, and centroids for byte codes (T, dim), possibly on disk."""
    tokens = len(codes)
    rng = np.random.default_rng(seed)
    if cells is None:
        cells = find_cells(codes, number_of_cells(tokens), rng)
    n_cells = len(cells)
    found = [nearest(part, cells) for part in in_passing(codes)]
    cell_of = np.concatenate([of for of, _ in found])
    distance = np.concatenate([squared for _, squared in found])
    number = np.bincount(cell_of, minlength=n_cells)
    spread = np.sqrt(np.bincount(cell_of, distance, n_cells) / np.maximum(number, 1)).astype(np.float32)
    order = np.argsort(cell_of, kind="stable")
    bounds = np.searchsorted(cell_of[order], np.arange(n_cells + 1))
    del found, cell_of, distance

    assigned = np.empty(tokens, dtype=np.int32)
    centroids, starts = [], [0]
    for members, inside in _by_cell(codes, order, bounds):
        count = max(1, round(len(members) / tokens_per_centroid)) if len(members) else 0
        if count:
            centroids.append(_kmeans(inside, count, rng))
            assigned[members] = starts[-1] + nearest(inside, centroids[-1])[0]
        starts.append(starts[-1] + count)
    return Clusters(cells, np.concatenate(centroids), np.array(starts, dtype=np.int32), assigned, spread)


def _by_cell(
    codes: Bytes, order: NDArray[np.int64], bounds: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], Bytes]]:
    """The tokens of every cell and their codes. These lie all over the file: it is read for many cells at once."""
    first = 0
    while first < len(bounds) - 1:
        last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + GATHERED, side="right")) - 1)
        group = order[bounds[first] : bounds[last]]
        rows = np.sort(group)
        gathered = taken(codes, rows)
        for cell in range(first, last):
            members = order[bounds[cell] : bounds[cell + 1]]
            yield members, gathered[np.searchsorted(rows, members)]
        first = last


def list_documents(
    centroids: NDArray[np.int64], documents: NDArray[np.int64], n_documents: int, n_centroids: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the documents at each centroid, of pairs in any order: starts (C + 1,), and ascending lists.

    Examples
    --------
    >>> starts, lists = list_documents(np.array([1, 0, 1, 1]), np.array([2, 0, 0, 2]), 3, 3)
    >>> starts.tolist(), lists.tolist()
    ([0, 1, 3, 3], [0, 0, 2])
    """
    pairs = centroids * n_documents + documents
    pairs.sort()
    pairs = pairs[np.concatenate([[True], pairs[1:] != pairs[:-1]])[: len(pairs)]]
    starts = np.searchsorted(pairs, np.arange(n_centroids + 1, dtype=np.int64) * n_documents)
    return starts.astype(np.int64), (pairs % max(n_documents, 1)).astype(np.int32)


def listed_steps(starts: NDArray[np.int64], lists: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """Store lists as steps from one document to the next, beginning at −1, in two bytes each.

    A step beyond 65535 is preceded by zeros, each worth 65535. Returns the new starts and the steps.
    """
    before = np.concatenate([[0], lists[:-1]]).astype(np.int64) if len(lists) else np.zeros(0, np.int64)
    before[starts[:-1][np.diff(starts) > 0]] = -1
    steps = lists - before
    zeros = (steps - 1) // 65535
    places = np.arange(len(steps)) + np.cumsum(zeros)
    packed = np.zeros(len(steps) + int(zeros.sum()), dtype=np.uint16)
    packed[places] = steps - zeros * 65535
    return starts + np.concatenate([[0], np.cumsum(zeros)])[starts], packed


def from_steps(starts: NDArray[np.int64], steps: NDArray[np.uint16]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Undo `listed_steps`: return pairs of centroids and documents.

    Examples
    --------
    >>> starts, lists = np.array([0, 2, 2, 3]), np.array([0, 70000, 2], np.int32)
    >>> [array.tolist() for array in from_steps(*listed_steps(starts, lists))]
    [[0, 0, 2], [0, 70000, 2]]
    """
    counts = np.diff(starts)
    centroid = np.repeat(np.arange(len(counts)), counts)
    reached = np.cumsum(np.where(steps == 0, 65535, steps.astype(np.int64)))
    before = np.concatenate([[0], reached])[starts[:-1]]
    document = reached - np.repeat(before, counts) - 1
    real = steps != 0
    return centroid[real], document[real]


def in_passing(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Read an array a few thousand rows at a time, without keeping what was read in memory."""
    for start in range(0, len(array), CHUNK):
        yield array[start : start + CHUNK]
        release(array)


def block_layout(
    codes: NDArray[np.uint8], cell_starts: NDArray[np.int32]
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Lay coded centroids (C, dim) out in blocks of 8, each (dim / 4, 8, 4); cells fill whole blocks, with zeros (128).

    Returns the flat bytes and the first block of every cell, (K + 1,).
    """
    dim = codes.shape[1]
    sizes = np.diff(cell_starts)
    block_starts = np.concatenate([[0], np.cumsum(-(-sizes // BLOCK))]).astype(np.int32)
    padded = np.full((int(block_starts[-1]) * BLOCK, dim), 128, dtype=np.uint8)
    cell_of = np.repeat(np.arange(len(sizes)), sizes)
    padded[np.arange(len(codes)) - cell_starts[cell_of] + block_starts[cell_of] * BLOCK] = codes
    blocks = padded.reshape(-1, BLOCK, dim // 4, 4).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(blocks).reshape(-1), block_starts


def taken(vectors: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return some rows, in ascending order, as an array in memory, without keeping the pages between them there."""
    out = np.empty((len(rows), vectors.shape[1]), dtype=vectors.dtype)
    for start in range(0, len(rows), TAKEN):
        out[start : start + TAKEN] = vectors[rows[start : start + TAKEN]]
        release(vectors)
    return out


def _kmeans(codes: Bytes, count: int, rng: np.random.Generator) -> Bytes:
    """Return centroids (count, dim) of byte codes."""
    start = signed(codes[rng.choice(len(codes), count, replace=False)])
    _native.improve_centroids(codes, start, ITERATIONS + 1 if count > 1 else 1)
    return unsigned(start)


def nearest(codes: Bytes, centroids: Bytes) -> tuple[NDArray[np.int32], Floats]:
    """Return the nearest centroid of each row of byte codes, and the squared distance to it.

    Examples
    --------
    >>> centroids = np.array([[128, 128, 128, 128], [138, 128, 128, 128]], np.uint8)
    >>> of, distance = nearest(np.array([[130, 128, 128, 131]], np.uint8), centroids)
    >>> of.tolist(), distance.tolist()
    ([0], [13.0])
    """
    of, distance = np.empty(len(codes), np.int32), np.empty(len(codes), np.float32)
    _native.nearest(np.ascontiguousarray(codes), signed(centroids), of, distance)
    return of, distance


def signed(codes: Bytes) -> NDArray[np.int8]:
    """Return codes less 128, none below −127."""
    less: NDArray[np.int8] = np.maximum(codes, 1).view(np.int8) ^ np.int8(-128)
    return less


def unsigned(codes: NDArray[np.int8]) -> Bytes:
    """Undo `signed`."""
    return (codes ^ np.int8(-128)).view(np.uint8)


def unblock(blocks: NDArray[np.uint8], cell_starts: NDArray[np.int32], cell_blocks: NDArray[np.int32], dim: int) -> Any:
    """Undo `block_layout`: return coded centroids (C, dim)."""
    rows = blocks.reshape(-1, dim // 4, BLOCK, 4).transpose(0, 2, 1, 3).reshape(-1, dim)
    sizes = np.diff(cell_starts)
    cell_of = np.repeat(np.arange(len(sizes)), sizes)
    return rows[np.arange(int(cell_starts[-1])) - cell_starts[cell_of] + cell_blocks[cell_of].astype(np.int64) * BLOCK]
