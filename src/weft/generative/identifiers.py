"""Identifiers of documents: digits of a hierarchical clustering (DSI), beginnings of titles and texts (GENRE)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import invalid

FIRST_DIGIT = 2
"""Tokens 0 and 1 of the decoder's vocabulary are its start and the end of an identifier."""
SHORTEST = 4
"""The minimum number of tokens in the identifier of a document without a title."""
LONGEST = 64


@dataclass(frozen=True)
class DigitVocabulary:
    """The decoder's tokens for digits: every position has digits of its own, token = 2 + position · width + digit.

    A digit is a cluster's number on the way (below k), or a document's in its leaf (below c): width = max(k, c).

    Examples
    --------
    >>> digits = DigitVocabulary(width=10, positions=3)
    >>> digits.tokens((4, 0, 9)), digits.size
    ([6, 12, 31], 32)
    """

    width: int
    positions: int

    @property
    def size(self) -> int:
        """V′ of the paper: all digits of all positions, the start and the end."""
        return FIRST_DIGIT + self.width * self.positions

    def tokens(self, digits: Sequence[int]) -> list[int]:
        """Return the tokens of digits."""
        return [FIRST_DIGIT + position * self.width + digit for position, digit in enumerate(digits)]


def cluster_digits(vectors: NDArray[np.float32], k: int = 10, c: int = 100, seed: int = 0) -> list[tuple[int, ...]]:
    """Cluster documents again and again: a path of cluster numbers, and the place in the leaf (DSI's semantic ids).

    Parameters
    ----------
    vectors : (N, dim)
    k : int
        Clusters of a level.
    c : int
        A cluster of at most this many documents is a leaf.
    seed : int

    Returns
    -------
    list of N different tuples

    Examples
    --------
    >>> cluster_digits(np.array([[0.0], [0.1], [9.0], [9.1]]), k=2, c=2) in (
    ...     [(0, 0), (0, 1), (1, 0), (1, 1)], [(1, 0), (1, 1), (0, 0), (0, 1)])
    True
    """
    if k < 2:
        raise invalid("k", "cluster_digits", "at least 2", k)
    if c < 1:
        raise invalid("c", "cluster_digits", "at least 1", c)
    vectors = np.asarray(vectors, dtype=np.float32)
    found: list[tuple[int, ...]] = [()] * len(vectors)
    waiting: list[tuple[NDArray[np.int64], tuple[int, ...]]] = [(np.arange(len(vectors)), ())]
    while waiting:
        members, path = waiting.pop()
        if len(members) <= c:
            for place, member in enumerate(members):
                found[member] = (*path, place)
            continue
        label = _split(vectors[members], k, seed + len(path))
        waiting += [(members[label == cluster], (*path, int(cluster))) for cluster in np.unique(label)]
    return found


def _split(vectors: NDArray[np.float32], k: int, seed: int) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans

    k = min(k, len(vectors))
    distinct = len(np.unique(vectors, axis=0))
    if distinct > 1:
        label = KMeans(min(k, distinct), n_init=1, random_state=seed).fit_predict(vectors).astype(np.int64)
        if len(np.unique(label)) > 1:
            return np.asarray(label)
    # The vectors of identical documents are equal; an even split ends the recursion.
    return np.arange(len(vectors)) * k // len(vectors)


def lsa_vectors(texts: Sequence[str], dim: int = 128, seed: int = 0) -> NDArray[np.float32]:
    """Return a vector of unit length for each text: TF-IDF, projected onto its first singular vectors."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    counts = TfidfVectorizer(sublinear_tf=True, token_pattern=r"(?u)\w+").fit_transform(texts)
    dim = min(dim, counts.shape[1] - 1, counts.shape[0] - 1)
    if dim < 1:
        return np.asarray(counts.toarray(), dtype=np.float32)
    projected = TruncatedSVD(dim, random_state=seed).fit_transform(counts)
    return np.asarray(normalize(projected), dtype=np.float32)


def title_prefixes(
    tokens: Sequence[Sequence[int]], title_lengths: Sequence[int], longest: int = LONGEST
) -> list[list[int]]:
    """Return the beginning of each document's "title text" that distinguishes it from all others (GENRE).

    It is the title if no other document has the same. Documents of one title go on into their texts until they differ;
    those that are alike over `longest` tokens share an identifier.

    Parameters
    ----------
    tokens : token ids of "title text" of each document
    title_lengths : how many of them are the title

    Examples
    --------
    >>> title_prefixes([[7, 8, 3, 4], [7, 8, 3, 5], [9, 2, 2]], [2, 2, 1])
    [[7, 8, 3, 4], [7, 8, 3, 5], [9]]
    """
    length = [
        min(len(ids), longest, title) if title else min(len(ids), SHORTEST)
        for ids, title in zip(tokens, title_lengths, strict=True)
    ]
    while True:
        found = [tuple(ids[:n]) for ids, n in zip(tokens, length, strict=True)]
        count = Counter(found)
        grew = False
        for number, identifier in enumerate(found):
            if count[identifier] > 1 and length[number] < min(len(tokens[number]), longest):
                length[number] += 1
                grew = True
        if not grew:
            return [list(identifier) for identifier in found]
