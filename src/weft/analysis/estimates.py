"""Means over queries with their bootstrap intervals, as `weft.evaluation.significance` makes them.

One seed for all: two systems on the same queries see the same resamples, so their intervals differ by what the systems
do, not by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.evaluation.significance import Interval, bootstrap, macro_average

RESAMPLES = 2000
"""Resamples of an interval. An experiment computes thousands of intervals; with these, bounds are right to some
hundredths of the width."""

__all__ = ["Interval", "curve", "difference", "estimate", "macro"]


def estimate(values: ArrayLike) -> Interval:
    """Return the mean of one value a query."""
    return bootstrap(values, resamples=RESAMPLES)


def macro(groups: Sequence[ArrayLike]) -> Interval:
    """Return the mean of the collections' means; queries are resampled within their collection.

    Examples
    --------
    >>> import pytest; _ = pytest.importorskip("scipy")
    >>> macro([[0.0, 0.0], [1.0, 1.0, 1.0]])
    Interval(value=0.5, low=0.5, high=0.5)
    """
    return macro_average({str(i): group for i, group in enumerate(groups)}, resamples=RESAMPLES)


def difference(first: Sequence[ArrayLike], second: Sequence[ArrayLike]) -> Interval:
    """Return the macro mean of second − first, paired by query."""
    return macro([np.asarray(b) - np.asarray(a) for a, b in zip(first, second, strict=True)])


def curve(groups: Sequence[NDArray[Any]]) -> list[Interval]:
    """Return one macro mean for each point; each group has shape (queries, points)."""
    return [macro([group[:, point] for group in groups]) for point in range(groups[0].shape[1])]
