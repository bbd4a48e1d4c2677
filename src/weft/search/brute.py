"""Searching small segments without any codes: every allowed document is scored, every token compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.alignment import Alignment, SumOfMax, TopK, TopP, score
from weft.index.segment import Segment
from weft.kernels import score_ragged
from weft.types import Hits, TokenVectors

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


def allowed_documents(segment: Segment, allowed: NDArray[np.bool_]) -> tuple[NDArray[np.int64], TokenVectors]:
    """Return the ordinals and the vectors of the allowed documents that have tokens at all."""
    ordinals = np.flatnonzero(allowed & (np.diff(segment.offsets) > 0))
    if len(ordinals) == len(segment):
        return ordinals, segment.vectors()
    return ordinals, segment.select(ordinals)


def retrieve_tokens(query: NDArray[np.float32], documents: TokenVectors, k_prime: int) -> Hits:
    """Return the k′ most similar tokens of each query token; all of them if there are fewer (XTR eq. 3).

    `document` counts from 0 in `documents`. Of equal similarities the first tokens are taken.
    """
    similarity = query @ documents.values.astype(np.float32, copy=False).T  # (n, T)
    k = min(k_prime, documents.n_tokens)
    chosen = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    document = np.repeat(np.arange(len(documents)), documents.lengths)[chosen]
    return Hits(
        np.repeat(np.arange(len(query), dtype=np.int32), k),
        document.ravel(),
        (chosen - documents.offsets[document]).ravel().astype(np.int32),
        np.take_along_axis(similarity, chosen, axis=1).ravel(),
    )
