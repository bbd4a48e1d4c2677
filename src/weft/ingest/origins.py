"""Which file a document comes from: one file is one document, whatever path or link leads to it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from weft.search import Index
from weft.sources.find import STDIN, Found
from weft.storage.families import NOTES

ORIGIN, FILE, ID = f"$.{NOTES}.source", f"$.{NOTES}.file", f"$.{NOTES}.id"
"""Where a passage's notes have the name of its file as it was given, its place, and its document's id."""


def place_from(index: Index, path: str | Path) -> str:
    """Return where a file really is, seen from the index: both may move together."""
    real, base = os.path.realpath(path), os.path.realpath(index.folder)
    try:
        return Path(os.path.relpath(real, base)).as_posix()
    except ValueError:  # on another drive
        return Path(real).as_posix()


def real_path(index: Index, place: str) -> str:
    """Undo `place_from`."""
    return os.path.normpath(os.path.join(os.path.realpath(index.folder), place))


def as_known(index: Index, found: Iterable[Found]) -> list[Found]:
    """Give files the names under which an index already has them, so that ids do not depend on the path used."""
    listed = list(found)
    if not len(index) or all(file.name == STDIN for file in listed):
        return listed
    with index.reading_catalogue() as catalogue:
        names = {place: origin for _, place, origin in catalogue.marked(FILE, ORIGIN)}
    if not names:
        return listed
    return [
        file if file.name == STDIN else file._replace(name=names.get(place_from(index, file.path), file.name))
        for file in listed
    ]
