"""Sketches: half a byte for every four coordinates of a token, enough to tell which documents deserve a full score.

What a token's cell leaves of it is cut into sub-vectors of four coordinates, and of each the nearest of 16 entries of
its codebook is kept (product quantisation). native/byte_kernels.hpp says how sketches are scored.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.storage.arrays import Streamed
from weft.storage.codecs.base import Columns, Made
from weft.storage.codecs.clustering import Floats

ENTRIES = _native.ENTRIES
SUB_VECTOR = _native.SUB_VECTOR
MOST_CELLS = 1 << 16
"""A sketch names its cell in two bytes."""
SAMPLE = 20_000
"""Tokens that codebooks are trained on."""
ROUNDS = 10


def width(dim: int) -> int:
    """Return the bytes of a token's sketch."""
    return _native.CELL_BYTES + -(-dim // (2 * SUB_VECTOR))


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


def columns(made: Made) -> Columns:
    """Return the arrays of the tokens' sketches, made while they are written; a donor's are copied."""
    book = made.codebook

    def residuals(codes: NDArray[np.uint8], of_cells: NDArray[np.int64]) -> Floats:
        return codes.astype(np.float32) - book.cells[of_cells]

    if made.donor is not None:
        made.donor.verify("codebooks")
        codebooks = made.donor["codebooks"]
    else:
        some = np.sort(np.random.default_rng(0).choice(made.tokens, min(made.tokens, SAMPLE), replace=False))
        parts, start = [], 0
        for codes in made.incoming.coded(book.matrix, book.scale):
            mine = some[(some >= start) & (some < start + len(codes))]
            parts.append(residuals(codes[mine - start], book.cells_of(made.assigned[mine])))
            start += len(codes)
        codebooks = train(np.concatenate(parts))

    def sketches() -> Iterator[NDArray[np.uint8]]:
        for rows, codes, source in made.parts(made.incoming.coded(book.matrix, book.scale)):
            if source is not None and made.donor is not None:
                yield made.donor.checked_rows("sketches", source)
                continue
            of_cells = book.cells_of(made.assigned[rows])
            yield encode(residuals(codes, of_cells), of_cells, codebooks)

    shape = (made.tokens, width(made.shape[1]))
    return {"codebooks": codebooks, "sketches": Streamed(np.dtype("u1"), shape, sketches())}


def _nearest(vectors: Floats, entries: Floats) -> NDArray[np.int64]:
    scores = vectors @ entries.T
    scores -= np.einsum("ex,ex->e", entries, entries) / 2
    nearest: NDArray[np.int64] = scores.argmax(axis=1)
    return nearest
