"""Recipes by name: those that come with weft."""

from __future__ import annotations

from pathlib import Path

from weft.errors import DataError

_PACKAGE = Path(__file__).parent.parent
FOLDERS = (_PACKAGE / "recipes", _PACKAGE.parents[1] / "recipes")
"""Where recipes are in an installation, and in a checkout."""


def find_recipe(name: str, below: str = "") -> Path:
    """Return the file of a recipe: a path, or the name of one that comes with weft.

    Examples
    --------
    >>> find_recipe("xtr-small").name
    'xtr-small.toml'
    """
    path = Path(name)
    if path.is_file():
        return path
    folder = next((folder / below for folder in FOLDERS if (folder / below).is_dir()), None)
    known = {} if folder is None else {file.stem: file for file in sorted(folder.glob("*.toml"))}
    if name in known:
        return known[name]
    if path.suffix == ".toml" and path.stem in known and not path.is_absolute() and "recipes" in path.parts:
        return known[path.stem]  # as the documentation of a checkout writes it
    listed = f"; recipes by name: {', '.join(known)}" if known else ""
    raise DataError(f"no such recipe: {name}{listed}")
