"""Checksums of what the catalogue holds: SQLite itself has none, and would return a flipped byte as it is."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

PER_COMMIT = ("generation", "checksum", "tombstones")
"""Settings that every commit changes."""
_OF_ID = (1 << 15) - 1


def row_sum(id: object, text: object, metadata: object) -> int:  # noqa: A002
    """Return the checksum of a document's row: 32 bits of everything, and above them 15 of the id alone.

    Examples
    --------
    >>> checks_id(row_sum("a", "text", "{}"), "a"), checks_id(row_sum("a", "text", "{}"), "b")
    (True, False)
    """
    name = zlib.crc32(str(id).encode("utf-8", "surrogatepass"))
    rest = f"{len(str(text))} {text}{metadata}".encode("utf-8", "surrogatepass")
    return (name & _OF_ID) << 32 | zlib.crc32(rest, name)


def checks_id(stored: object, id: object) -> bool:  # noqa: A002
    """Tell whether an id is the one that a row's checksum was made for; a row without one passes."""
    if not isinstance(id, str):
        return False
    return stored is None or (
        isinstance(stored, int) and stored >> 32 == zlib.crc32(id.encode("utf-8", "replace")) & _OF_ID
    )


def segment_sum(file: object, documents: object, tokens: object, first: object) -> int:
    """Return the checksum of a segment's row."""
    return zlib.crc32(f"{file} {documents} {tokens} {first}".encode("utf-8", "surrogatepass"))


def settings_sum(stored: Mapping[str, Any]) -> int:
    """Return the checksum of the settings as they are stored, but for those that every commit changes."""
    listed = sorted(((key, value) for key, value in stored.items() if key not in PER_COMMIT), key=repr)
    return zlib.crc32(repr(listed).encode("utf-8", "surrogatepass"))


def tombstones_sum(numbers: Iterable[int]) -> int:
    """Return a checksum of a set of documents' numbers: sums of parts add up, modulo 2**64, to that of the whole.

    Examples
    --------
    >>> (tombstones_sum([1, 7]) + tombstones_sum([9])) % 2**64 == tombstones_sum([9, 7, 1])
    True
    """
    mixed = np.fromiter(numbers, np.int64).view(np.uint64)
    for _ in range(2):  # plain sums would be the same after 3, 5 became 4, 4
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    return int((mixed ^ (mixed >> np.uint64(29))).sum(dtype=np.uint64))
