"""The few array operations that NumPy and torch spell differently, so that every alignment is written once.

Everything else comes from the array API standard through `array_api_compat`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_torch_array

from weft.errors import invalid

Array = Any
"""A NumPy array or a torch tensor; the functions here return what they were given."""


def as_array(value: Any, parameter: str, owner: str) -> Array:
    """Return torch tensors as they are, and everything else as a NumPy array of real numbers."""
    if is_torch_array(value):
        if value.dtype.is_complex:
            raise invalid(parameter, owner, "an array of real numbers", value.dtype)
        return value
    try:
        array = np.asarray(value)
    except ValueError:
        raise invalid(
            parameter, owner, "rectangular (TokenVectors.from_list takes texts of unequal length)", value
        ) from None
    if array.dtype.kind not in "fiub":
        raise invalid(parameter, owner, "an array of real numbers", array.dtype)
    return array


def like(value: Any, reference: Array, parameter: str, owner: str) -> Array:
    """Return the value as an array of the reference's kind, on its device."""
    array = as_array(value, parameter, owner)
    if is_torch_array(array) and not is_torch_array(reference):
        raise invalid(parameter, owner, "of the same kind as the vectors, NumPy", "a torch tensor")
    if is_torch_array(reference) and not is_torch_array(array):
        return array_namespace(reference).asarray(array, device=device_of(reference))
    return array


def as_float(array: Array) -> Array:
    """Widen what cannot be summed safely: integers, booleans and half precision become float32."""
    if is_torch_array(array):
        return array if array.dtype.is_floating_point and array.dtype.itemsize >= 4 else array.float()
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def detach(array: Array) -> Array:
    """Return the same numbers outside the gradient graph."""
    return array.detach() if is_torch_array(array) else array


def device_of(array: Array) -> Any:
    """Return where the array lives, as `device=` wants it."""
    return array.device if is_torch_array(array) else None


def kth_largest(x: Array, k: Array) -> Array:
    """Return the k-th largest value of each row.

    Shapes: x (..., m) with m >= 1, k int (..., 1) with 1 <= k <= m; result (..., 1).

    Examples
    --------
    >>> kth_largest(np.array([[3.0, 1.0, 2.0]]), np.array([[2]]))
    array([[2.]])
    """
    most = int(k.max())
    if is_torch_array(x):
        return x.topk(most, dim=-1).values.gather(-1, k - 1)
    m = x.shape[-1]
    # partition before sort: only the `most` largest need an order.
    largest = np.sort(np.partition(x, m - most, axis=-1)[..., m - most :], axis=-1)
    return np.take_along_axis(largest, most - k, axis=-1)


def top_mask(x: Array, k: Any, valid: Array) -> Array:
    """Mark the k largest valid entries of each row; among equals the first ones win.

    Parameters
    ----------
    x : array, shape (..., m)
    k : int or int array, shape (..., 1), broadcast to the rows of x
        Rows with fewer than k valid entries keep all of them.
    valid : bool array, broadcast to the shape of x

    Returns
    -------
    bool array, shape (..., m)

    Examples
    --------
    >>> top_mask(np.array([1.0, 3.0, 3.0, 3.0]), 2, np.array([True, True, False, True]))
    array([False,  True, False,  True])
    """
    xp = array_namespace(x)
    valid = xp.broadcast_to(valid, x.shape)
    if x.shape[-1] == 0 or 0 in x.shape:
        return valid
    x = xp.where(valid, detach(x), xp.asarray(-xp.inf, dtype=x.dtype, device=device_of(x)))
    count = xp.sum(xp.astype(valid, xp.int64), axis=-1, keepdims=True)
    k = min(k, x.shape[-1]) if isinstance(k, int) else k  # 10**30 is a k too
    k = xp.minimum(xp.asarray(k, dtype=xp.int64, device=device_of(x)), count)
    threshold = kth_largest(x, xp.clip(k, 1, x.shape[-1]))
    above = x > threshold
    tied = (x == threshold) & valid
    # Take only as many of the tied entries as are still missing, from the left.
    missing = k - xp.sum(xp.astype(above, xp.int64), axis=-1, keepdims=True)
    return above | (tied & (xp.cumulative_sum(xp.astype(tied, xp.int64), axis=-1) <= missing))
