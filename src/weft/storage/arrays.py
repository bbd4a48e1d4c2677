r"""A file of named arrays: immutable, checksummed in blocks, memory-mapped. Segments are stored in it.

Layout (all integers little-endian):

    0      8   magic  b"WEFTSEG\x01"
    8      8   length H of the header
    16     4   CRC-32 of the header
    20     H   header, JSON: {"info": {...}, "block": bytes, "arrays": {name: [dtype, shape, start, bytes]}, "end": E}
    …          arrays, each at a multiple of 64 bytes
    E      4·k CRC-32 of each block of `block` bytes of everything between the header and E
    E+4k   4   CRC-32 of that list
    E+4k+4     end of file

The header and the list of checksums are verified when the file is opened. Data blocks are verified when they are
first read (`Arrays.verify`), so that opening a large file costs nothing and a damaged byte is never answered from.
No pickle: dtypes come from a fixed list, and a shape is believed only if the file is long enough for it.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.errors import CorruptIndexError, StorageError
from weft.stopping import check_stop
from weft.storage.folder import check_file

MAGIC = b"WEFTSEG\x01"
ALIGN = 64
BLOCK = 1 << 16
LEAST_BLOCK = 1 << 12
"""The smallest block that is read."""
SEE_CHECK = "; `weft check` lists all damage"
"""The end of a message about the first damage found."""
MOST_DIMENSIONS = 3
MOST_HEADER = 1 << 20
"""Bytes of the longest header that is read; ours have a few thousand. A file with a hole is longer than its disk."""
_PREFIX = struct.Struct("<8sQI")
_DTYPES = {name: np.dtype(name) for name in ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4")}


@dataclass(frozen=True)
class Streamed:
    """An array made a few rows at a time while it is written, so that it is never whole in memory."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Iterable[NDArray[Any]]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any] | Streamed], info: Mapping[str, Any]) -> None:
    """Write and fsync the file, and its folder's entry of it; `path` must not exist yet.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.seg"
    >>> write_arrays(path, {"x": np.arange(3, dtype="<i4")}, {"n": 1})
    >>> stored = Arrays(path)
    >>> stored["x"].tolist(), stored.info
    ([0, 1, 2], {'n': 1})
    """
    header, starts, end = _plan(arrays, info)
    with open(path, "xb") as file:
        file.write(_PREFIX.pack(MAGIC, len(header), zlib.crc32(header)) + header)
        sums = _BlockSums(file)
        position = _PREFIX.size + len(header)
        for name, array in arrays.items():
            sums.write(b"\0" * (starts[name] - position))
            for part in array.parts if isinstance(array, Streamed) else [array]:
                sums.write(memoryview(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data))
            position = starts[name] + array.nbytes
            assert file.tell() == position, f"array {name!r} is not as long as it said"
        sums.write(b"\0" * (end - position))
        listed = sums.finish()
        file.write(listed + struct.pack("<I", zlib.crc32(listed)))
        file.flush()
        os.fsync(file.fileno())
    fsync_folder(path.parent)


class Scratch(np.memmap[Any, Any]):
    """An array in a file of ours that nobody else maps."""

    def release(self) -> None:
        """Give back the memory behind the map; what was written stays in the file and is read again when needed."""
        mapped: mmap.mmap | None = self._mmap  # type: ignore[attr-defined]
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):  # None: an array computed from one
            mapped.madvise(mmap.MADV_DONTNEED)


def release(array: NDArray[Any]) -> None:
    """Call `Scratch.release` if the array has one, so that reading or writing it takes no memory."""
    if isinstance(array, Scratch):
        array.release()


