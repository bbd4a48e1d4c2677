"""One committed state of an index as a folder of its own, taken while others write."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from weft.errors import CorruptIndexError
from weft.storage.catalogue import Catalogue
from weft.storage.database import faults_named, write_ahead
from weft.storage.folder import CATALOGUE, SEGMENTS, check_file, check_folder

ATTEMPTS = 8
"""How often a newer state is taken when a merge has just removed files of this one."""


def snapshot(folder: Path, to: Path) -> int:
    """Put the newest committed state of the index at `folder` into a new folder, and return its generation.

    Segments never change, so they are linked where the file system allows it and copied elsewhere.
    """
    check_folder(folder)
    (to / SEGMENTS).mkdir(parents=True)
    for _ in range(ATTEMPTS):
        (to / CATALOGUE).unlink(missing_ok=True)
        with faults_named(folder):
            source = f"file:{folder.resolve() / CATALOGUE}?mode=ro"
            with closing(sqlite3.connect(source, uri=True)) as db, closing(sqlite3.connect(to / CATALOGUE)) as copy:
                db.backup(copy)
                copy.execute("PRAGMA journal_mode=DELETE")  # one file, which is all there is to carry
            write_ahead(to)
        with closing(Catalogue.open(to)) as catalogue:
            generation, rows = catalogue.generation(), catalogue.segments()
        for suffix in ("-wal", "-shm"):
            (to / f"{CATALOGUE}{suffix}").unlink(missing_ok=True)
        linked = [_linked(folder / SEGMENTS / row.file, to / SEGMENTS / row.file) for row in rows]
        if all(linked):
            kept = {row.file for row in rows}
            for path in (to / SEGMENTS).iterdir():
                if path.name not in kept:
                    path.unlink()
            return generation
    raise CorruptIndexError(f"{folder}: segments that the catalogue names are missing")


def _linked(source: Path, to: Path) -> bool:
    if to.exists():
        return True
    check_file(source)
    try:
        os.link(source, to)
    except FileNotFoundError:
        return False
    except OSError:  # another file system
        shutil.copyfile(source, to)
    return True
