"""Residual codes: a token as the byte code of its centroid plus, for each coordinate, one of a few levels.

Levels are whole numbers in the units of the byte codes, best for the residuals of a sample (Lloyd-Max), in four tables:
a token whose residual is long takes one with wider levels. What is stored decodes to a row of bytes, as if the token
had been coded in 8 bits; native/byte_kernels.hpp says how the levels' numbers are packed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.storage import codec
from weft.storage.arrays import release

Bytes = NDArray[np.uint8]

TABLES = 4
CENTROID_BITS = 22
"""Of a token's label; the two above them are its table."""
GROUP = 32
SAMPLE = 1 << 16
"""Tokens that levels are chosen by."""
ROUNDS = 12
FINE = 4
"""Levels are chosen for residuals in quarters of a unit."""


class Levels(NamedTuple):
    """How residuals are rounded."""

    tables: NDArray[np.int8]
    """(TABLES, 16 or 4), rising"""
    limits: NDArray[np.float32]
    """(TABLES − 1,) norms of the residual, in units of the codes, at which the next table begins"""

    @property
    def bits(self) -> int:
        """Bits per coordinate."""
        return 4 if self.tables.shape[1] == 16 else 2


def packed_width(dim: int, bits: int) -> int:
    """Return the bytes of a token: groups of 32 coordinates are packed together."""
    return -(-dim // GROUP) * 4 * bits


def choose_levels(vectors: NDArray[Any], assigned: NDArray[np.int32], rows: Bytes, scale: float, bits: int) -> Levels:
    """Choose levels for vectors (T, dim) of which `rows[assigned]` are the coded centroids."""
    some = np.sort(np.random.default_rng(0).choice(len(vectors), min(len(vectors), SAMPLE), replace=False))
    residuals = _residuals(codec.taken(vectors, some).astype(np.float32), rows[assigned[some]], scale)
    norms = np.sqrt(np.einsum("td,td->t", residuals, residuals))
    limits = np.quantile(norms, np.arange(1, TABLES) / TABLES).astype(np.float32)
    table_of = np.searchsorted(limits, norms, side="right")
    tables = [_lloyd_max(residuals[table_of == t].reshape(-1), 1 << bits) for t in range(TABLES)]
    return Levels(np.array(tables, dtype=np.int8), limits)


def encode(
    vectors: codec.Floats, assigned: NDArray[np.int32], rows: Bytes, scale: float, levels: Levels
) -> tuple[Bytes, Bytes, Bytes]:
    """Code vectors (t, dim): packed numbers of levels, labels (t, 3), and the byte rows that they decode to."""
    residuals = _residuals(vectors, rows[assigned], scale)
    table_of = np.searchsorted(levels.limits, np.sqrt(np.einsum("td,td->t", residuals, residuals)), side="right")
    nearest = _nearest_level(levels.tables)
    steps = np.clip(np.rint(residuals * FINE), -256 * FINE, 256 * FINE).astype(np.int32) + 256 * FINE
    numbers = nearest[table_of[:, None], steps]
    labels = assigned.astype(np.uint32) | table_of.astype(np.uint32) << np.uint32(CENTROID_BITS)
    three = np.ascontiguousarray(labels.astype("<u4")[:, None]).view(np.uint8)[:, :3]
    packed = pack(numbers, levels.bits)
    return packed, np.ascontiguousarray(three), _add(rows[assigned], levels.tables, table_of, numbers)


def code(
    rotated: NDArray[Any],
    assigned: NDArray[np.int32],
    centroids: NDArray[np.uint8],
    scale: float,
    bits: int,
    codes: NDArray[np.uint8],
) -> tuple[NDArray[np.int8], NDArray[np.uint8], float]:
    """Fill `codes`; return the tables of levels, the tokens' labels, and the norm of the longest row they decode to."""
    levels = choose_levels(rotated, assigned, centroids, scale, bits)
    labels = np.empty((len(rotated), 3), dtype=np.uint8)
    norm = 0.0
    for start, part in zip(range(0, len(rotated), codec.CHUNK), codec.chunks(rotated), strict=True):
        rows = slice(start, start + len(part))
        codes[rows], labels[rows], decoded = encode(part, assigned[rows], centroids, scale, levels)
        norm = max(norm, longest(decoded))
        release(codes)
    return levels.tables, labels, norm


def decode(packed: Bytes, labels: Bytes, rows: Bytes, tables: NDArray[np.int8]) -> Bytes:
    """Return the byte rows (t, dim) behind residual codes."""
    bits = 4 if tables.shape[1] == 16 else 2
    wide = labels.astype(np.uint32) @ np.array([1, 1 << 8, 1 << 16], dtype=np.uint32)
    centroid = np.minimum(wide & np.uint32((1 << CENTROID_BITS) - 1), len(rows) - 1)
    return _add(rows[centroid], tables, wide >> np.uint32(CENTROID_BITS), unpack(packed, rows.shape[1], bits))


def pack(numbers: Bytes, bits: int) -> Bytes:
    """Pack numbers (t, dim) below 2^bits; see native/byte_kernels.hpp."""
    tokens, dim = numbers.shape
    padded = np.pad(numbers, ((0, 0), (0, -dim % GROUP)))
    parts = padded.reshape(tokens, padded.shape[1] // GROUP, 8 // bits, 4 * bits)
    shifts = (np.arange(8 // bits, dtype=np.uint8) * bits)[:, None]
    joined: Bytes = np.bitwise_or.reduce(parts << shifts, axis=2)
    return joined.reshape(tokens, packed_width(dim, bits))


def unpack(packed: Bytes, dim: int, bits: int) -> Bytes:
    """Undo `pack`."""
    parts = packed.reshape(len(packed), packed.shape[1] // (4 * bits), 1, 4 * bits)
    shifts = (np.arange(8 // bits, dtype=np.uint8) * bits)[:, None]
    numbers: Bytes = (parts >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(len(packed), packed.shape[1] * 8 // bits)[:, :dim]


def longest(rows: Bytes) -> float:
    """Return the norm of the longest byte row, in units of the codes."""
    centred = rows.astype(np.float32) - 128
    return float(np.sqrt(np.einsum("td,td->t", centred, centred).max(initial=0)))


def _residuals(vectors: codec.Floats, centroids: Bytes, scale: float) -> codec.Floats:
    residuals: codec.Floats = vectors * np.float32(scale) - (centroids.astype(np.float32) - 128)
    return residuals


def _add(centroids: Bytes, tables: NDArray[np.int8], table_of: NDArray[Any], numbers: Bytes) -> Bytes:
    levels = tables[table_of[:, None], numbers]
    rows: NDArray[np.int16] = np.clip(centroids.astype(np.int16) + levels, 0, 255)
    return rows.astype(np.uint8)


def _nearest_level(tables: NDArray[np.int8]) -> Bytes:
    """For every table and residual from −256 to 256 in quarters, the number of the nearest level."""
    values = np.arange(-256 * FINE, 256 * FINE + 1) / FINE
    nearest: NDArray[np.int64] = np.abs(values[None, :, None] - tables[:, None, :]).argmin(axis=2)
    return nearest.astype(np.uint8)


def _lloyd_max(residuals: codec.Floats, count: int) -> NDArray[np.int8]:
    """The `count` whole numbers that residuals lie nearest to, on the average of squares."""
    if len(residuals) == 0:
        return np.arange(-(count // 2), count - count // 2).astype(np.int8)
    values = np.arange(-256 * FINE, 256 * FINE + 1) / FINE
    found = np.clip(np.rint(residuals * FINE), -256 * FINE, 256 * FINE).astype(np.int64) + 256 * FINE
    weight = np.bincount(found, minlength=len(values)).astype(np.float64)
    levels = np.interp((np.arange(count) + 0.5) / count, np.cumsum(weight) / weight.sum(), values)
    for _ in range(ROUNDS):
        nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, values)
        mass = np.bincount(nearest, weight, count)
        means = np.bincount(nearest, weight * values, count) / np.maximum(mass, 1)
        levels = np.sort(np.where(mass > 0, means, levels))
    return np.clip(np.rint(levels), -127, 127).astype(np.int8)
