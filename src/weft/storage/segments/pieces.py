"""Documents on their way into a segment: vectors as they were given, or documents of older segments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.storage.arrays import release
from weft.storage.codecs.clustering import CHUNK, Floats, encode
from weft.storage.pruning import kept
from weft.storage.segments.base import Segment, in_parts
from weft.storage.segments.reading import pack_salience, pack_spans
from weft.types import TokenVectors

Bytes = NDArray[np.uint8]


class Piece(ABC):
    """Documents of one origin. All iterators cut their tokens into the same parts."""

    dim: int
    dtype: np.dtype[Any]
    lengths: NDArray[np.int64]
    columns: tuple[str, ...]
    segment: Segment | None = None
    """Where they come from"""
    ordinals: NDArray[np.int64]
    """Where they stand there"""
    full_lengths: NDArray[np.int64] | None = None
    """How many tokens documents had before they were pruned"""

    @abstractmethod
    def values(self) -> Iterator[NDArray[Any]]:
        """Yield the vectors, (t, dim)."""

    @abstractmethod
    def rotated(self, matrix: Floats) -> Iterator[Floats]:
        """Yield the vectors in the space of codes with this rotation, (t, size)."""

    @abstractmethod
    def coded(self, matrix: Floats, scale: float) -> Iterator[Bytes]:
        """Yield byte codes, (t, size)."""

    @abstractmethod
    def column(self, name: str) -> Iterator[NDArray[Any]]:
        """Yield what `Segment.column` has of this name."""

    @abstractmethod
    def apart(self) -> NDArray[np.int32]:
        """Return the spans that are listed apart, (E, 3)."""


class Given(Piece):
    """Vectors as they were given; `reading` keeps spans and, unless `weighs`, saliences for reading alone.

    With `find_by`, documents are found by this part of their tokens, the most salient ones.
    """

    def __init__(
        self,
        vectors: TokenVectors,
        *,
        reading: bool = True,
        weighs: bool = True,
        find_by: float | None = None,
        full_lengths: NDArray[np.int64] | None = None,
    ) -> None:
        self.full_lengths = full_lengths
        self.dim, self.dtype, self.lengths = vectors.dim, vectors.values.dtype, vectors.lengths
        self.ordinals = np.arange(len(vectors))
        self._values = vectors.values
        self._columns: dict[str, NDArray[Any]] = {}
        self._apart = np.zeros((0, 3), np.int32)
        if vectors.token_ids is not None:
            self._columns["token_ids"] = vectors.token_ids
        if vectors.salience is not None and weighs:
            self._columns["salience"] = vectors.salience
        if vectors.spans is not None and reading:
            packed = pack_spans(vectors.spans, vectors.offsets)
            self._columns |= {"span_steps": packed.steps, "span_lengths": packed.lengths}
            self._apart = packed.listed
        if vectors.salience is not None and reading and not weighs:
            self._columns["shades"] = pack_salience(vectors.salience)
        if find_by is not None:
            self._columns["finds"] = kept(vectors, find_by, parameter="find_by").astype(np.uint8)
        self.columns = tuple(self._columns)

    def values(self) -> Iterator[NDArray[Any]]:
        return (self._values[start : start + CHUNK] for start in range(0, len(self._values), CHUNK))

    def rotated(self, matrix: Floats) -> Iterator[Floats]:
        return (part.astype(np.float32) @ matrix for part in self.values())

    def coded(self, matrix: Floats, scale: float) -> Iterator[Bytes]:
        return (encode(part, scale) for part in self.rotated(matrix))

    def column(self, name: str) -> Iterator[NDArray[Any]]:
        yield self._columns[name]

    def apart(self) -> NDArray[np.int32]:
        return self._apart


class Kept(Piece):
    """Documents of an older segment that still count."""

    def __init__(self, segment: Segment, ordinals: NDArray[np.int64]) -> None:
        self.segment: Segment = segment
        self.ordinals = ordinals
        self.dim, self.dtype, self.columns = segment.dim, segment.dtype, segment.columns
        self.lengths = segment.offsets[ordinals + 1] - segment.offsets[ordinals]
        self.full_lengths = segment.full_lengths(ordinals)

    def _parts(self) -> Iterator[NDArray[np.int64]]:
        for some in in_parts(self.segment, self.ordinals):
            yield some
            self.segment.release(some)

    def values(self) -> Iterator[NDArray[Any]]:
        return (self.segment.select(some).values for some in self._parts())

    def rotated(self, matrix: Floats) -> Iterator[Floats]:
        return (self.segment.rotated(some, matrix) for some in self._parts())

    def coded(self, matrix: Floats, scale: float) -> Iterator[Bytes]:
        return (self.segment.byte_codes(some, matrix, scale) for some in self._parts())

    def column(self, name: str) -> Iterator[NDArray[Any]]:
        return (self.segment.column(name, some) for some in self._parts())

    def apart(self) -> NDArray[np.int32]:
        return self.segment.apart(self.ordinals)


class Joined:
    """Pieces of one kind, end to end: what a segment is written from."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = list(pieces)
        self.lengths = np.concatenate([np.zeros(0, np.int64), *(piece.lengths for piece in pieces)])
        self.offsets: NDArray[np.int64] = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    @property
    def n_tokens(self) -> int:
        """Tokens of all pieces."""
        return int(self.offsets[-1])

    def full_lengths(self) -> NDArray[np.int64] | None:
        """Return how many tokens documents had before they were pruned; None where none were."""
        if all(piece.full_lengths is None for piece in self.pieces):
            return None
        every = [piece.lengths if piece.full_lengths is None else piece.full_lengths for piece in self.pieces]
        return np.concatenate(every)

    def starts(self) -> list[int]:
        """Return the first token of each piece."""
        ends = np.cumsum([0] + [int(piece.lengths.sum()) for piece in self.pieces])
        return [int(start) for start in ends[:-1]]

    def values(self) -> Iterator[NDArray[Any]]:
        """Yield all vectors."""
        return (part for piece in self.pieces for part in piece.values())

    def rotated(self, matrix: Floats) -> Iterator[Floats]:
        """Yield all vectors in the space of the codes."""
        return (part for piece in self.pieces for part in piece.rotated(matrix))

    def coded(self, matrix: Floats, scale: float) -> Iterator[Bytes]:
        """Yield all byte codes."""
        return (part for piece in self.pieces for part in piece.coded(matrix, scale))

    def column(self, name: str) -> Iterator[NDArray[Any]]:
        """Yield a column of all pieces."""
        return (part for piece in self.pieces for part in piece.column(name))

    def apart(self) -> NDArray[np.int32]:
        """Return the spans that are listed apart, tokens counted through all pieces."""
        found = [np.zeros((0, 3), np.int32)]
        for piece, start in zip(self.pieces, self.starts(), strict=True):
            found.append(piece.apart() + np.array([start, 0, 0], np.int32))
        return np.concatenate(found)


class Coded:
    """Pieces whose byte codes are computed once and kept: what a coded segment is written from."""

    def __init__(self, joined: Joined, codes: Bytes) -> None:
        self.joined = joined
        self.offsets = joined.offsets
        self.codes = codes
        """(tokens, size), on disk"""
        self._ends: list[int] = []

    def fill(self, matrix: Floats, scale: float) -> None:
        """Compute all codes."""
        self._ends, start = [], 0
        for part in self.joined.coded(matrix, scale):
            self.codes[start : start + len(part)] = part
            start += len(part)
            self._ends.append(start)
            release(self.codes)

    def rotated(self, matrix: Floats) -> Iterator[Floats]:
        """Yield all vectors in the space of the codes."""
        return self.joined.rotated(matrix)

    def coded(self) -> Iterator[Bytes]:
        """Yield all codes, in parts of one piece each."""
        for start, end in pairwise([0, *self._ends]):
            yield self.codes[start:end]
            release(self.codes)
