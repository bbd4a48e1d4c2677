"""The log of one shard's changes, in the store: its entries are durable, and everybody sees them in one order.

    logs/NAME/000000000017.log          documents with their vectors, or ids that were deleted

An entry is made by creating the object with the next number, which fails if it exists. So of two writers one succeeds;
the other reads what was written and tries again with the next number. There cannot be two histories, even if a writer
that was thought dead comes back. A reader applies entries in their order; it encodes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from weft.cluster.blobs import Blobs, NoSuchBlobError
from weft.errors import CorruptIndexError
from weft.storage.operations import Addition, Operation
from weft.types import Document, TokenVectors

_DIGEST = 32


class _Array(Struct):
    dtype: str
    shape: list[int]
    data: bytes


class _Added(Struct):
    ids: list[str]
    texts: list[str]
    metadata: list[dict[str, Any]]
    arrays: dict[str, _Array]


class _Entry(Struct):
    number: int
    operations: list[_Added | list[str]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Entry)
_COLUMNS = ("values", "offsets", "salience", "token_ids", "spans")
_FULL_LENGTHS = "full_lengths"


class ShardLog:
    """The changes of one shard.

    Parameters
    ----------
    blobs : Blobs
        Of the store.
    name : str
    """

    def __init__(self, blobs: Blobs, name: str) -> None:
        self._blobs, self.name = blobs, name

    def append(self, number: int, operations: Sequence[Operation]) -> bool:
        """Make the entry with a number, durably; False if it exists already."""
        body = _encoder.encode(_Entry(number, [_packed(operation) for operation in operations]))
        return self._blobs.create(self._key(number), hashlib.sha256(body).digest() + body)

    def read(self, number: int) -> list[Operation] | None:
        """Return an entry, None if there is none yet; `CorruptIndexError` if a byte is not as it was written."""
        try:
            data = self._blobs.read(self._key(number))
        except NoSuchBlobError:
            return None
        if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
            raise CorruptIndexError(f"{self._blobs.url}/{self._key(number)}: damaged: its checksum does not fit")
        entry = _decoder.decode(data[_DIGEST:])
        if entry.number != number:
            raise CorruptIndexError(f"{self._blobs.url}/{self._key(number)}: damaged: it is entry {entry.number}")
        return [_unpacked(operation) for operation in entry.operations]

    def since(self, number: int) -> Iterator[tuple[int, list[Operation]]]:
        """Yield the entries after a number."""
        while (entry := self.read(number + 1)) is not None:
            number += 1
            yield number, entry

    def _key(self, number: int) -> str:
        return f"logs/{self.name}/{number:012d}.log"


def _packed(operation: Operation) -> _Added | list[str]:
    if not isinstance(operation, Addition):
        return list(operation)
    documents = operation.documents
    arrays = {
        name: _Array(array.dtype.str, list(array.shape), np.ascontiguousarray(array).tobytes())
        for name in _COLUMNS
        if (array := getattr(operation.vectors, name)) is not None
    }
    if operation.full_lengths is not None:
        lengths = operation.full_lengths
        arrays[_FULL_LENGTHS] = _Array(lengths.dtype.str, list(lengths.shape), np.ascontiguousarray(lengths).tobytes())
    texts = [document.text for document in documents]
    return _Added([d.id for d in documents], texts, [dict(d.metadata) for d in documents], arrays)


def _unpacked(row: _Added | list[str]) -> Operation:
    if isinstance(row, list):
        return row
    arrays = {
        name: np.frombuffer(array.data, np.dtype(array.dtype)).reshape(array.shape).copy()
        for name, array in row.arrays.items()
    }
    documents = [Document(*given) for given in zip(row.ids, row.texts, row.metadata, strict=True)]
    full_lengths = arrays.pop(_FULL_LENGTHS, None)
    return Addition(documents, TokenVectors(**arrays), full_lengths)
