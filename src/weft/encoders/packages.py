"""Models installed as packages of their own: ``pip install ./packages/weft-multi``, then ``--model weft-multi``.

Such a package has an entry point in the group ``weft.models``: the model's name, and an object that is the path of its
light folder. weft reads the names without importing anything, and imports only the package of the model it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from weft.errors import CheckpointError, first_line

GROUP = "weft.models"
"""The group of entry points."""

KNOWN: Mapping[str, str] = {"weft-multi": "about a hundred languages"}
"""Models that weft's authors offer as packages, and what they read. Each package is called as its model."""


def installed() -> tuple[str, ...]:
    """Return the names of the models that are installed as packages."""
    from importlib.metadata import entry_points  # slow to import, as everything starts with this module

    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def find_package(name: str) -> Path | None:
    """Return the folder of a model that is installed as a package; None for a name that no package has.

    For a known model that is not installed, the error says how to install it.
    """
    from importlib.metadata import entry_points

    point = next(iter(entry_points(group=GROUP, name=name)), None)
    if point is None:
        if name in KNOWN:
            raise CheckpointError(f"{name} is not installed: {how_to_get(name)}")
        return None
    try:
        folder = Path(point.load())
    except Exception as error:  # whatever the package's own code does
        raise CheckpointError(f"the package of {name} ({point.value}) is broken: {first_line(error)}") from None
    if not folder.is_dir():
        raise CheckpointError(f"the package of {name} ({point.value}) names no folder: {folder}")
    return folder


def how_to_get(name: str) -> str:
    """Return the command that installs a known model.

    Examples
    --------
    >>> how_to_get("weft-multi")
    'pip install ./packages/weft-multi in a clone of weft'
    """
    return f"pip install ./packages/{name} in a clone of weft"
