"""Exact term match in alignments: how much of a token's alignment goes to its own word (GR §7.2, figures 2 and 3).

A hard rate counts how often the best aligned token is the same word; a soft one is the alignment's mass on the same
word. Where the other text does not have the word, both are 0. Rates over all pairs say how often words are matched at
all; those over pairs that have the word, as the paper's published code counts, how strongly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import invalid
from weft.generative.attention import Floats


def token_idf(documents: Iterable[ArrayLike], vocabulary: int) -> NDArray[np.float64]:
    """Return ln(1 + (N − df + 0.5) / (df + 0.5)) of each token, shape (vocabulary,), df counted in documents.

    Examples
    --------
    >>> token_idf([[0, 1, 1], [1]], 3).round(3).tolist()
    [0.693, 0.182, 1.792]
    """
    frequency = np.zeros(vocabulary)
    count = 0
    for tokens in documents:
        frequency[np.unique(np.asarray(tokens, np.int64))] += 1
        count += 1
    return np.log1p((count - frequency + 0.5) / (frequency + 0.5))


def same_word(query: ArrayLike, document: ArrayLike) -> NDArray[np.bool_]:
    """Tell which tokens are equal, shape (n, m)."""
    found: NDArray[np.bool_] = np.asarray(query)[:, None] == np.asarray(document)[None, :]
    return found


def hard_match(S: Floats, same: NDArray[np.bool_], axis: int) -> NDArray[np.bool_]:
    """Tell of each token whether the one it aligns to best is its own word.

    Parameters
    ----------
    S : array, shape (n, m)
        Similarities; of equal ones the first counts, as in sum of max.
    same : bool array, shape (n, m)
    axis : {1, 0}
        1 looks from each query token to the document, shape (n,); 0 from each document token to the query, (m,).

    Examples
    --------
    >>> S = np.array([[0.9, 0.1], [0.8, 0.2]])
    >>> hard_match(S, same_word([5, 6], [5, 6]), axis=1).tolist()
    [True, False]
    """
    _check(S, same, axis)
    best = np.expand_dims(S.argmax(axis=axis), axis)
    found: NDArray[np.bool_] = np.take_along_axis(same, best, axis).squeeze(axis)
    return found


def soft_match(A: Floats, same: NDArray[np.bool_], axis: int) -> NDArray[np.float64]:
    """Return the mass of each token's alignment that is on its own word; A sums to 1 along the axis.

    Examples
    --------
    >>> A = np.array([[0.75, 0.5], [0.25, 0.5]])
    >>> soft_match(A, same_word([5, 6], [5, 7]), axis=0).tolist()
    [0.75, 0.0]
    """
    _check(A, same, axis)
    found: NDArray[np.float64] = np.where(same, A, 0.0).sum(axis=axis)
    return found


def bin_of(idf: ArrayLike, edges: Sequence[float]) -> NDArray[np.int64]:
    """Return the number of the bin [edges[b], edges[b + 1]) that each value is in, −1 for none.

    Examples
    --------
    >>> bin_of([0.5, 3.0, 12.0], [0, 3, 5]).tolist()
    [0, 1, -1]
    """
    found = np.searchsorted(np.asarray(edges, float), np.asarray(idf, float), side="right") - 1
    return np.where(found < len(edges) - 1, found, -1)


def _check(values: Floats, same: NDArray[np.bool_], axis: int) -> None:
    if axis not in (0, 1):
        raise invalid("axis", "exact match", "0 or 1", axis)
    if values.shape != same.shape or 0 in values.shape:
        raise invalid("same", "exact match", f"of the shape of the matrix, {values.shape}, not empty", same.shape)
