"""What the arrays of a segment must be before anything is computed from them.

A segment may come from someone else, with checksums that are right: native code, and allocations whose size an array
says, rely on nothing that was not looked at here, in `Segment` or by the native engine itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import CorruptIndexError
from weft.storage.arrays import Arrays

_KINDS: dict[str, tuple[str, int]] = {
    "offsets": ("<i8", 1),
    "documents": ("<i8", 1),
    "full_lengths": ("<i4", 1),
    "token_ids": ("<i4", 1),
    "salience": ("<f4", 1),
    "span_steps": ("u1", 1),
    "span_lengths": ("u1", 1),
    "span_listed": ("<i4", 2),
    "shades": ("u1", 1),
    "finds": ("u1", 1),
    "values": ("<f2 <f4", 2),
    "codes": ("u1", 2),
    "cell_codes": ("u1", 2),
    "cell_starts": ("<i4", 1),
    "cell_blocks": ("<i4", 1),
    "centroid_codes": ("u1", 1),
    "centroid_rows": ("u1", 2),
    "list_starts": ("<i8", 1),
    "lists": ("<i4 <u2", 1),
    "list_weights": ("u1", 1),
    "mean_weights": ("<f4", 1),
    "rotation": ("<f4", 2),
    "spread": ("<f4", 1),
    "codebooks": ("i1", 3),
    "sketches": ("u1", 2),
    "levels": ("i1", 2),
    "limits": ("<f4", 1),
    "token_centroids": ("u1", 2),
}
"""Types, and the number of dimensions, of the arrays that segments have."""
_LONGEST = 1.01
"""Entries of a rotation are those of orthonormal rows."""


def check_kinds(stored: Arrays) -> None:
    """Refuse arrays of other types or numbers of dimensions than weft writes."""
    for name, (dtypes, dimensions) in _KINDS.items():
        if name in stored:
            dtype, shape = stored.kind(name)
            if dtype not in [np.dtype(one) for one in dtypes.split()] or len(shape) != dimensions:
                raise _damaged(stored, f"{name} is {dtype} with {len(shape)} dimensions")
    if "span_listed" in stored and stored.kind("span_listed")[1][1] != 3:
        raise _damaged(stored, "span_listed does not have three columns")


def check_codes(stored: Arrays) -> None:
    """Refuse cells, lists and rotations of a coded segment that lead out of its arrays; their bytes are verified."""
    centroids = len(stored["list_starts"]) - 1
    _check_rising(stored, "cell_starts", len(stored["cell_codes"]), centroids)
    _check_rising(stored, "list_starts", centroids, len(stored["lists"]))
    if "centroid_rows" in stored and len(stored["centroid_rows"]) != centroids:
        raise _damaged(stored, f"{len(stored['centroid_rows'])} centroids, {centroids} lists")
    check_rotation(stored)
    for name in ("spread", "limits"):
        if name in stored and not bool(np.isfinite(stored[name]).all()):
            raise _damaged(stored, f"{name} is not finite")


def check_rotation(stored: Arrays) -> None:
    """Refuse a matrix that is not a rotation."""
    if not bool((np.abs(stored["rotation"]) <= _LONGEST).all()):  # not a number is not less
        raise _damaged(stored, "rotation has entries that no rotation has")


def _check_rising(stored: Arrays, name: str, count: int, end: int) -> None:
    starts: NDArray[Any] = stored[name]
    if len(starts) != count + 1 or starts[0] != 0 or starts[-1] != end or bool((starts[1:] < starts[:-1]).any()):
        raise _damaged(stored, f"{name} does not rise from 0 to {end} in {count} steps")


def _damaged(stored: Arrays, what: str) -> CorruptIndexError:
    return CorruptIndexError(f"{stored.path}: damaged: {what}")
