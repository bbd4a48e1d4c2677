"""Searching small segments without any codes: every allowed document is scored, every token compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.alignment import Alignment, SumOfMax, TopK, TopP, score
from weft.kernels import score_ragged
from weft.storage.segment import Segment
from weft.types import TokenVectors

NATIVE = (SumOfMax, TopK, TopP)
"""Alignments that the native kernels know; the others run on NumPy."""


def score_documents(
    query: TokenVectors, documents: TokenVectors, alignment: Alignment, threads: int
) -> NDArray[np.float32]:
    """Score documents under any alignment, shape (documents,)."""
    if isinstance(alignment, NATIVE):
        scores = score_ragged(query, documents, alignment, threads=threads)
    else:
        scores = np.asarray(score(query, documents, alignment), dtype=np.float32)
    return scores.reshape(-1)


def allowed_documents(segment: Segment, allowed: NDArray[np.bool_] | None) -> tuple[NDArray[np.int64], TokenVectors]:
    """Return the ordinals and the vectors of the allowed documents that have tokens at all."""
    ordinals = segment.with_tokens(allowed)
    if len(ordinals) == len(segment):
        return ordinals, segment.vectors()
    return ordinals, segment.select(ordinals)
