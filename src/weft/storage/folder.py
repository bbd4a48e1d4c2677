"""The folder of an index: the names that are ours, and no way out of it.

A folder may come from someone else. Its files are opened only if they are files, not links or pipes; a segment is known
by a name of one form; and nothing that has another name is ever written or removed.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path

from weft.errors import CorruptIndexError, NotAnIndexError

CATALOGUE = "catalogue.sqlite"
SEGMENTS = "segments"
LOCK = "writer.lock"
QUARANTINE = "quarantine"
"""Where `repair` puts what is damaged"""
_SEGMENT = re.compile(r"[0-9a-f]{16}\.seg")


def is_segment_name(name: object) -> bool:
    """Tell whether a name is one that weft gives to segment files.

    Examples
    --------
    >>> is_segment_name("0123456789abcdef.seg"), is_segment_name("../../notes.txt"), is_segment_name(None)
    (True, False, False)
    """
    return isinstance(name, str) and _SEGMENT.fullmatch(name) is not None


def segment_files(folder: Path) -> list[Path]:
    """Return the files in an index's folder of segments that have a segment's name."""
    if not _there(folder / SEGMENTS, stat.S_ISDIR):
        raise CorruptIndexError(f"{folder / SEGMENTS}: the folder is missing")
    return sorted(path for path in (folder / SEGMENTS).iterdir() if is_segment_name(path.name))


def check_folder(folder: Path) -> None:
    """Refuse a folder in which one of our names is a link, a pipe or the like: it would lead elsewhere, or hang."""
    if not _there(folder / CATALOGUE, stat.S_ISREG):
        raise NotAnIndexError(f"no index at {folder}: there is no {CATALOGUE} in it")
    if _there(folder / f"{CATALOGUE}-journal", stat.S_ISREG):  # SQLite would obey it, and even remove files it names
        raise NotAnIndexError(
            f"no index at {folder}: there is a {CATALOGUE}-journal in it, as after a creation that was interrupted; "
            "remove the folder and create it again"
        )
    for name in (f"{CATALOGUE}-wal", f"{CATALOGUE}-shm"):
        if _there(folder / name, stat.S_ISREG):  # even readers write these
            check_one_name(folder / name)
    _there(folder / LOCK, stat.S_ISREG)
    _there(folder / SEGMENTS, stat.S_ISDIR)


def check_one_name(path: Path) -> None:
    """Refuse to write a file that has a second name, anywhere on the disk."""
    if has_second_name(path):
        raise CorruptIndexError(
            f"{path}: this file has a second name (a hard link), which weft never makes, and writing it would change "
            "both: copy the index, and use the copy"
        )


def has_second_name(path: Path) -> bool:
    """Tell whether a file has more names than this."""
    try:
        return path.lstat().st_nlink > 1
    except FileNotFoundError:
        return False


def quarantine(folder: Path) -> Path:
    """Return the folder of what is damaged, made if need be; refuse a link, which would lead elsewhere."""
    path = folder / QUARANTINE
    if not _there(path, stat.S_ISDIR):
        path.mkdir()
    return path


def check_file(path: Path) -> None:
    """Refuse to read what is not a file."""
    _there(path, stat.S_ISREG)


def _there(path: Path, expected: object) -> bool:
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not expected(mode):  # type: ignore[operator]
        kind = "a link" if stat.S_ISLNK(mode) else "not a folder" if expected is stat.S_ISDIR else "not a file"
        raise CorruptIndexError(f"{path}: this is {kind}, which weft never makes and does not follow")
    return True
