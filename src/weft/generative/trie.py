"""Prefix tries as constraints: identifiers of a fixed set, of any lengths, some of which may begin others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from weft.errors import invalid

Nodes = NDArray[np.int64]
"""The state of beams: the node of each, -1 for a prefix that no identifier has."""


class Trie:
    """All identifiers of a set, as arrays: children of a node lie together, by token.

    Parameters
    ----------
    identifiers : sequences of token ids
        Equal ones count once.

    Examples
    --------
    >>> trie = Trie([[5, 7], [5, 8], [6]])
    >>> offsets, tokens = trie.continuations(trie.start(1))
    >>> tokens.tolist()
    [5, 6]
    >>> after = trie.advance(trie.start(1), np.array([0, 0]), np.array([5, 6], np.int32))
    >>> [part.tolist() for part in trie.continuations(after)], trie.complete(after).tolist()
    ([[0, 2, 2], [7, 8]], [False, True])
    """

    def __init__(self, identifiers: Iterable[Sequence[int]]) -> None:
        listed = [np.asarray(identifier, dtype=np.int64) for identifier in identifiers]
        lengths = np.array([len(identifier) for identifier in listed], dtype=np.int64)
        if not len(listed):
            raise invalid("identifiers", "Trie", "at least one identifier", [])
        if not lengths.all():
            raise invalid("identifiers", "Trie", "of at least one token each", [])
        flat = np.concatenate(listed)
        if flat.min() < 0:
            raise invalid("identifiers", "Trie", "of token ids at least 0", int(flat.min()))
        self.width = int(flat.max()) + 1
        """One more than the highest token."""
        self.depth = int(lengths.max())
        """Tokens of the longest identifier."""
        # Level by level: the children of all nodes of a level, by (parent, token), are the next level's nodes.
        begins = np.cumsum(lengths) - lengths
        going = np.arange(len(listed))
        at = np.zeros(len(listed), dtype=np.int64)  # the node that each identifier has reached
        keys: list[NDArray[np.int64]] = []
        ends: list[NDArray[np.int64]] = []
        nodes = 1
        for level in range(self.depth):
            longer = lengths[going] > level
            going, at = going[longer], at[longer]
            made, which = np.unique(at * self.width + flat[begins[going] + level], return_inverse=True)
            keys.append(made)
            at = nodes + which
            nodes += len(made)
            ends.append(at[lengths[going] == level + 1])
        self._keys = np.concatenate(keys)  # ascending, so a child is found by bisection; its node is its place and one
        parents, tokens = np.divmod(self._keys, self.width)
        self._tokens = tokens.astype(np.int32)
        self._offsets = np.searchsorted(parents, np.arange(nodes + 1))
        self._ends = np.zeros(nodes, dtype=np.bool_)
        self._ends[np.concatenate(ends)] = True

    def start(self, n: int) -> Nodes:
        """Return `n` beams at the root."""
        return np.zeros(n, dtype=np.int64)

    def continuations(self, state: Nodes) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the tokens that may follow each beam, as offsets and ascending tokens."""
        known = np.maximum(state, 0)
        begins = self._offsets[known]
        counts = np.where(state >= 0, self._offsets[known + 1] - begins, 0)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        places = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], counts)
        return offsets, self._tokens[places]

    def advance(self, state: Nodes, beams: NDArray[np.int64], tokens: NDArray[np.int32]) -> Nodes:
        """Return the chosen beams, each one token longer."""
        nodes = state[beams]
        keys = nodes * self.width + tokens
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        valid = (nodes >= 0) & (tokens >= 0) & (tokens < self.width) & (self._keys[places] == keys)
        return np.where(valid, places + 1, -1)

    def complete(self, state: Nodes) -> NDArray[np.bool_]:
        """Return whether each beam's prefix is an identifier."""
        return (state >= 0) & self._ends[np.maximum(state, 0)]


class ClusterTrie:
    """A trie of plain tokens, each decoded by any of its clusters (NP-decoding).

    The decoder's vocabulary are clusters of contextual token vectors; a cluster belongs to one token.

    Parameters
    ----------
    trie : Trie
        Over plain tokens.
    token_of : array of int64, shape (C,)
        The token of each cluster, -1 for numbers that are no cluster.

    Examples
    --------
    >>> trie = ClusterTrie(Trie([[5, 7], [6]]), np.array([-1, -1, 5, 5, 6, 7]))
    >>> trie.continuations(trie.start(1))[1].tolist()  # two clusters of 5, one of 6
    [2, 3, 4]
    """

    def __init__(self, trie: Trie, token_of: NDArray[np.int64]) -> None:
        self.trie, self.token_of = trie, np.asarray(token_of, dtype=np.int64)
        order = np.argsort(self.token_of, kind="stable")
        self._clusters = order[np.searchsorted(self.token_of[order], 0) :].astype(np.int32)
        # Where the clusters of each token of the trie begin; a token may have none.
        self._begins = np.searchsorted(self.token_of[self._clusters], np.arange(trie.width + 1))

    def start(self, n: int) -> Nodes:
        """Return `n` beams at the root."""
        return self.trie.start(n)

    def continuations(self, state: Nodes) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the clusters of all tokens that may follow each beam, ascending."""
        offsets, tokens = self.trie.continuations(state)
        begins, counts = self._begins[tokens], self._begins[tokens + 1] - self._begins[tokens]
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        clusters = self._clusters[np.arange(ends[-1]) + np.repeat(begins - ends[:-1], counts)]
        spread = ends[offsets]
        beams = np.repeat(np.arange(len(state)), np.diff(spread))
        return spread, clusters[np.lexsort((clusters, beams))]

    def advance(self, state: Nodes, beams: NDArray[np.int64], tokens: NDArray[np.int32]) -> Nodes:
        """Return the chosen beams, each longer by the token of a cluster."""
        return self.trie.advance(state, beams, self.token_of[tokens].astype(np.int32))

    def complete(self, state: Nodes) -> NDArray[np.bool_]:
        """Return whether each beam's tokens are an identifier."""
        return self.trie.complete(state)
