"""Residual codes: a token as the byte code of its centroid plus, for each coordinate, one of a few levels.

Levels are whole numbers in the units of the byte codes, best for the residuals of a sample (Lloyd-Max), in four tables:
a token whose residual is long takes one with wider levels. What is stored decodes to a row of bytes, as if the token
had been coded in 8 bits; native/byte_kernels.hpp says how the levels' numbers are packed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.storage.arrays import Arrays, Streamed, release, scratch_array, write_arrays
from weft.storage.codecs import clustering
from weft.storage.codecs.base import Codebook, Codec, Columns, Made
from weft.storage.codecs.clustering import Floats

Bytes = NDArray[np.uint8]

TABLES = _native.TABLES
CENTROID_BITS = _native.CENTROID_BITS
"""Bits of a token's label that name its centroid; the two above them name its table."""
GROUP = _native.GROUP
SAMPLE = 1 << 16
"""Levels are chosen from a sample of this many tokens."""
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


def choose_levels(residuals: Floats, bits: int) -> Levels:
    """Choose levels for residuals (t, dim), in the units of the codes."""
    norms = np.sqrt(np.einsum("td,td->t", residuals, residuals))
    limits = np.quantile(norms, np.arange(1, TABLES) / TABLES).astype(np.float32)
    table_of = np.searchsorted(limits, norms, side="right")
    tables = [_lloyd_max(residuals[table_of == t].reshape(-1), 1 << bits) for t in range(TABLES)]
    return Levels(np.array(tables, dtype=np.int8), limits)


def encode(
    vectors: Floats, assigned: NDArray[np.int32], rows: Bytes, scale: float, levels: Levels
) -> tuple[Bytes, Bytes, Bytes]:
    """Code vectors (t, dim): packed numbers of levels, labels (t, 3), and the byte rows that they decode to."""
    residuals = residuals_of(vectors, rows[assigned], scale)
    table_of = np.searchsorted(levels.limits, np.sqrt(np.einsum("td,td->t", residuals, residuals)), side="right")
    nearest = _nearest_level(levels.tables)
    steps = np.clip(np.rint(residuals * FINE), -256 * FINE, 256 * FINE).astype(np.int32) + 256 * FINE
    numbers = nearest[table_of[:, None], steps]
    labels = assigned.astype(np.uint32) | table_of.astype(np.uint32) << np.uint32(CENTROID_BITS)
    three = np.ascontiguousarray(labels.astype("<u4")[:, None]).view(np.uint8)[:, :3]
    packed = pack(numbers, levels.bits)
    return packed, np.ascontiguousarray(three), _add(rows[assigned], levels.tables, table_of, numbers)


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


def residuals_of(vectors: Floats, centroids: Bytes, scale: float) -> Floats:
    """Return what coded centroids leave of vectors, in the units of the codes."""
    residuals: Floats = vectors * np.float32(scale) - (centroids.astype(np.float32) - 128)
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


def _lloyd_max(residuals: Floats, count: int) -> NDArray[np.int8]:
    """The `count` whole numbers with the least mean squared distance to residuals."""
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


