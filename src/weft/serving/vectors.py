"""Token vectors on the wire: rows of JSON numbers, or base64 of little-endian float16."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import invalid

if TYPE_CHECKING:
    from weft.serving.schemas import VectorQuery

_HALF = np.dtype("<f2")
LARGEST = 65504
"""Float16's largest number: vectors may be no longer as JSON than as base64."""


def read_vectors(given: VectorQuery, dim: int, most: int) -> NDArray[np.floating[Any]]:
    """Return a query's vectors, (n, dim), or say what is wrong with them.

    Examples
    --------
    >>> from weft.serving.schemas import VectorQuery
    >>> read_vectors(VectorQuery(base64=to_base64(np.eye(2))), 2, most=8)
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    if (given.values is None) == (given.base64 is None):
        raise invalid("vectors", "the request", "given as values or as base64", "both or neither")
    array: NDArray[Any]
    if given.values is not None:
        if any(len(row) != dim for row in given.values):
            lengths = sorted({len(row) for row in given.values})[:5]
            raise invalid("values", "the request", f"rows of the index's dimension, {dim}", lengths)
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
            array = np.array(given.values, dtype=np.float32).reshape(-1, dim)
    else:
        if given.dim is not None and given.dim != dim:
            raise invalid("dim", "the request", f"the index's dimension, {dim}", given.dim)
        try:
            data = base64.b64decode(given.base64 or "", validate=True)
        except (binascii.Error, ValueError):
            raise invalid("base64", "the request", "base64", given.base64) from None
        if not data or len(data) % (2 * dim):
            raise invalid("base64", "the request", f"rows of {dim} float16 numbers", f"{len(data)} bytes")
        array = np.frombuffer(data, dtype=_HALF).reshape(-1, dim).astype(np.float32)
    if not 1 <= len(array) <= most:
        raise invalid("vectors", "the request", f"1 to {most} token vectors", len(array))
    return checked_vectors(array)


def checked_vectors(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a query's vectors; refuse NaN, infinity, and numbers whose products are infinite."""
    if not np.abs(array).max(initial=0) <= LARGEST:  # NaN is not
        raise invalid("vectors", "the request", f"of numbers from -{LARGEST} to {LARGEST}", "others")
    return array


def to_base64(vectors: NDArray[Any]) -> str:
    """Return vectors as base64 of little-endian float16, row after row."""
    return base64.b64encode(np.ascontiguousarray(vectors, dtype=_HALF).tobytes()).decode("ascii")


def from_base64(text: str, dim: int) -> NDArray[np.float16]:
    """Return the vectors that `to_base64` wrote, (n, dim)."""
    return np.frombuffer(base64.b64decode(text), dtype=_HALF).reshape(-1, dim)
