"""Which segments to merge: tiers of like size, in the manner of Lucene's, under a bound on their number.

Nothing is merged while there are at most `budget` segments, a number that grows with the adds: of documents, where they
come one by one, of groups, where they come in groups. Beyond that, of all runs of segments next to each other in size,
the one is merged whose largest member is the smallest part of the sum: many of like size together, a large one only
with others as large. A segment of which much is deleted is written anew by itself. Over a million single adds each
document is written seven or eight times (tests/storage/test_merging.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count as numbers
from math import comb, log2
from typing import NamedTuple

import numpy as np

BASE = 3
"""An index never has more than this and log₂(adds) segments for long."""
REWRITTEN = 6
"""How often a merge may write what an add wrote, where that is what bounds the number of segments."""
DEAD = 1 / 3
"""A segment of which more than this share is deleted is written anew."""
SMALL = 10_000
"""… unless it is as small as this and will soon be merged with others anyway."""
LARGE = 100_000
"""Tokens of a merge that is large: there is one such at a time, and smaller ones go on beside it."""
FAN_IN = 12
"""A large merge takes at most this many segments: until it is done they all count, and more join them."""
FAVOUR_SMALL = 0.05
"""How much smaller merges are preferred: the exponent of their size."""


class Sized(NamedTuple):
    """A segment as the policy sees it."""

    key: int
    live: int
    """Tokens that count, and one for each document"""
    dead: float
    """Share of its documents that are deleted"""


def budget(adds: int) -> float:
    """Return how many segments an index that came in that many adds may have before some are merged.

    With B segments, and each add merged at most A times, there is room for (A + B over A) adds: a merge takes what was
    merged as often as itself. So few segments are enough, as long as that is fewer than `BASE` + log₂(adds).

    Examples
    --------
    >>> budget(100), budget(1000), budget(100_000), budget(1 << 20)
    (4.0, 7.0, 17.0, 23.0)
    """
    fewest = next(b for b in numbers(2) if comb(REWRITTEN + b, b) >= adds)
    return min(float(fewest), BASE + log2(max(adds, 2)))


def choose(segments: Sequence[Sized], adds: int, count: int | None = None, most: int | None = None) -> list[int] | None:
    """Return the keys of the segments to merge next, None if there are few enough and little in them is dead.

    Parameters
    ----------
    segments : sequence of Sized
        Those that may be merged with each other.
    adds : int
        Live documents of the whole index, by how many come at a time.
    count : int, optional
        Segments of the whole index, where there are others.
    most : int, optional
        Tokens of the largest merge wanted.

    Examples
    --------
    >>> many = [Sized(0, 100_000, 0.0), *(Sized(key, 90 + key, 0.0) for key in range(1, 10))]
    >>> choose(many, 10_000), choose(many, 20)
    (None, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    >>> choose([Sized(7, 50_000, 0.5), Sized(8, 50_000, 0.1)], 100)
    [7]
    """
    bound = np.inf if most is None else most
    worn = [s for s in segments if s.dead >= 1 or (s.dead > DEAD and SMALL < s.live <= bound)]
    if worn:
        return [max(worn, key=lambda s: s.dead).key]
    if len(segments) < 2 or (len(segments) if count is None else count) <= budget(adds):
        return None
    ordered = sorted(segments, key=lambda s: (s.live, s.key))
    sizes = np.array([max(s.live, 1) for s in ordered], dtype=np.float64)
    total = np.concatenate([[0], np.cumsum(sizes)])
    # (first, last) of every run of two or more: its largest share, and a little for its size.
    sums = total[None, 1:] - total[:-1, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = np.where(sums > sizes[None, :], sizes[None, :] / sums * sums**FAVOUR_SMALL, np.inf)
    cost[np.tril_indices(len(sizes))] = np.inf
    width = np.arange(len(sizes))[None, :] - np.arange(len(sizes))[:, None] + 1
    cost[(sums > bound) | ((sums > LARGE) & (width > FAN_IN))] = np.inf
    first, last = np.unravel_index(int(np.argmin(cost)), cost.shape)
    if not np.isfinite(cost[first, last]):
        return None
    return sorted(s.key for s in ordered[first : last + 1])