class ResidualCodec(Codec):
    """Residual codes of 4 or 2 bits."""

    required: ClassVar[tuple[str, ...]] = (
        "cell_codes", "cell_starts", "centroid_rows", "levels", "list_starts", "lists", "rotation",
    )  # fmt: skip
    per_token: ClassVar[tuple[str, ...]] = ("codes", "token_centroids")

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.tokens_per_centroid = 64 if bits == 2 else clustering.TOKENS_PER_CENTROID

    def matches(self, stored: Arrays) -> bool:
        return "codes" in stored and "levels" in stored and stored["levels"].shape[1:] == (1 << self.bits,)

    def sound(self, stored: Arrays, tokens: int, size: int) -> bool:
        return (
            stored["codes"].shape == (tokens, packed_width(size, self.bits))
            and bool(np.isfinite(stored.info["norm"]))
            and stored.info["norm"] > 0
            and stored["token_centroids"].shape == (tokens, 3)
            and stored["levels"].shape[0] == TABLES
            and stored["centroid_rows"].shape[1:] == (size,)
            and (len(stored["centroid_rows"]) > 0 or tokens == 0)
        )

    def engine(self, stored: Arrays, offsets: NDArray[np.int64]) -> _native.Engine:
        # Centroids are stored once, in rows; probing wants them in blocks.
        rows, starts = stored["centroid_rows"], stored["cell_starts"]
        blocks, cell_blocks = clustering.block_layout(rows, starts)
        probed: Any = [stored["cell_codes"], starts, cell_blocks, blocks, stored["list_starts"], stored["lists"]]
        more = self.beside(stored, (*self.optional, "centroid_rows", "levels", "token_centroids"))
        more["norm"] = float(stored.info["norm"])
        return _native.Engine(offsets, stored["codes"], float(stored.info["scale"]), *probed, **more)

    def byte_rows(self, stored: Arrays, rows: NDArray[np.int64]) -> Bytes:
        return decode(stored["codes"][rows], stored["token_centroids"][rows], stored["centroid_rows"], stored["levels"])

    def codebook(self, stored: Arrays, trained: int) -> Codebook | None:
        if "spread" not in stored or "limits" not in stored:
            return None
        return Codebook(
            stored["rotation"],
            float(stored.info["scale"]),
            stored["cell_codes"],
            stored["cell_starts"],
            stored["centroid_rows"],
            stored["spread"],
            trained,
        )

    def listed(self, stored: Arrays) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return clustering.from_steps(stored["list_starts"], stored["lists"])

    def list_weights(self, stored: Arrays) -> Floats | None:
        weights = super().list_weights(stored)
        return None if weights is None else weights[stored["lists"] != 0]

    def write(self, path: Path, columns: Columns, info: dict[str, Any], made: Made) -> None:
        book = made.codebook
        starts, lists = made.lists()
        starts, steps = clustering.listed_steps(starts, lists)
        weights = made.weights()
        if weights is not None:
            spread = np.zeros(len(steps), np.uint8)
            spread[steps != 0] = weights.listed  # a step of 0 lists no document
            columns = columns | weights._replace(listed=spread).arrays()
            info = info | {"weight_unit": weights.unit}
        levels = self._levels(made)
        labels = np.empty((made.tokens, 3), dtype=np.uint8)
        norm = max(longest(book.centroids), longest(book.cells))
        if made.donor is not None:
            norm = max(norm, float(made.donor.info["norm"]))
        shape = made.tokens, packed_width(made.shape[1], self.bits)
        with scratch_array(path.parent, np.uint8, shape) as packed:
            for rows, part, source in made.parts(made.incoming.rotated(book.matrix)):
                if source is not None and made.donor is not None:
                    packed[rows] = made.donor.checked_rows("codes", source)
                    labels[rows] = made.donor.checked_rows("token_centroids", source)
                else:
                    coded = encode(part, made.assigned[rows], book.centroids, book.scale, levels)
                    packed[rows], labels[rows], decoded = coded
                    norm = max(norm, longest(decoded))
                release(packed)
            columns = columns | {
                "cell_codes": book.cells,
                "cell_starts": book.cell_starts.astype("<i4"),
                "rotation": book.matrix.astype("<f4"),
                "spread": book.spread.astype("<f4"),
                "centroid_rows": book.centroids,
                "list_starts": starts.astype("<i8"),
                "lists": steps.astype("<u2"),
                "levels": levels.tables,
                "limits": levels.limits.astype("<f4"),
                "token_centroids": labels,
                "codes": Streamed(packed.dtype, packed.shape, clustering.in_passing(packed)),
            }
            write_arrays(path, columns, {**info, "scale": book.scale, "trained": book.trained, "norm": norm})

    def _levels(self, made: Made) -> Levels:
        """Choose levels by a sample of the tokens, or take the donor's."""
        if made.donor is not None:
            for name in ("levels", "limits"):
                made.donor.verify(name)
            return Levels(made.donor["levels"], made.donor["limits"])
        book = made.codebook
        some = np.sort(np.random.default_rng(0).choice(made.tokens, min(made.tokens, SAMPLE), replace=False))
        parts = [np.zeros((0, made.shape[1]), np.float32)]
        start = 0
        for part in made.incoming.rotated(book.matrix):
            mine = some[(some >= start) & (some < start + len(part))]
            parts.append(residuals_of(part[mine - start], book.centroids[made.assigned[mine]], book.scale))
            start += len(part)
        return choose_levels(np.concatenate(parts), self.bits)
