"""`check`: read everything and say what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from weft.errors import CorruptIndexError
from weft.storage.catalogue import Catalogue, SegmentRow
from weft.storage.segment import Segment
from weft.storage.store import ATTEMPTS, SEGMENTS, Store


@dataclass(frozen=True)
class Report:
    """What `check` found."""

    problems: tuple[str, ...]
    """Damage: each names a file or a document."""
    leftovers: tuple[str, ...]
    """Files that no committed state names; harmless, removed by the next writer."""

    @property
    def sound(self) -> bool:
        """True if nothing is damaged."""
        return not self.problems


def check(store: Store) -> Report:
    """Verify every checksum and every cross-reference of one committed state.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from weft.types import TokenVectors
    >>> with Store.create(tempfile.mkdtemp(), dim=2) as store:
    ...     store.add(["a"], TokenVectors.from_list([np.ones((3, 2))]))
    ...     check(store)
    Report(problems=(), leftovers=())
    """
    catalogue = store.catalogue
    lexical = catalogue.lexical_integrity()
    tried = -1
    for attempt in range(ATTEMPTS):
        with catalogue.snapshot(), ExitStack() as stack:
            generation, rows = catalogue.generation(), catalogue.segments()
            opened = [_open(store, row, stack) for row in rows]
            if any(isinstance(s, CorruptIndexError) for s in opened) and generation != tried and attempt < ATTEMPTS - 1:
                # A compaction may have removed a file after we read its name; look again, if there is a newer state.
                tried = generation
                continue
            problems = [f"{catalogue.file}: {line}" for line in lexical + catalogue.integrity()]
            for row, segment in zip(rows, opened, strict=True):
                problems += _segment_problems(store, catalogue, row, segment)
            named = {row.file for row in rows}
            leftovers = sorted(p.name for p in (store.folder / SEGMENTS).iterdir() if p.name not in named)
            return Report(tuple(problems), tuple(leftovers))
    raise AssertionError("the last attempt returns")


def _open(store: Store, row: SegmentRow, stack: ExitStack) -> Segment | CorruptIndexError:
    try:
        segment = Segment(store.folder / SEGMENTS / row.file)
    except CorruptIndexError as error:
        return error
    stack.callback(segment.close)
    return segment


def _segment_problems(
    store: Store, catalogue: Catalogue, row: SegmentRow, segment: Segment | CorruptIndexError
) -> Iterator[str]:
    if isinstance(segment, CorruptIndexError):
        yield str(segment)
        return
    try:
        segment.verify()
        for name, stored, found in (
            ("documents", row.documents, len(segment)),
            ("tokens", row.tokens, int(segment.offsets[-1])),
            ("dimensions", store.dim, segment.dim),
        ):
            if stored != found:
                yield f"{segment.path}: has {found} {name}, the catalogue says {stored}"
        # Every ordinal is either where one document lives, or a tombstone; never both, never neither.
        uses = np.zeros(len(segment), dtype=np.int64)
        lives = np.array([ordinal for ordinal, _ in catalogue.places(row.segment)], dtype=np.int64)
        for name, ordinals in (("document", lives), ("tombstone", catalogue.tombstones(row.segment))):
            outside = ordinals[(ordinals < 0) | (ordinals >= len(segment))]
            if len(outside):
                yield f"{segment.path}: a {name} is said to be at {outside[0]}, outside the segment"
            uses += np.bincount(ordinals[(ordinals >= 0) & (ordinals < len(segment))], minlength=len(segment))
        for ordinal in np.flatnonzero(uses != 1)[:10]:
            yield f"{segment.path}: place {ordinal} is used {uses[ordinal]} times in the catalogue, not once"
    except CorruptIndexError as error:
        yield str(error)
