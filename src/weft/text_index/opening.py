"""Finding an index on disk."""

from __future__ import annotations

from pathlib import Path

from weft.errors import NotAnIndexError
from weft.search import Index
from weft.storage.folder import CATALOGUE


def is_index(path: str | Path) -> bool:
    """Tell whether there is an index at a path."""
    return (Path(path) / CATALOGUE).is_file()


def is_taken(path: str | Path) -> bool:
    """Tell whether anything but an empty folder is at a path, so that no new index can be made there."""
    path = Path(path)
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


def open_index(path: Path, on_damage: str = "raise") -> Index:
    """Open the index at a path; `NotAnIndexError` says what is there instead."""
    if not path.exists():
        raise NotAnIndexError(f"no such index: {path}; weft index PATH -o {path} makes one")
    if not path.is_dir():
        raise NotAnIndexError(f"{path} is not an index: an index is a folder, this is a file")
    return Index.open(path, on_damage=on_damage)
