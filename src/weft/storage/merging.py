"""Merging segments without holding them in memory: vectors go through a file, a few thousand tokens at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.storage.arrays import release, scratch_array
from weft.storage.segment import Segment
from weft.types import TokenVectors

CHUNK_TOKENS = 20_000


class Part(NamedTuple):
    """Documents of one segment that go into a merged one."""

    segment: Segment
    ordinals: NDArray[np.int64]


def kind(segment: Segment) -> tuple[Any, ...]:
    """Return what segments must share to be merged: precision, and whether tokens have ids and saliences."""
    none = segment.vectors(0, 0)
    return none.values.dtype.str, none.token_ids is None, none.salience is None


def in_parts(segment: Segment, ordinals: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Cut documents of a segment into parts of a few thousand tokens."""
    tokens = np.cumsum(segment.offsets[ordinals + 1] - segment.offsets[ordinals])
    start = 0
    while start < len(ordinals):
        before = tokens[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(tokens, before + CHUNK_TOKENS, side="right")))
        yield ordinals[start:stop]
        start = stop


@contextmanager
def merged(parts: Sequence[Part], folder: Path) -> Iterator[TokenVectors]:
    """Lay documents of several segments of one kind end to end; their vectors lie in a nameless file in `folder`."""
    lengths = np.concatenate([np.diff(part.segment.offsets)[part.ordinals] for part in parts])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    none = parts[0].segment.vectors(0, 0)
    shape = (int(offsets[-1]), none.dim)
    token_ids = None if none.token_ids is None else np.empty(shape[0], dtype=np.int32)
    salience = None if none.salience is None else np.empty(shape[0], dtype=np.float32)
    with scratch_array(folder, none.values.dtype, shape) as values:
        start = 0
        for part in parts:
            for ordinals in in_parts(part.segment, part.ordinals):
                some = part.segment.select(ordinals)
                rows = slice(start, start + some.n_tokens)
                values[rows] = some.values
                if token_ids is not None and some.token_ids is not None:
                    token_ids[rows] = some.token_ids
                if salience is not None and some.salience is not None:
                    salience[rows] = some.salience
                start = rows.stop
                release(values)
                part.segment.release()
        yield TokenVectors.trusted(values, offsets, token_ids, salience)
