"""One file holds an index: the arrays of `weft.storage.arrays`, the kind of index and its tokenizer in the header."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import CorruptIndexError, IndexExistsError, IndexFormatError, NotAnIndexError, StorageError
from weft.storage.arrays import Arrays, fsync_folder, write_arrays

VERSION = 1
FORMAT = "token-text"


class TokenTextFile(Arrays):
    """The file, memory-mapped; damage is answered with what to do about this kind of file."""

    def _corrupt(self, what: str) -> CorruptIndexError:
        return CorruptIndexError(f"{self.path}: damaged: {what}; build the corpus index again")


def write_file(path: Path, arrays: Mapping[str, NDArray[Any]], info: Mapping[str, Any]) -> None:
    """Write the file whole or not at all."""
    if path.exists():
        raise IndexExistsError(f"cannot save a corpus index as {path}: there is something of that name")
    part = path.with_name(path.name + ".part")
    try:
        part.unlink(missing_ok=True)
        write_arrays(part, arrays, {"format": FORMAT, "version": VERSION, **info})
        os.replace(part, path)
        fsync_folder(path.parent)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StorageError(f"cannot save a corpus index as {path}: {error.strerror or error}") from error


def open_file(path: Path) -> TokenTextFile:
    """Map the file and check its header."""
    if not path.is_file():
        raise NotAnIndexError(f"no corpus index at {path}")
    file = TokenTextFile(path)
    if file.info.get("format") != FORMAT:
        file.close()
        raise IndexFormatError(f"{path} is not a corpus index")
    if file.info.get("version") != VERSION:
        version = file.info.get("version")
        file.close()
        raise IndexFormatError(f"{path} is a corpus index of format {version!r}; this weft reads format {VERSION}")
    return file


def pack_ids(ids: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return ids as UTF-8 end to end, and where each begins."""
    encoded = [id.encode() for id in ids]  # noqa: A001
    offsets = np.concatenate([[0], np.cumsum([len(e) for e in encoded], dtype=np.int64)]).astype(np.int64)
    return {"id_bytes": np.frombuffer(b"".join(encoded), np.uint8), "id_offsets": offsets}


def unpack_ids(raw: NDArray[np.uint8], offsets: NDArray[np.int64]) -> list[str]:
    """Return the ids again."""
    data, places = raw.tobytes(), offsets.tolist()
    return [data[a:b].decode() for a, b in pairwise(places)]
