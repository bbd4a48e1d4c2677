"""Sketches: half a byte for every four coordinates of a token, enough to tell which documents deserve a full score.

The difference of a token from its cell is cut into sub-vectors of four coordinates, and for each the nearest of 16
entries of its codebook is kept (product quantisation). native/byte_kernels.hpp says how sketches are scored.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.storage.arrays import Streamed
from weft.storage.codecs.base import Columns, Made
from weft.storage.codecs.clustering import Bytes, taken

ENTRIES = _native.ENTRIES
SUB_VECTOR = _native.SUB_VECTOR
MOST_CELLS = 1 << 16
"""A sketch names its cell in two bytes."""
SAMPLE = 4096
"""Tokens that codebooks are trained on."""
ROUNDS = 10


def width(dim: int) -> int:
    """Return the bytes of a token's sketch."""
    return _native.CELL_BYTES + -(-dim // (2 * SUB_VECTOR))


def train(codes: Bytes, of_cells: NDArray[np.int64], cells: Bytes) -> NDArray[np.int8]:
    """Return codebooks (dim / 4, 16, 4) for what cells leave of byte codes (n, dim), n not 0."""
    some = np.random.default_rng(0).integers(0, len(codes), ENTRIES)
    residuals = codes[some].astype(np.int16) - cells[of_cells[some]]
    entries = np.clip(residuals, -127, 127).astype(np.int8).reshape(ENTRIES, -1, SUB_VECTOR)
    books: NDArray[np.int8] = entries.transpose(1, 0, 2).copy()
    _native.improve_codebooks(codes, cells, of_cells.astype(np.int32), books, ROUNDS)
    return books


def encode(codes: Bytes, of_cells: NDArray[np.int64], cells: Bytes, codebooks: NDArray[np.int8]) -> Bytes:
    """Return sketches (t, width): the cell in two bytes, the low one first, then a byte for two sub-vectors.

    The number of the first of the two is in the byte's low half.
    """
    out = np.empty((len(codes), width(codes.shape[1])), dtype=np.uint8)
    _native.sketches(np.ascontiguousarray(codes), cells, of_cells.astype(np.int32), codebooks, out)
    return out


def columns(made: Made) -> Columns:
    """Return the arrays of the tokens' sketches, made while they are written; a donor's are copied."""
    book = made.codebook
    if made.donor is not None:
        made.donor.verify("codebooks")
        codebooks = made.donor["codebooks"]
    else:
        some = np.sort(np.random.default_rng(0).choice(made.tokens, min(made.tokens, SAMPLE), replace=False))
        codebooks = train(taken(made.incoming.codes, some), book.cells_of(made.assigned[some]), book.cells)

    def sketches() -> Iterator[NDArray[np.uint8]]:
        for rows, codes, source in made.parts(made.incoming.coded()):
            if source is not None and made.donor is not None:
                yield made.donor.checked_rows("sketches", source)
                continue
            of_cells = book.cells_of(made.assigned[rows])
            yield encode(codes, of_cells, book.cells, codebooks)

    shape = (made.tokens, width(made.shape[1]))
    return {"codebooks": codebooks, "sketches": Streamed(np.dtype("u1"), shape, sketches())}
