"""Heads: the continuations of the most frequent n-grams, computed once.

A beam "the" has a range of half a million rows and tens of thousands of continuations. Finding them again at each step
would cost more than all other beams together. The root is always a head.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft._native import CorpusIndex

MAX_DEPTH = 8
"""Frequent n-grams longer than this are boilerplate with few continuations, which galloping finds at once."""


def no_heads(dtype: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays for no heads."""
    return {
        "head_first": np.zeros(1, np.int64),
        "head_lows": np.zeros(0, np.uint32),
        "head_offsets": np.zeros(1, np.int64),
        "head_symbols": np.zeros(0, dtype),
        "head_stops": np.zeros(0, np.uint32),
    }


def find_heads(
    native: CorpusIndex, rows: int, symbols: NDArray[np.int32], dtype: Any, threshold: int
) -> dict[str, NDArray[Any]]:
    """Return the heads: the root, and n-grams of up to 7 tokens that occur `threshold` times or more."""
    low, high = np.zeros(1, np.int64), np.full(1, rows, np.int64)
    first, lows, sizes, tokens, stops = [0], [], [], [], []
    for level in range(MAX_DEPTH):
        depth = np.full(len(low), level, np.int32)
        offsets, follow, counts = native.continuations(low, high, depth, True)
        total = np.cumsum(counts, dtype=np.int64)
        before = np.concatenate([[0], total])[offsets[:-1]]
        lows.append(low.astype(np.uint32))
        sizes.append(np.diff(offsets))
        tokens.append(symbols[follow].astype(dtype))
        stops.append((total - np.repeat(before, sizes[-1])).astype(np.uint32))
        first.append(first[-1] + len(low))
        frequent = np.flatnonzero(counts >= threshold)
        if not len(frequent) or level == MAX_DEPTH - 1:
            break
        beams = np.repeat(np.arange(len(low)), sizes[-1])[frequent]
        low, high, _ = native.advance(low, high, depth, beams, follow[frequent])
        order = np.argsort(low)
        low, high = low[order], high[order]
    return {
        "head_first": np.array(first, np.int64),
        "head_lows": np.concatenate(lows),
        "head_offsets": np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64),
        "head_symbols": np.concatenate(tokens),
        "head_stops": np.concatenate(stops),
    }
