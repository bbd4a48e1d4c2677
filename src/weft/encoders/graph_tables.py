"""Embedding tables inside an ONNX file, memory-mapped in place: no copy, and no onnx package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weft.errors import CheckpointError

_GRAPH, _INITIALIZER = 7, 5  # fields of ModelProto and GraphProto
_DIMS, _TYPE, _NAME, _RAW = 1, 2, 8, 9  # fields of TensorProto
_TYPES = {1: "<f4", 3: "i1"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Table:
    """A table of vectors (rows, width): single precision, or bytes with one scale a row."""

    def __init__(self, values: NDArray[np.float32] | NDArray[np.int8], scale: NDArray[np.float32] | None) -> None:
        self._values, self._scale = values, scale
        self.shape = values.shape

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return rows in single precision, shape (T, width)."""
        if self._scale is None:
            return self._values[ids].astype(np.float32)
        return self._values[ids] * self._scale[ids]


def embedding_table(path: Path, name: str) -> Table:
    """Return the table whose name ends this way in a graph that `weft.encoders.export` wrote."""
    data = np.memmap(path, np.uint8, "r")
    found: dict[str, NDArray[np.float32] | NDArray[np.int8]] = {}
    try:
        for tensor in _tensors(data):
            label, array = tensor
            for suffix in ("", "_bytes", "_scale"):
                if label.endswith(name + suffix):
                    found[suffix] = array
    except (IndexError, ValueError) as error:
        raise CheckpointError(f"{path} is not a whole ONNX file: {error}") from None
    values = found.get("_bytes", found.get(""))
    if values is None or values.ndim != 2 or ("_bytes" in found) != ("_scale" in found):
        raise CheckpointError(f"{path} has no table {name}, which a query tower reads")
    scale = found.get("_scale")
    return Table(values, None if scale is None else np.array(scale, np.float32))


def _tensors(data: NDArray[np.uint8]) -> Iterator[tuple[str, NDArray[np.float32] | NDArray[np.int8]]]:
    for field, start, stop in _fields(data, 0, len(data)):
        if field != _GRAPH:
            continue
        for inner, first, last in _fields(data, start, stop):
            if inner == _INITIALIZER:
                tensor = _tensor(data, first, last)
                if tensor is not None:
                    yield tensor


def _tensor(
    data: NDArray[np.uint8], start: int, stop: int
) -> tuple[str, NDArray[np.float32] | NDArray[np.int8]] | None:
    dims: list[int] = []
    name, kind, raw = "", 0, None
    for field, first, last in _fields(data, start, stop):
        if field == _DIMS:
            while first < last:  # packed, or one at a time
                number, first = _varint(data, first)
                dims.append(number)
        elif field == _TYPE:
            kind = _varint(data, first)[0]
        elif field == _NAME:
            name = bytes(data[first:last]).decode("utf-8")
        elif field == _RAW:
            raw = data[first:last]
    if raw is None or kind not in _TYPES:
        return None
    return name, raw.view(_TYPES[kind]).reshape(dims)


def _fields(data: NDArray[np.uint8], at: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of a protobuf message: number, and where the value begins and ends."""
    while at < stop:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _BYTES:
            length, at = _varint(data, at)
            end = at + length
        elif kind == _VARINT:
            end = _varint(data, at)[1]
        elif kind in (_FIXED32, _FIXED64):
            end = at + (4 if kind == _FIXED32 else 8)
        else:
            raise ValueError(f"unknown field at byte {at}")
        if end > stop:
            raise ValueError(f"cut off at byte {stop}")
        yield key >> 3, at, end
        at = end


def _varint(data: NDArray[np.uint8], at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = int(data[at])
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
