"""`check`: read everything and report what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import CorruptIndexError
from weft.storage.arrays import SEE_CHECK
from weft.storage.catalogue import Catalogue, SegmentRow
from weft.storage.database import faults_named
from weft.storage.folder import SEGMENTS, segment_files
from weft.storage.lock import last_mark
from weft.storage.segments import Segment, in_parts, open_segment
from weft.storage.store import Store
from weft.storage.views import ATTEMPTS

_LISTED = 10


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
    store.check_process()
    with faults_named(store.folder):
        return _check(store)


def _check(store: Store) -> Report:
    mark = last_mark(store.folder)
    try:
        catalogue = Catalogue.open(store.folder)
    except CorruptIndexError as error:
        return Report((str(error),), ())
    try:
        lexical = catalogue.lexical_integrity()
        tried = -1
        for attempt in range(ATTEMPTS):
            with catalogue.snapshot():
                generation, rows = catalogue.generation(), catalogue.segments()
                # A file written meanwhile is not a leftover: list the files before asking which are named.
                there = [path.name for path in segment_files(store.folder)]
                opened = [_open(store, row) for row in rows]
                if (
                    any(isinstance(s, CorruptIndexError) for s in opened)
                    and generation != tried
                    and attempt < ATTEMPTS - 1
                ):
                    # A merge may have removed a file after we read its name; look again, if there is a newer state.
                    tried = generation
                    continue
                problems = [f"{catalogue.file}: {line}" for line in lexical + catalogue.integrity()]
                if mark > generation:
                    problems.append(f"{catalogue.file}: commits {generation + 1} to {mark} are missing")
                problems += _row_problems(catalogue)
                problems += _tombstone_problems(catalogue)
                for row, segment in zip(rows, opened, strict=True):
                    problems += _segment_problems(store, row, segment)
                segments = [segment for segment in opened if isinstance(segment, Segment)]
                if len(segments) == len(rows):  # else it is plain why documents are missing
                    problems += _document_problems(catalogue, segments)
                named = {row.file for row in rows}
                problems = [problem.removesuffix(SEE_CHECK) for problem in problems]
                return Report(tuple(problems), tuple(name for name in there if name not in named))
        raise AssertionError("the last attempt returns")
    except CorruptIndexError as error:  # of the catalogue itself: nothing more can be said
        return Report((*(f"{catalogue.file}: {line}" for line in catalogue.integrity()), str(error)), ())
    finally:
        catalogue.close()


def _row_problems(catalogue: Catalogue) -> Iterator[str]:
    try:
        torn = catalogue.torn()
    except CorruptIndexError as error:
        yield str(error)
        return
    yield from (f"{catalogue.file}: checksum of document {name!r}" for name in list(torn.values())[:_LISTED])


def _tombstone_problems(catalogue: Catalogue) -> Iterator[str]:
    try:
        catalogue.tombstones()
    except CorruptIndexError as error:
        yield str(error)


def _open(store: Store, row: SegmentRow) -> Segment | CorruptIndexError:
    try:
        return open_segment(store.folder / SEGMENTS / row.file, row.first)
    except CorruptIndexError as error:
        return error


def _segment_problems(store: Store, row: SegmentRow, segment: Segment | CorruptIndexError) -> Iterator[str]:
    if isinstance(segment, CorruptIndexError):
        yield str(segment)
        return
    try:
        segment.verify()
        segment.warm()  # all that a search would refuse
        for name, stored, found in (
            ("documents", row.documents, len(segment)),
            ("tokens", row.tokens, segment.n_tokens),
            ("dimensions", store.dim, segment.dim),
        ):
            if stored != found:
                yield f"{segment.path}: has {found} {name}, the catalogue says {stored}"
        if not segment.coded:
            for part in in_parts(segment, np.arange(len(segment))):
                if not bool(np.isfinite(segment.select(part).values).all()):
                    yield f"{segment.path}: damaged: vectors that are not finite"
                    return
    except CorruptIndexError as error:
        yield str(error)


def _document_problems(catalogue: Catalogue, segments: list[Segment]) -> Iterator[str]:
    """Every number in a segment belongs to one document or one tombstone: never to both, to neither, or twice."""
    try:
        numbers = np.concatenate([np.zeros(0, np.int64), *(segment.numbers for segment in segments)])
    except CorruptIndexError:  # told already
        return
    documents, (tombstones, _) = catalogue.numbers(), catalogue.tombstones(verify=False)
    file = catalogue.file
    stored, uses = np.unique(numbers, return_counts=True)
    yield from _each(stored[uses > 1], f"{file}: two segments hold document {{}}")
    yield from _each(np.intersect1d(documents, tombstones), f"{file}: document {{}} is there and deleted")
    neither = np.setdiff1d(stored, np.union1d(documents, tombstones))
    yield from _each(neither, f"{file}: document {{}} of a segment is not in the catalogue")
    yield from _each(np.setdiff1d(documents, stored), f"{file}: document {{}} is in no segment")


def _each(numbers: NDArray[np.int64], line: str) -> Iterator[str]:
    return (line.format(number) for number in numbers[:_LISTED])
