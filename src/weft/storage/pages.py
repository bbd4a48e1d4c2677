"""Rows of a SQLite database, read page by page, even if the trees that lead to them are damaged.

SQLite cannot see what lies behind a damaged page. Here every page is read by itself, so only what stands on damaged
pages is lost. Nothing found this way is trusted without a checksum of its own. The layout is that of
https://www.sqlite.org/fileformat.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

Value = int | float | str | bytes | None

_HEADER = 100
"""Bytes of the file's header, before the first page's own."""
_USUAL_SIZE = 4096
_SIZES = [1 << n for n in range(9, 17)]
_TABLE_LEAF, _INDEX_LEAF, _INDEX_INSIDE = 0x0D, 0x0A, 0x02
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""Bytes of integers by their serial types."""


class Row(NamedTuple):
    """What a cell of a tree holds."""

    page: int
    rowid: int | None
    """Of a table's row; None for an entry of an index, or of a table without row ids"""
    values: list[Value]


class Pages:
    """The pages of a database file; a log beside it is not looked at."""

    def __init__(self, file: Path) -> None:
        self._data = file.read_bytes()
        (size,) = struct.unpack_from(">H", self._data.ljust(_HEADER, b"\0"), 16)
        size = 65536 if size == 1 else size
        self._size = size if size in _SIZES else _USUAL_SIZE
        self._count = len(self._data) // self._size

    def rows(self) -> Iterator[Row]:
        """Yield every row that can be made out, those of pages that SQLite has given up left out."""
        free = self._free()
        for number in range(1, self._count + 1):
            if number not in free:
                yield from self._rows_of(number)

    def _page(self, number: int) -> bytes:
        if not 1 <= number <= self._count:
            raise ValueError(f"there is no page {number}")
        return self._data[(number - 1) * self._size : number * self._size]

    def _free(self) -> set[int]:
        """Return the pages of the free list, as far as it can be followed: they hold rows that were deleted."""
        free: set[int] = set()
        (trunk,) = struct.unpack_from(">I", self._data.ljust(_HEADER, b"\0"), 32)
        while 1 <= trunk <= self._count and trunk not in free:
            page = self._page(trunk)
            free.add(trunk)
            trunk, count = struct.unpack_from(">II", page)
            free.update(struct.unpack_from(f">{min(count, self._size // 4 - 2)}I", page, 8))
        return free

    def _rows_of(self, number: int) -> Iterator[Row]:
        page, at = self._page(number), _HEADER if number == 1 else 0
        kind, _, cells = struct.unpack_from(">BHH", page, at)
        if kind not in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INSIDE):
            return
        at += 12 if kind == _INDEX_INSIDE else 8
        for cell in range(min(cells, (self._size - at) // 2)):
            (start,) = struct.unpack_from(">H", page, at + 2 * cell)
            try:
                yield self._row(number, page, start, kind)
            except (ValueError, IndexError, struct.error, OverflowError):
                continue

    def _row(self, number: int, page: bytes, at: int, kind: int) -> Row:
        at += 4 if kind == _INDEX_INSIDE else 0
        length, at = _varint(page, at)
        rowid = None
        if kind == _TABLE_LEAF:
            rowid, at = _varint(page, at)
        return Row(number, rowid, _record(self._payload(page, at, length, kind)))

    def _payload(self, page: bytes, at: int, length: int, kind: int) -> bytes:
        """Return what a cell holds, from the pages that it runs over to as well."""
        if not 0 < length <= len(self._data):
            raise ValueError("too long")
        size = self._size
        most = size - 35 if kind == _TABLE_LEAF else (size - 12) * 64 // 255 - 23
        if length <= most:
            return _taken(page, at, length)
        least = (size - 12) * 32 // 255 - 23
        here = least + (length - least) % (size - 4)
        here = here if here <= most else least
        parts, rest = [_taken(page, at, here)], length - here
        (following,) = struct.unpack_from(">I", page, at + here)
        while rest > 0:
            more = self._page(following)
            parts.append(more[4 : 4 + rest])
            rest -= len(parts[-1])
            (following,) = struct.unpack_from(">I", more)
        return b"".join(parts)


def _taken(data: bytes, at: int, length: int) -> bytes:
    if at + length > len(data):
        raise ValueError("beyond the page")
    return data[at : at + length]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of one to nine bytes, and where it ends."""
    value = 0
    for i in range(8):
        byte = data[at + i]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + i + 1
    value = value << 8 | data[at + 8]
    return value - (1 << 64) if value >> 63 else value, at + 9


def _record(data: bytes) -> list[Value]:
    """Return the values of a record.

    Examples
    --------
    >>> _record(bytes([4, 0, 1, 0x13, 7]) + b"abc")
    [None, 7, 'abc']
    """
    end, at = _varint(data, 0)
    start, values = end, list[Value]()
    while at < end:
        kind, at = _varint(data, at)
        value, start = _value(data, start, kind)
        values.append(value)
    return values


def _value(data: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind == 0:
        return None, at
    if kind in (8, 9):
        return kind - 8, at
    if kind == 7:
        return struct.unpack(">d", _taken(data, at, 8))[0], at + 8
    if kind in _INTEGERS:
        length = _INTEGERS[kind]
        return int.from_bytes(_taken(data, at, length), "big", signed=True), at + length
    if kind < 12:
        raise ValueError(f"no serial type {kind}")
    length = (kind - 12) // 2
    found = _taken(data, at, length)
    return found.decode() if kind % 2 else found, at + length
