"""Documents of a damaged segment that are themselves sound, on their way into a new one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import CorruptIndexError
from weft.storage.codecs.base import to_floats
from weft.storage.codecs.clustering import Floats, encode
from weft.storage.segments import Segment, in_parts
from weft.storage.segments.coded import CodedSegment
from weft.storage.segments.pieces import Piece
from weft.storage.validation import check_rotation

_SHARED = ("rotation", "centroid_rows", "levels")
"""What all tokens of a coded segment are decoded with; cells and lists are only for finding them."""


class Salvage:
    """What can be read of a segment; of a coded one, from its codes alone if it cannot be searched any more."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.searchable = True
        if isinstance(segment, CodedSegment):
            try:
                segment.warm()
            except CorruptIndexError:
                self.searchable = False
                _ = self._rotation  # without it all is lost

    def values(self, ordinals: NDArray[np.int64]) -> NDArray[Any]:
        """Return the vectors of some documents, checked."""
        segment = self.segment
        if self.searchable or not isinstance(segment, CodedSegment):
            return segment.select(ordinals).values
        stored = segment.arrays
        for name in segment.codec.per_token:
            stored.verify_rows(name, segment.offsets[ordinals], segment.offsets[ordinals + 1])
        codes = segment.codec.byte_rows(stored, segment.token_rows(ordinals))
        return (to_floats(codes, segment.scale) @ self._rotation.T).astype(segment.dtype)

    @cached_property
    def _rotation(self) -> Floats:
        assert isinstance(self.segment, CodedSegment)
        stored = self.segment.arrays
        for name in _SHARED:
            if name in stored:
                stored.verify(name)
        check_rotation(stored)
        return stored["rotation"]

    def readable(self, ordinal: int) -> bool:
        """Tell whether all of one document can be read."""
        one = np.array([ordinal])
        try:
            self.values(one)
            for name in self.segment.columns:
                self.segment.column(name, one)
            self.segment.apart(one)
        except CorruptIndexError:
            return False
        return True


class Salvaged(Piece):
    """Documents that can be read. Nothing else of their segment is relied on, nor its codebook."""

    def __init__(self, salvage: Salvage, ordinals: NDArray[np.int64]) -> None:
        segment = salvage.segment
        self._salvage, self._source, self.ordinals = salvage, segment, ordinals
        self.dim, self.dtype, self.columns = segment.dim, segment.dtype, segment.columns
        self.lengths = segment.offsets[ordinals + 1] - segment.offsets[ordinals]
        self.full_lengths = self._full_lengths(segment)

    def _full_lengths(self, segment: Segment) -> NDArray[np.int64] | None:
        try:
            return segment.full_lengths(self.ordinals)
        except CorruptIndexError:
            return None  # top-p then counts what is there

    def _parts(self) -> Iterator[NDArray[np.int64]]:
        return in_parts(self._source, self.ordinals)

    def values(self) -> Iterator[NDArray[Any]]:
        return (self._salvage.values(some) for some in self._parts())

    def rotated(self, matrix: Floats) -> Iterator[Floats]:
        return (values.astype(np.float32) @ matrix for values in self.values())

    def coded(self, matrix: Floats, scale: float) -> Iterator[NDArray[np.uint8]]:
        return (encode(turned, scale) for turned in self.rotated(matrix))

    def column(self, name: str) -> Iterator[NDArray[Any]]:
        return (self._source.column(name, some) for some in self._parts())

    def apart(self) -> NDArray[np.int32]:
        return self._source.apart(self.ordinals)
