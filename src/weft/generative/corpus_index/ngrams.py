"""The constraint of SEAL: everything decoded is an n-gram of the corpus."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.generative.corpus_index.base import NGramIndex, States


class NGrams:
    """Any n-gram of the corpus is an identifier (a `weft.generative.constraint.Constraint` of `States`).

    Examples
    --------
    >>> from weft.generative.corpus_index import TokenTextIndex
    >>> grams = TokenTextIndex.build([[5, 6, 7], [6, 8]], ["a", "b"], vocabulary=10).constraint()
    >>> state = grams.advance(grams.start(1), np.array([0]), np.array([6], dtype=np.int32))
    >>> [found.tolist() for found in grams.continuations(state)]
    [[0, 2], [7, 8]]
    """

    def __init__(self, index: NGramIndex) -> None:
        self.index = index

    def start(self, n: int) -> States:
        """Return the state of `n` beams with the empty prefix."""
        return self.index.start(n)

    def continuations(self, state: States) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return offsets (n + 1,) and the tokens that follow each prefix in the corpus."""
        return self.index.following(state)

    def advance(self, state: States, beams: NDArray[np.int64], tokens: NDArray[np.int32]) -> States:
        """Return the state of the chosen beams, each one token longer."""
        return self.index.advance(state, beams, tokens)

    def complete(self, state: States) -> NDArray[np.bool_]:
        """Return whether each prefix is an n-gram of the corpus: all that beam search makes are, but the empty one."""
        return (state.high > state.low) & (state.depth > 0)
