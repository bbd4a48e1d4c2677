"""Adding and deleting documents: operations that one transaction does together, in order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.storage.catalogue import Catalogue
from weft.storage.segments.pieces import Given
from weft.types import Document, TokenVectors


class Addition(NamedTuple):
    """Documents to be added together, checked."""

    documents: list[Document]
    vectors: TokenVectors
    full_lengths: NDArray[np.int64] | None = None
    """How many tokens documents had before they were pruned"""


Operation = Addition | Sequence[str]
"""An addition, or the ids of documents to be deleted."""


class NewSegment:
    """Additions of one kind, which go into one segment."""

    def __init__(self) -> None:
        self.pieces: list[Given] = []
        self.documents: list[list[Document]] = []

    @property
    def tokens(self) -> int:
        """Tokens of all documents."""
        return sum(int(piece.lengths.sum()) for piece in self.pieces)


def new_segments(
    operations: Sequence[Operation], *, reading: bool, weighs: bool, find_by: float | None = None
) -> list[NewSegment]:
    """Return the segments that additions make: one, unless they differ in what their tokens have beside vectors."""
    groups: dict[object, NewSegment] = {}
    for operation in operations:
        if isinstance(operation, Addition):
            piece = Given(
                operation.vectors, reading=reading, weighs=weighs, find_by=find_by, full_lengths=operation.full_lengths
            )
            group = groups.setdefault((piece.dtype.str, piece.columns), NewSegment())
            group.pieces.append(piece)
            group.documents.append(operation.documents)
    return list(groups.values())


def commit(
    catalogue: Catalogue, operations: Sequence[Operation], segments: Sequence[NewSegment], files: Sequence[Path]
) -> int:
    """Name the files of new segments and do the operations, inside a transaction; return how many were deleted."""
    number, first = catalogue.next_number(), dict[int, int]()  # an addition's documents, by identity → first number
    for segment, path in zip(segments, files, strict=True):
        catalogue.add_segment(path.name, sum(map(len, segment.documents)), segment.tokens, number)
        for documents in segment.documents:
            first[id(documents)] = number
            number += len(documents)
    deleted = 0
    for operation in operations:
        if isinstance(operation, Addition):
            for ordinal, document in enumerate(operation.documents):
                catalogue.put(document, first[id(operation.documents)] + ordinal)
        else:
            deleted += sum(catalogue.delete(name) for name in operation)
    return deleted
