"""What reading a result needs, three bytes a token: where the token stands in its text, and how salient it is.

A span is stored as two bytes: how far its start lies after the end of the one before (less `BACK`, for tokens that
share a character), and its length. What does not fit, and what is not of the text at all, has marks of its own; spans
that do not fit are listed apart. A salience is stored as a number of four bits and an exponent of four.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]

BACK = 64
OUTSIDE = 254
"""A token that is not of the text: its span is (-1, -1)."""
LISTED = 255
"""A span that two bytes cannot hold."""
_SMALLEST = 2.0**-8
"""A salience below is stored as 0; 255 stands for 240, the largest."""


class Spans(NamedTuple):
    """Spans of the tokens of some documents, coded."""

    steps: Bytes
    """(T,)"""
    lengths: Bytes
    """(T,)"""
    listed: Ints
    """(E, 3): token, start, stop"""


class Places(NamedTuple):
    """Spans of one document's tokens among those of others, coded."""

    steps: Bytes
    lengths: Bytes
    listed: Ints
    """In the order of their tokens"""
    first: int
    stop: int
    """The document's tokens are first:stop"""

    @classmethod
    def of(cls, spans: Ints) -> Places:
        """Code the spans (m, 2) of a document."""
        return cls(*pack_spans(spans, np.array([0, len(spans)])), 0, len(spans))

    def unpacked(self) -> Ints:
        """Return the spans, (m, 2)."""
        inside = slice(*np.searchsorted(self.listed[:, 0], (self.first, self.stop)))
        listed = self.listed[inside] - np.array([self.first, 0, 0], np.int32)
        own = Spans(self.steps[self.first : self.stop], self.lengths[self.first : self.stop], listed)
        return unpack_spans(own, np.array([0, self.stop - self.first]))


def pack_spans(spans: Ints, offsets: NDArray[np.int64]) -> Spans:
    """Code spans (T, 2) of documents that begin at `offsets`.

    Examples
    --------
    >>> spans = np.array([[-1, -1], [0, 3], [4, 9], [4, 9], [9, 500]], np.int32)
    >>> packed = pack_spans(spans, np.array([0, 5]))
    >>> packed.steps.tolist(), packed.lengths.tolist(), packed.listed.tolist()
    ([254, 64, 65, 59, 255], [0, 3, 5, 5, 0], [[4, 9, 500]])
    >>> unpack_spans(packed, np.array([0, 5])).tolist() == spans.tolist()
    True
    """
    starts, stops = spans[:, 0].astype(np.int64), spans[:, 1].astype(np.int64)
    inside = stops >= 0
    # The end of the last token of the text before, of the same document: 0 at its beginning.
    step = starts - _previous(np.where(inside, stops, 0), inside, offsets) + BACK
    length = stops - starts
    fits = inside & (step >= 0) & (step < OUTSIDE) & (length >= 0) & (length <= 255)
    apart = np.flatnonzero(inside & ~fits)
    steps = np.where(fits, step, np.where(inside, LISTED, OUTSIDE)).astype(np.uint8)
    lengths = np.where(fits, length, 0).astype(np.uint8)
    return Spans(steps, lengths, np.stack([apart, starts[apart], stops[apart]], axis=1).astype(np.int32))


def unpack_spans(packed: Spans, offsets: NDArray[np.int64]) -> Ints:
    """Return the spans (T, 2) of documents that begin at `offsets`."""
    spans = np.full((len(packed.steps), 2), -1, dtype=np.int32)
    fits = packed.steps < OUTSIDE
    moved = np.where(fits, packed.steps.astype(np.int64) - BACK + packed.lengths, 0)
    ends = np.cumsum(moved)
    base = np.repeat(np.concatenate([[0], ends])[offsets[:-1]], np.diff(offsets))
    shift = np.zeros(len(ends), dtype=np.int64)
    for token, start, stop in packed.listed.tolist():
        spans[token] = start, stop
        last = int(offsets[np.searchsorted(offsets, token, side="right")])  # of its document
        shift[token:last] = stop - (ends[token] - base[token])
    ends = ends - base + shift
    spans[fits, 1] = ends[fits]
    spans[fits, 0] = (ends - packed.lengths)[fits]
    return spans


def _previous(values: NDArray[np.int64], known: NDArray[np.bool_], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The last known value before each token of its document, 0 if there is none."""
    place = np.where(known, np.arange(len(values)), -1)
    last = np.concatenate([[-1], np.maximum.accumulate(place)[:-1]]) if len(place) else place
    begin = np.repeat(offsets[:-1], np.diff(offsets))
    return np.where(last >= begin, values[np.maximum(last, 0)] if len(values) else values, 0)


def pack_salience(salience: NDArray[np.float32]) -> Bytes:
    """Round saliences to bytes, off by at most a thirtieth.

    Examples
    --------
    >>> unpack_salience(pack_salience(np.array([0.0, 0.5, 1.19, 3.0], np.float32))).tolist()
    [0.0, 0.5, 1.1875, 3.0]
    """
    fraction, exponent = np.frexp(np.maximum(salience.astype(np.float64), 0) / _SMALLEST)  # fraction · 2^exponent
    number = (exponent - 1) * 16 + np.rint((2 * fraction - 1) * 16)
    packed: Bytes = np.where(salience >= _SMALLEST, np.clip(number, 0, 254) + 1, 0).astype(np.uint8)
    return packed


def unpack_salience(packed: Bytes) -> NDArray[np.float32]:
    """Return the saliences behind bytes."""
    number = packed.astype(np.int64) - 1
    values = _SMALLEST * (1 + number % 16 / 16) * 2.0 ** (number // 16)
    return np.where(packed > 0, values, 0).astype(np.float32)
