"""Committed states of a store, as readers hold them: connections to the catalogue, open segments, what in them counts.

Any number of threads may read at once. Each takes a connection from a pool for as long as it holds a view; the segments
and the masks of what counts are loaded once for each state, and shared.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import CorruptIndexError, IndexStateError
from weft.storage.ahead import map_ahead
from weft.storage.catalogue import Catalogue, SegmentRow
from weft.storage.database import faults_named
from weft.storage.folder import SEGMENTS
from weft.storage.segments import Allowed, Segment, open_segment

ATTEMPTS = 8
"""How often a newer state is looked up when a merge has just removed files of this one."""


@dataclass(frozen=True, eq=False)
class LiveSegment:
    """A segment as one committed state sees it."""

    number: int
    segment: Segment
    live: NDArray[np.bool_]
    """(N,) False where a document was deleted or replaced."""
    ids: dict[int, str] = field(default_factory=dict)
    """Ids by the catalogue's number, as far as they were asked for."""

    @cached_property
    def allowed(self) -> Allowed:
        """What counts, counted."""
        return Allowed.of(self.live)


@dataclass(frozen=True, eq=False)
class View:
    """One committed state of a store."""

    generation: int
    segments: tuple[LiveSegment, ...]
    alignment: str | None
    """The index's own, if it was given one."""
    damaged: tuple[str, ...] = ()
    """Files of segments that are left out"""
    missing: int = 0
    """Documents in them, deleted ones included"""

    @cached_property
    def documents(self) -> int:
        """How many documents there are."""
        return sum(s.allowed.number for s in self.segments)

    @cached_property
    def tokens(self) -> int:
        """Tokens of all segments, deleted ones included."""
        return sum(s.segment.n_tokens for s in self.segments)


class _Held(NamedTuple):
    catalogue: Catalogue
    view: View | None


