"""Imputations that users registered, in a search.

`weft.alignment.register_imputation` takes a function of (pairs, retrieved, last). A search cannot hand it all pairs of
a collection: it is given those of the candidates, the documents of which a token was retrieved, some at a time. An
imputation that looks at one document at a time, or at `last` alone, is the same in `weft.score` and in a search.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.alignment import XTR
from weft.alignment.scoring import pairs_of
from weft.storage.segments import Segment, in_parts
from weft.types import TokenVectors

Floats = NDArray[np.float32]


def impute_registered(
    query: TokenVectors, alignment: XTR, segment: Segment, ordinals: NDArray[np.int64], last: Floats
) -> Floats:
    """Return m of some documents of a segment, (N, n)."""
    m = np.empty((len(ordinals), len(last)), dtype=np.float32)
    start = 0
    for some in in_parts(segment, ordinals):
        pairs = pairs_of(*segment.comparable(query, some))
        retrieved = np.asarray(last[None, None, :, None] <= pairs.S) & np.asarray(pairs.valid)
        m[start : start + len(some)] = alignment.estimate(pairs, retrieved, last[None])[0]
        start += len(some)
    return m
