"""What a back end is: it turns batches of token ids into token vectors and, if the model has them, salience scores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.encoders.tokenizing import Tokens

QUERY, DOCUMENT = "query", "document"


class Batch(NamedTuple):
    """A rectangular batch of B texts. Shapes (B, T), int64: ids, and 1 where the model attends."""

    ids: NDArray[np.int64]
    attention: NDArray[np.int64]


class Output(NamedTuple):
    """Vectors (B, T, dim) and salience scores s ≥ 0 before the gate (B, T), float32; scores None without saliences."""

    vectors: NDArray[np.float32]
    scores: NDArray[np.float32] | None


class Batches:
    """A sequence of batches, each laid out on demand."""

    def __init__(self, groups: Sequence[Sequence[Tokens]], pad_id: int) -> None:
        self._groups = groups
        self._pad_id = pad_id

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Batch]:
        return (collate(group, self._pad_id) for group in self._groups)


class Backend(Protocol):
    """A model that runs."""

    kind: str
    batched: bool
    """Whether several texts at a time are faster than one; otherwise every batch is a single text."""

    def run(self, batches: Batches, task: str, threads: int) -> Iterator[Output]:
        """Yield the output of each batch, in order."""
        ...

    def fingerprint(self) -> str:
        """Return the hash of the vector space."""
        ...


def collate(texts: Sequence[Tokens], pad_id: int) -> Batch:
    """Lay texts side by side, padded on the right."""
    longest = max(len(tokens) for tokens in texts)
    ids = np.full((len(texts), longest), pad_id, dtype=np.int64)
    attention = np.zeros((len(texts), longest), dtype=np.int64)
    for row, tokens in enumerate(texts):
        ids[row, : len(tokens)] = tokens.ids
        attention[row, : len(tokens)] = tokens.attended
    return Batch(ids, attention)


def usable_cpus() -> int:
    """Return how many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
