"""Checks of arguments: numbers and arrays of the right kind, shape and range, or one clear line.

Each takes the name of the parameter and of its owner, for the message.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import invalid

FloatArray = NDArray[np.floating[Any]]


def numbers(values: Any, parameter: str, owner: str) -> NDArray[Any]:
    """Return an array of real numbers from a list, a NumPy array or a torch tensor on any device."""
    if hasattr(values, "detach"):  # a torch tensor: take its numbers, wherever they are and whatever their type
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values
    try:
        array = np.asarray(values)
    except ValueError:
        raise invalid(parameter, owner, "rectangular (from_list takes texts of unequal length)", values) from None
    if array.dtype.kind not in "fiub":
        raise invalid(parameter, owner, "an array of real numbers", array.dtype)
    return array


def float_matrix(values: ArrayLike, parameter: str, owner: str) -> FloatArray:
    """Return a contiguous float32 or float16 array (tokens, dim) without NaN or infinity."""
    array = numbers(values, parameter, owner)
    if array.ndim != 2 or array.shape[1] == 0:
        raise invalid(parameter, owner, "a 2-D array (tokens, dim) with dim >= 1", array.shape)
    if array.dtype not in (np.float32, np.float16):
        with np.errstate(over="ignore"):  # becomes infinity, refused below
            array = array.astype(np.float32)
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise invalid(parameter, owner, "finite (no NaN, no infinity)", f"{array[row, column]} at [{row}, {column}]")
    return np.ascontiguousarray(array)


def integers(values: ArrayLike, parameter: str, owner: str, dtype: type[np.integer[Any]]) -> NDArray[Any]:
    """Return a contiguous array of integers that all fit `dtype`."""
    array = numbers(values, parameter, owner)
    if array.size == 0:
        array = array.astype(dtype)
    if array.dtype.kind not in "iu":
        raise invalid(parameter, owner, "an array of integers", array.dtype)
    bounds = np.iinfo(dtype)
    if array.size and (array.min() < bounds.min or array.max() > bounds.max):
        raise invalid(parameter, owner, f"within {np.dtype(dtype).name}", (array.min(), array.max()))
    return np.ascontiguousarray(array, dtype=dtype)


def one_a_token(
    array: NDArray[Any], values: FloatArray, parameter: str, owner: str, entry: tuple[int, ...] = ()
) -> None:
    """Refuse an array that does not hold one entry (of shape `entry`) for each row of `values`."""
    expected = (len(values), *entry)
    if array.shape != expected:
        raise invalid(parameter, owner, f"an array of shape {expected}, one entry a token", array.shape)


def join(
    parts: Iterable[ArrayLike] | None, lengths: list[int], parameter: str, dtype: Any, entry: tuple[int, ...] = ()
) -> NDArray[Any] | None:
    """Join one array per text, of the texts' lengths, into one."""
    if parts is None:
        return None
    arrays = [np.asarray(part) for part in parts]
    arrays = [array if array.size else array.astype(dtype).reshape(-1, *entry) for array in arrays]  # [] is float64
    if [array.shape for array in arrays] != [(length, *entry) for length in lengths]:
        shapes = [array.shape for array in arrays]
        each = f", each entry of shape {entry}" if entry else ""
        raise invalid(parameter, "TokenVectors.from_list", f"arrays of lengths {lengths}{each}", shapes)
    return np.concatenate(arrays) if arrays else np.zeros((0, *entry), dtype=dtype)


def concatenate_optional(parts: list[Any]) -> NDArray[Any] | None:
    """Join arrays, or return None where one is missing."""
    return None if any(part is None for part in parts) else np.concatenate(parts)


MOST_COUNT = 2**31 - 1
"""The largest count: two of them can be multiplied in 64 bits, in native code and in SQLite."""


def check_count(value: Any, parameter: str, owner: str, most: int | None = None) -> int:
    """Return the value as an int; refuse anything but a whole number of at least 1 (``True`` is not a count)."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise invalid(parameter, owner, "an integer >= 1", value)
    if most is not None and int(value) > most:
        raise invalid(parameter, owner, f"at most {most}", value)
    return int(value)


def check_fraction(value: Any, parameter: str, owner: str) -> float:
    """Return the value as a float; refuse anything outside (0, 1]."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value <= 1:  # type: ignore[operator]
        raise invalid(parameter, owner, "a number in (0, 1]", value)
    return float(value)


def check_positive(value: Any, parameter: str, owner: str) -> float:
    """Return the value as a float; refuse anything but a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value <= sys.float_info.max:  # type: ignore[operator]
        raise invalid(parameter, owner, "a finite number > 0", value)
    return float(value)
