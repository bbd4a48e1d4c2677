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
        children: list[dict[int, int]] = [{}]
        ends: set[int] = set()
        for identifier in identifiers:
            if not len(identifier):
                raise invalid("identifiers", "Trie", "of at least one token each", list(identifier))
            node = 0
            for token in identifier:
                token = int(token)
                if token < 0:
                    raise invalid("identifiers", "Trie", "of token ids at least 0", token)
                if token not in children[node]:
                    children[node][token] = len(children)
                    children.append({})
                node = children[node][token]
            ends.add(node)
        if not ends:
            raise invalid("identifiers", "Trie", "at least one identifier", [])
        self._offsets = np.concatenate([[0], np.cumsum([len(found) for found in children])]).astype(np.int64)
        pairs = [sorted(found.items()) for found in children]
        self._tokens = np.array([token for found in pairs for token, _ in found], dtype=np.int32)
        self._nodes = np.array([node for found in pairs for _, node in found], dtype=np.int64)
        self._ends = np.zeros(len(children), dtype=np.bool_)
        self._ends[list(ends)] = True
        self.width = int(self._tokens.max()) + 1
        """The highest token, and one."""
        parents = np.repeat(np.arange(len(children)), np.diff(self._offsets))
        self._keys = parents * self.width + self._tokens  # ascending, so a child is found by bisection
        depths = np.zeros(len(children), dtype=np.int64)
        for parent, node in zip(parents, self._nodes, strict=True):  # a parent's number is always the lower
            depths[node] = depths[parent] + 1
        self.depth = int(depths.max())
        """Tokens of the longest identifier."""

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
        return np.where(valid, self._nodes[places], -1)

    def complete(self, state: Nodes) -> NDArray[np.bool_]:
        """Return whether each beam's prefix is an identifier."""
        return (state >= 0) & self._ends[np.maximum(state, 0)]


class ClusterTrie:
    """A trie of plain tokens whose every token may be said by any of its clusters (NP-decoding).

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