class Views:
    """The readers' side of a store."""

    def __init__(self, folder: Path, catalogue: Catalogue, *, skips: bool = False, copies: bool = False) -> None:
        self.folder = folder
        self._skips, self._copies = skips, copies
        self._damaged: dict[int, SegmentRow] = {}
        self._pool = [catalogue]
        self._pool_guard = threading.Lock()
        self._closed = False
        self._process = os.getpid()
        self._local = threading.local()
        self._loading = threading.Lock()
        self._latest: View | None = None
        self._dead = np.zeros(0, np.int64)  # numbers of deleted documents, ascending
        self._seen = 0  # the last burial among them
        self._adopted: dict[str, Segment] = {}

    # -- connections ---------------------------------------------------------------------------------

    @property
    def forked(self) -> bool:
        """True in a child that was forked after the index was opened."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        """Refuse to go on in a forked child: SQLite's connections, the writer's lock and threads are the parent's."""
        if self.forked:
            raise IndexStateError(
                f"the index at {self.folder} was opened before this process was forked; open it again in this process"
            )

    def check_open(self) -> None:
        """Refuse to go on with an index that was closed."""
        if self._closed:
            raise IndexStateError(f"the index at {self.folder} is closed")

    def reading(self) -> AbstractContextManager[Catalogue]:
        """Hold one committed state of the catalogue, without its segments; inside a view, that one."""
        self.check_process()
        held: _Held | None = getattr(self._local, "held", None)
        return self._read() if held is None else nullcontext(held.catalogue)

    @contextmanager
    def _read(self) -> Iterator[Catalogue]:
        catalogue = self._taken()
        try:
            with catalogue.snapshot():
                self._local.held = _Held(catalogue, None)
                yield catalogue
        finally:
            self._local.held = None
            self._give_back(catalogue)

    def _taken(self) -> Catalogue:
        with self._pool_guard:
            self.check_open()
            if self._pool:
                return self._pool.pop()
        return Catalogue.open(self.folder)

    def _give_back(self, catalogue: Catalogue) -> None:
        with self._pool_guard:
            if not self._closed:
                self._pool.append(catalogue)
                return
        catalogue.close()

    def let_go(self) -> None:
        """Close the connections that are not in use."""
        with self._pool_guard:
            for catalogue in self._pool:
                catalogue.close()
            self._pool.clear()

    def close(self) -> None:
        """Close the connections; those in use are closed when their readers are done."""
        with self._pool_guard:
            self._closed = True
            for catalogue in self._pool:
                catalogue.close()
            self._pool.clear()
        self._latest = None

    # -- states --------------------------------------------------------------------------------------

    def view(self) -> AbstractContextManager[View]:
        """Hold the newest committed state: what is read inside, ids and texts included, belongs together."""
        self.check_process()
        held: _Held | None = getattr(self._local, "held", None)
        if held is not None and held.view is not None:  # a search asks for it several times
            return nullcontext(held.view)
        assert held is None, "a view cannot begin inside a reading"
        return self._newest()

    @contextmanager
    def _newest(self) -> Iterator[View]:
        tried, failed = -1, 0
        catalogue = self._taken()
        try:
            while True:
                with catalogue.snapshot():
                    generation = catalogue.generation()
                    try:
                        view = self._state(catalogue, generation, skip=self._skips and generation == tried)
                    except CorruptIndexError:
                        # A merge may have removed a file after we read its name; then there is a newer state.
                        failed += 1
                        if generation == tried or failed == ATTEMPTS:
                            raise
                        tried = generation
                        continue
                    if view is None:
                        continue
                    self._local.held = _Held(catalogue, view)
                    yield view
                    return
        finally:
            self._local.held = None
            self._give_back(catalogue)

    def _state(self, catalogue: Catalogue, generation: int, *, skip: bool = False) -> View | None:
        """Return the view of a state; None if another thread has loaded a newer one meanwhile."""
        latest = self._latest
        if latest is None or latest.generation != generation:
            with self._loading, faults_named(self.folder):
                latest = self._latest
                if latest is not None and latest.generation > generation:
                    return None
                if latest is None or latest.generation != generation:
                    self._latest = latest = self._load(catalogue, generation, skip=skip)
        return latest

    def adopt(self, path: Path) -> None:
        """Open a segment that this process has just written, before a commit names it.

        The first search after the commit then finds it open, and does not verify bytes that this process has just
        written.
        """
        segment = open_segment(path, trusted=True, copied=self._copies)
        segment.warm()
        map_ahead(segment)
        self._adopted[path.name] = segment

    def disown(self, name: str) -> None:
        """Forget a segment that was not committed after all."""
        self._adopted.pop(name, None)

    def _load(self, catalogue: Catalogue, generation: int, *, skip: bool = False) -> View:
        known = {s.number: s for s in self._latest.segments} if self._latest is not None else {}
        rows = catalogue.segments()
        fresh, seen = catalogue.tombstones(self._seen)
        fresh.sort()
        dead = np.union1d(self._dead, fresh) if len(fresh) else self._dead
        loaded = []
        for row in rows:
            old = known.get(row.segment)
            if old is None:
                if row.segment in self._damaged:
                    continue
                try:
                    segment = self._opened(row)
                except CorruptIndexError:
                    if not skip:
                        raise
                    self._damaged[row.segment] = row
                    continue
                loaded.append(LiveSegment(row.segment, segment, _without(np.ones(len(segment), bool), segment, dead)))
                continue
            live = _without(old.live, old.segment, fresh)
            loaded.append(old if live is old.live else LiveSegment(row.segment, old.segment, live, old.ids))
        deleted = sum(len(s.live) - s.allowed.number for s in loaded)
        if len(dead) > 2 * deleted + 1000:  # most were of segments that are gone
            dead = np.sort(np.concatenate([np.zeros(0, np.int64), *(s.segment.numbers[~s.live] for s in loaded)]))
        self._dead, self._seen = dead, seen
        aside = [row for row in rows if row.segment in self._damaged]
        missing = sum(row.documents for row in aside)
        alignment = catalogue.settings().get("alignment")
        return View(generation, tuple(loaded), alignment, tuple(row.file for row in aside), missing)

    def _opened(self, row: SegmentRow) -> Segment:
        """Open a segment that the catalogue names, if it is the one that is meant."""
        segment = self._adopted.pop(row.file, None)
        if segment is None:
            segment = open_segment(self.folder / SEGMENTS / row.file, copied=self._copies)
        segment.first = row.first
        if (len(segment), segment.n_tokens) != (row.documents, row.tokens):
            raise CorruptIndexError(f"{segment.path}: damaged: it is not the one that the catalogue names")
        if self._skips:
            segment.verify()
            segment.warm()
        return segment


def _without(live: NDArray[np.bool_], segment: Segment, dead: NDArray[np.int64]) -> NDArray[np.bool_]:
    gone = segment.ordinals_of(dead)
    if not len(gone):
        return live
    live = live.copy()
    live[gone] = False
    return live
