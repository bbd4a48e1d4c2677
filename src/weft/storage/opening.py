"""The folder and the catalogue of an index, made or found."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.errors import CorruptIndexError, IndexExistsError
from weft.storage.arrays import fsync_folder
from weft.storage.catalogue import Catalogue
from weft.storage.database import FILE, faults_named
from weft.storage.folder import SEGMENTS
from weft.storage.lock import last_mark


def created(folder: Path, settings: Mapping[str, Any]) -> Catalogue:
    """Make the folder of a new index, on disk when this returns; if it fails, an empty one is left, to try again."""
    with faults_named(folder):
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise IndexExistsError(f"cannot create an index at {folder}: the folder is not empty")
        (folder / SEGMENTS).mkdir()
        try:
            catalogue = Catalogue.create(folder, settings)
            try:
                for path in (folder, *(path.parent for path in made)):
                    fsync_folder(path)
            except BaseException:
                catalogue.close()
                raise
        except BaseException:
            discard(folder)
            raise
    return catalogue


def discard(folder: Path) -> None:
    """Remove what `created` made in a folder."""
    for path in folder.glob(FILE + "*"):
        path.unlink(missing_ok=True)
    shutil.rmtree(folder / SEGMENTS, ignore_errors=True)


def opened(folder: Path, *, complete: bool = True) -> Catalogue:
    """Open the catalogue of an index; a `complete` one must hold all commits that are known to have been."""
    mark = last_mark(folder)  # before the catalogue is read, which may have moved on then, but never back
    catalogue = Catalogue.open(folder)
    try:
        if complete and mark > catalogue.generation():
            raise CorruptIndexError(
                f"{catalogue.file}: damaged: commits {catalogue.generation() + 1} to {mark} are missing; "
                "`weft repair` accepts what is left"
            )
    except BaseException:
        catalogue.close()
        raise
    return catalogue
