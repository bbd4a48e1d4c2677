"""XTR's score for little more than a sum of max: what each query token finds anywhere, then the documents above it.

With m_i the k′-th similarity, eq. 4 is Σ_i max(max_j S_ij, m_i): the maximum where query token i retrieved something of
the document, m_i where it did not. So token retrieval needs no list of retrieved tokens. It needs m_i, which a sample
of the collection tells well enough, and the sum of max of the documents that probing finds, which the engine computes
from codes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.types import TokenVectors

LEAST_RANK = 8
"""Where the k′-th of all tokens would stand before the 8th of a sample, the sample says too little."""

Floats = NDArray[np.float32]


class Top(NamedTuple):
    """The best similarities of some tokens, (n, r), each of which stands for `weight` tokens."""

    similarity: Floats
    weight: float

    @classmethod
    def of(cls, similarity: Floats, weight: float, k_prime: int) -> Top:
        """Keep of similarities (n, tokens) what may be among the best k′ of the collection."""
        r = min(int(np.ceil(k_prime / weight)) + 1, similarity.shape[1])
        if r < similarity.shape[1]:
            similarity = np.partition(similarity, similarity.shape[1] - r, axis=1)[:, similarity.shape[1] - r :]
        return cls(similarity, weight)


def kth_similarity(tops: list[Top], k_prime: int) -> Floats:
    """Return each query token's k′-th similarity, (n,); where there are fewer than k′ tokens, the last one.

    Examples
    --------
    >>> few = Top(np.array([[0.9, 0.4]], np.float32), 1.0)
    >>> many = Top(np.array([[0.8, 0.2]], np.float32), 10.0)
    >>> [round(float(kth_similarity([few, many], k)[0]), 1) for k in (1, 5, 12)]
    [0.9, 0.8, 0.4]
    """
    similarity = np.concatenate([top.similarity for top in tops], axis=1)
    weight = np.concatenate([np.full(top.similarity.shape[1], top.weight) for top in tops])
    order = np.argsort(-similarity, axis=1, kind="stable")
    reached = np.cumsum(weight[order], axis=1) >= k_prime - 1e-9 * k_prime
    rank = np.where(reached.any(axis=1), reached.argmax(axis=1), similarity.shape[1] - 1)
    rows = np.arange(len(similarity))
    kth: Floats = similarity[rows, order[rows, rank]]
    return kth


def similarities(query: TokenVectors, documents: TokenVectors) -> Floats:
    """Return S of one query with all tokens of some documents, (n, tokens)."""
    S: Floats = query.values.astype(np.float32, copy=False) @ documents.values.astype(np.float32, copy=False).T
    return S


def greatest(similarity: Floats, documents: TokenVectors) -> Floats:
    """Return max_j S_ij of each document, (n, documents), of similarities (n, tokens); none may be without tokens."""
    maxima: Floats = np.maximum.reduceat(similarity, documents.offsets[:-1], axis=1)
    return maxima
