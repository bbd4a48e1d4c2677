"""Exact term match in alignments: how much of a token's alignment goes to its own word (GR §7.2, figures 2 and 3).

A hard rate counts how often the best aligned token is the same word; a soft one is the alignment's mass on the same
word. Where the other text does not have the word, both are 0. Rates over all pairs say how often words are matched at
all; rates over the pairs that have the word, which the paper's published code counts, say how strongly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import invalid
from weft.generative.attention import Floats

NOTHING = 1e-6
"""Soft rates up to this are dropped by the published counting."""


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


class ByType:
    """Rates as the paper's published code counts them: words alone, averaged by token type, soft rates above 0 alone.

    Stop words and punctuation are left out; each token type has the mean of its occurrences, and a bin the mean of its
    types; soft rates that are (all but) 0 are dropped, so that they say how strongly a word is matched where it is.

    Parameters
    ----------
    bins : array of int64, shape (vocabulary,)
        The bin of each token type, −1 for none.
    words : bool array, shape (vocabulary,)
        `is_word` of each type.

    Examples
    --------
    >>> rates = ByType(np.array([0, 0, 0]), np.array([True, True, False]))
    >>> rates.add([0, 0, 1, 2], [0.5, 0.0, 0.1, 0.9], drop_zeros=True)
    >>> rates.of(0).tolist()
    [0.5, 0.1]
    """

    def __init__(self, bins: NDArray[np.int64], words: NDArray[np.bool_]) -> None:
        self._bins, self._words = bins, words
        self._total, self._count = np.zeros(len(bins)), np.zeros(len(bins))

    def add(self, tokens: ArrayLike, rates: ArrayLike, *, drop_zeros: bool) -> None:
        """Add the rates of some tokens, shapes (m,)."""
        ids, values = np.asarray(tokens, np.int64), np.asarray(rates, np.float64)
        kept = self._words[ids] & (values > NOTHING) if drop_zeros else self._words[ids]
        np.add.at(self._total, ids[kept], values[kept])
        np.add.at(self._count, ids[kept], 1)

    def of(self, number: int | None) -> NDArray[np.float64]:
        """Return the mean of each token type of a bin, or (None) of all of them."""
        some = (self._count > 0) & (self._bins >= 0 if number is None else self._bins == number)
        found: NDArray[np.float64] = self._total[some] / self._count[some]
        return found


def is_word(pieces: Sequence[str], stop_words: Collection[str]) -> NDArray[np.bool_]:
    """Tell which pieces of a vocabulary are neither stop words nor punctuation.

    Examples
    --------
    >>> is_word(["▁the", "▁planet", ",", "</s>", "et"], {"the"}).tolist()
    [False, True, False, False, True]
    """
    bare = [piece.replace("▁", "").lower() for piece in pieces]
    return np.array([any(c.isalnum() for c in t) and t not in stop_words and not t.startswith("<") for t in bare])


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
