"""Which tokens may follow in a beam: the interface between decoding and what makes identifiers valid.

Beam search holds a state with a row for each beam, and never looks inside it. An index of the corpus (any n-gram of it
is an identifier, SEAL) and a trie (DSI, GENRE, NP-decoding) are two constraints.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

State = TypeVar("State")


class Constraint(Protocol[State]):
    """Says which tokens may follow each beam's prefix. States are values: no call changes one that it was given."""

    def start(self, n: int) -> State:
        """Return the state of `n` beams with the empty prefix."""
        ...

    def continuations(self, state: State) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the tokens that may follow: beam b's are ``tokens[offsets[b]:offsets[b + 1]]``, ascending.

        Returns
        -------
        offsets : array of int64, shape (n + 1,)
        tokens : array of int32, shape (offsets[-1],)
        """
        ...

    def advance(self, state: State, beams: NDArray[np.int64], tokens: NDArray[np.int32]) -> State:
        """Return the state of m new beams: beam ``beams[i]`` of `state`, one token ``tokens[i]`` longer.

        A beam may be chosen any number of times. A token that may not follow leads to a prefix without continuations.
        """
        ...

    def complete(self, state: State) -> NDArray[np.bool_]:
        """Return, of shape (n,), whether each beam's prefix is a whole identifier (others may still begin with it)."""
        ...
