"""A sample of a coded segment's tokens: what a query token finds anywhere, without comparing it with all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.storage.codecs.clustering import padded_dim

if TYPE_CHECKING:
    from weft.storage.segments.coded import CodedSegment

DOCUMENTS = 2048
"""Documents that tokens are taken from: many, for the tokens of one document are alike."""
TOKENS = 8192
"""Tokens taken: of the best 0.25 %, which plain ``xtr`` retrieves, the last is then the 20th."""

AT_ONCE = 64
"""Documents decoded at a time."""


class Sample(NamedTuple):
    """Tokens evenly taken from documents evenly taken, and where they are from."""

    values: NDArray[np.float32]
    """(tokens, dim of the codes)"""
    document: NDArray[np.int64]
    """(tokens,) ordinals"""


def take_sample(segment: CodedSegment) -> Sample:
    """Decode the sample; a segment keeps it (`CodedSegment.sample`)."""
    filled = segment.with_tokens(None)
    chosen = filled[np.linspace(0, len(filled) - 1, min(DOCUMENTS, len(filled))).astype(np.int64)]
    total = int(np.diff(segment.offsets)[chosen].sum())
    rows = np.linspace(0, total - 1, min(TOKENS, total)).astype(np.int64)  # of all tokens of the chosen documents
    values = np.empty((len(rows), padded_dim(segment.dim)), dtype=np.float32)
    document = np.empty(len(rows), dtype=np.int64)
    seen = done = 0
    for some in np.array_split(chosen, -(-len(chosen) // AT_ONCE)) if len(chosen) else ():
        decoded = segment.decoded(some.astype(np.int32))
        stop = int(np.searchsorted(rows, seen + decoded.n_tokens))
        wanted = rows[done:stop] - seen
        values[done:stop] = decoded.values[wanted]
        document[done:stop] = np.repeat(some, decoded.lengths)[wanted]
        seen, done = seen + decoded.n_tokens, stop
    return Sample(values, document)