@contextmanager
def scratch_array(folder: Path, dtype: Any, shape: tuple[int, ...]) -> Iterator[NDArray[Any]]:
    """Lend an array that lies in a nameless file instead of memory; zeros at first.

    Its room on the disk is reserved before it is mapped, so that a full disk is an OSError here. Otherwise the first
    write into the map would kill the process (SIGBUS).
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size == 0:
        yield np.zeros(shape, dtype)
        return
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            for start in range(0, size, 1 << 20):
                file.write(bytes(min(1 << 20, size - start)))
            file.flush()
        yield Scratch(file, dtype=dtype, mode="r+", shape=shape)


def fsync_folder(folder: Path) -> None:
    """Make renames, creations and deletions in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Arrays:
    """A file written by `write_arrays`, memory-mapped read-only until the last array of it is gone.

    ``arrays[name]`` is a view of the map: reading it before `verify` answers from unchecked bytes, so callers name
    what they are about to read.

    Parameters
    ----------
    path : Path
    trusted : bool
        This process has just written the file, so the checksums need not be verified again.
    copied : bool
        Read the file into memory and check all of it now, so that later changes to it do not matter. A mapped file that
        is cut short crashes its readers.
    """

    def __init__(self, path: Path, *, trusted: bool = False, copied: bool = False) -> None:
        self.path = path
        self.trusted = trusted
        check_file(path)
        self._file: _native.MappedFile | None = None
        try:
            if copied:
                self._bytes: NDArray[np.uint8] = np.fromfile(path, np.uint8)
                self._bytes.flags.writeable = False
            else:
                self._file = _native.MappedFile(path)  # unlike an mmap, it keeps no descriptor open
                self._bytes = self._file.view()
        except FileNotFoundError:
            raise CorruptIndexError(f"{path}: the file is missing") from None
        except ValueError:
            raise CorruptIndexError(f"{path}: the file is empty") from None
        except MemoryError as error:
            raise StorageError(f"{path}: there is no memory for a copy of it ({error})") from None
        self._read_header()
        if copied:
            self.verify()

    def _read_header(self) -> None:
        view, size = self._bytes.data, len(self._bytes)
        if size < _PREFIX.size + 8:
            raise self._corrupt("too short for a header")
        magic, length, checksum = _PREFIX.unpack_from(view)
        if magic != MAGIC:
            raise self._corrupt("does not begin as a segment of this format version")
        if length > min(size - _PREFIX.size, MOST_HEADER):
            raise self._corrupt("the header is longer than the file, or than any of weft's")
        text = bytes(view[_PREFIX.size : _PREFIX.size + length])
        if zlib.crc32(text) != checksum:
            raise self._corrupt("header checksum")
        self._data_start = _PREFIX.size + length
        try:
            header = json.loads(text)
            self.info: dict[str, Any] = dict(header["info"])
            self._block, self._end = int(header["block"]), int(header["end"])
            # Sums of smaller blocks than we write would be many times the file.
            if not (LEAST_BLOCK <= self._block <= size + BLOCK and self._data_start <= self._end <= size):
                raise ValueError("block or end")
            self._places = {name: self._place(*entry) for name, entry in header["arrays"].items()}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise self._corrupt(f"header does not describe a segment ({error})") from None
        blocks = -(-(self._end - self._data_start) // self._block)
        if size != self._end + 4 * blocks + 4:
            raise self._corrupt(f"{size} bytes long, not the {self._end + 4 * blocks + 4} that were written")
        listed = bytes(view[self._end : self._end + 4 * blocks])
        if zlib.crc32(listed) != struct.unpack("<I", view[self._end + 4 * blocks :])[0]:
            raise self._corrupt("checksum of the list of checksums")
        self._sums = np.frombuffer(listed, "<u4")
        self._verified = np.full(blocks, self.trusted)
        self._whole = self.trusted  # all blocks were checked: searches need not look which

    def _place(
        self, dtype: str, shape: list[int], start: int, nbytes: int
    ) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
        # Nothing is allocated or read by a shape that does not fit the length of the file.
        if len(shape) > MOST_DIMENSIONS or not all(
            type(n) is int and 0 <= n < 1 << 48 for n in (*shape, start, nbytes)
        ):
            raise ValueError("shape")
        if start % ALIGN:
            raise ValueError("an array that does not begin at a multiple of 64")
        if math.prod(shape) * _DTYPES[dtype].itemsize != nbytes or not self._data_start <= start <= self._end - nbytes:
            raise ValueError("place of an array")
        return _DTYPES[dtype], tuple(shape), start, nbytes

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def kind(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return an array's type and shape."""
        return self._places[name][:2]

    def __getitem__(self, name: str) -> NDArray[Any]:
        dtype, shape, start, _ = self._places[name]
        count = math.prod(shape)
        return np.frombuffer(self._bytes, dtype, count, start).reshape(shape) if count else np.zeros(shape, dtype)

    @property
    def names(self) -> tuple[str, ...]:
        """What is in the file."""
        return tuple(self._places)

    @property
    def nbytes(self) -> int:
        """Size of the file."""
        return len(self._bytes)

    def verify(self, name: str | None = None, start: int = 0, stop: int | None = None) -> None:
        """Check the blocks of one array's rows start:stop (or of the whole file) that were not checked before."""
        if self._whole:
            return
        if name is None:
            first, last = self._data_start, self._end
        else:
            _, shape, begin, nbytes = self._places[name]
            row = nbytes // shape[0] if shape and shape[0] else 0
            first = begin + start * row
            last = begin + (nbytes if stop is None else stop * row)
        if last > first:
            self._verify_blocks(
                np.arange((first - self._data_start) // self._block, (last - 1 - self._data_start) // self._block + 1)
            )
        self._whole = name is None

    def verify_rows(self, name: str, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        """Check the blocks under many row ranges at once, empty ranges ignored."""
        check_stop()  # all long work reads rows, part after part
        if self._whole:
            return
        _, shape, begin, nbytes = self._places[name]
        row = nbytes // shape[0] if shape and shape[0] else 0
        some = stops > starts
        first = (begin + starts[some] * row - self._data_start) // self._block
        last = (begin + stops[some] * row - 1 - self._data_start) // self._block
        if len(first):
            longest = int((last - first).max()) + 1
            if longest * len(first) > 4096 + 4 * len(self._sums):  # one long among many: count cover
                edges = np.zeros(len(self._sums) + 1, np.int64)
                np.add.at(edges, first, 1)
                np.add.at(edges, last + 1, -1)
                self._verify_blocks(np.flatnonzero(np.cumsum(edges[:-1]) > 0))
                return
            spread = np.minimum(first[:, None] + np.arange(longest), last[:, None])
            if not self._verified[spread].all():
                self._verify_blocks(np.unique(spread))

    def checked_rows(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return some rows, in ascending order, of blocks that are checked first."""
        self.verify_rows(name, rows, rows + 1)
        return self[name][rows]

    def release_rows(self, name: str, start: int, stop: int) -> None:
        """Give back the memory of some rows; they are read from the file again when they are next wanted."""
        _, shape, begin, nbytes = self._places[name]
        if self._file is not None and shape and shape[0]:
            row = nbytes // shape[0]
            self._file.release(begin + start * row, begin + stop * row)

    def populate(self) -> None:
        """Map every page now, so that nobody who reads later has to wait for it."""
        if self._file is not None:
            self._file.populate()

    def _verify_blocks(self, blocks: NDArray[np.int64]) -> None:
        for block in blocks[~self._verified[blocks]].tolist():
            start = self._data_start + block * self._block
            found = zlib.crc32(self._bytes[start : min(start + self._block, self._end)].data)
            if found != self._sums[block]:
                raise self._corrupt(
                    f"checksum of bytes {start} to {min(start + self._block, self._end)} ({self._at(start)})"
                )
            self._verified[block] = True

    def _at(self, start: int) -> str:
        stop = start + self._block
        touched = [name for name, (_, _, at, nbytes) in self._places.items() if at < stop and at + nbytes > start]
        return "in " + ", ".join(touched) if touched else "between arrays"

    def _corrupt(self, what: str) -> CorruptIndexError:
        return CorruptIndexError(f"{self.path}: damaged: {what}{SEE_CHECK}")

    def close(self) -> None:
        """Let go of the file; it stays mapped as long as an array of it is in use."""
        self.__dict__.pop("_bytes", None)
        self.__dict__.pop("_file", None)

    def __enter__(self) -> Arrays:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _plan(arrays: Mapping[str, NDArray[Any] | Streamed], info: Mapping[str, Any]) -> tuple[bytes, dict[str, int], int]:
    """Lay out the file. The header's length depends on the offsets in it, so offsets are found by repetition."""
    length = 0
    while True:
        position = _PREFIX.size + length
        starts: dict[str, int] = {}
        entries: dict[str, Any] = {}
        for name, array in arrays.items():
            starts[name] = -(-position // ALIGN) * ALIGN
            dtype = array.dtype.str if array.dtype.itemsize > 1 else array.dtype.str[1:]
            if dtype not in _DTYPES:
                raise TypeError(f"array {name!r} has dtype {array.dtype}, not one of {sorted(_DTYPES)}")
            entries[name] = [dtype, list(array.shape), starts[name], array.nbytes]
            position = starts[name] + array.nbytes
        header = json.dumps({"info": dict(info), "block": BLOCK, "arrays": entries, "end": position}).encode()
        if len(header) <= length:
            return header.ljust(length), starts, position
        length = len(header)


class _BlockSums:
    """Writes through to a file while summing fixed-size blocks."""

    def __init__(self, file: Any) -> None:
        self._file, self._sums, self._filled, self._sum = file, [], 0, 0  # type: ignore[var-annotated]

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        view = memoryview(data)
        while len(view):
            part = view[: BLOCK - self._filled]
            self._sum = zlib.crc32(part, self._sum)
            self._filled += len(part)
            view = view[len(part) :]
            if self._filled == BLOCK:
                self._sums.append(self._sum)
                self._filled = self._sum = 0

    def finish(self) -> bytes:
        if self._filled:
            self._sums.append(self._sum)
        return np.array(self._sums, dtype="<u4").tobytes()
