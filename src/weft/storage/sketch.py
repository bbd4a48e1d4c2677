"""Sketches: half a byte for every four coordinates of a token, enough to tell which documents deserve a full score.

What a token's cell leaves of it is cut into sub-vectors of four coordinates, and of each the nearest of 16 entries of
its codebook is kept (product quantisation). native/byte_kernels.hpp says how sketches are scored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.storage.arrays import Streamed
from weft.storage.codec import CHUNK, Clusters, Floats, chunks, taken

ENTRIES = 16
SUB_VECTOR = 4
SAMPLE = 20_000
"""Tokens that codebooks are trained on."""
ROUNDS = 10


def width(dim: int) -> int:
    """Return the bytes of a token's sketch."""
    return 2 + -(-dim // (2 * SUB_VECTOR))


def train(residuals: Floats) -> NDArray[np.int8]:
    """Return codebooks (dim / 4, 16, 4) for residuals (n, dim), both in the units of the codes; n is not 0."""
    rng = np.random.default_rng(0)
    parts = residuals.reshape(len(residuals), -1, SUB_VECTOR).transpose(1, 0, 2)  # (dim / 4, n, 4)
    books = parts[:, rng.integers(0, len(residuals), ENTRIES)].copy()
    for part, book in zip(parts, books, strict=True):
        for _ in range(ROUNDS):
            nearest = _nearest(part, book)
            counts = np.bincount(nearest, minlength=ENTRIES)
            sums = np.stack([np.bincount(nearest, part[:, x], ENTRIES) for x in range(SUB_VECTOR)], axis=1)
            book[counts > 0] = (sums / np.maximum(counts, 1)[:, None])[counts > 0]
    return np.clip(np.rint(books), -127, 127).astype(np.int8)


def encode(residuals: Floats, cells: NDArray[np.int64], codebooks: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Return sketches (t, width): the cell in two bytes, the low one first, then a byte for two sub-vectors.

    The number of the first of the two is in the byte's low half.
    """
    numbers = np.zeros((len(residuals), 2 * (width(residuals.shape[1]) - 2)), dtype=np.uint8)
    for s, book in enumerate(codebooks.astype(np.float32)):
        numbers[:, s] = _nearest(residuals[:, SUB_VECTOR * s : SUB_VECTOR * (s + 1)], book)
    places = np.ascontiguousarray(cells.astype("<u2")[:, None]).view(np.uint8)
    return np.concatenate([places, numbers[:, ::2] | numbers[:, 1::2] << np.uint8(4)], axis=1)


def arrays(
    rotated: NDArray[Any], clusters: Clusters, cells: NDArray[np.uint8], scale: float
) -> dict[str, NDArray[Any] | Streamed]:
    """Return the arrays of the tokens' sketches, made while they are written."""

    def residuals(part: Floats, of_cells: NDArray[np.int64]) -> Floats:
        return part * np.float32(scale) - (cells[of_cells].astype(np.float32) - 128)

    tokens, dim = rotated.shape
    rng = np.random.default_rng(0)
    some = np.sort(rng.choice(tokens, min(tokens, SAMPLE), replace=False))
    codebooks = train(residuals(taken(rotated, some).astype(np.float32), clusters.cells_of(some)))

    def sketches() -> Iterator[NDArray[np.uint8]]:
        for start, part in zip(range(0, tokens, CHUNK), chunks(rotated), strict=True):
            of_cells = clusters.cells_of(slice(start, start + len(part)))
            yield encode(residuals(part, of_cells), of_cells, codebooks)

    return {"codebooks": codebooks, "sketches": Streamed(np.dtype("u1"), (tokens, width(dim)), sketches())}


def _nearest(vectors: Floats, entries: Floats) -> NDArray[np.int64]:
    scores = vectors @ entries.T
    scores -= np.einsum("ex,ex->e", entries, entries) / 2
    nearest: NDArray[np.int64] = scores.argmax(axis=1)
    return nearest
