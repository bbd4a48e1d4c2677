"""Merging segments while adds, deletes and searches go on.

A merge reads a committed state, writes a new file beside the old ones, and needs the writer's lock only for the commit
that puts the one in place of the others. What was deleted or replaced meanwhile is a tombstone of a document's number,
wherever that document lies, so nothing has to be done for it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weft.errors import invalid
from weft.storage.catalogue import Catalogue
from weft.storage.codecs import CODECS
from weft.storage.codecs.base import Codec
from weft.storage.merging import LARGE, Sized, budget, choose
from weft.storage.segments.pieces import Kept
from weft.storage.segments.writing import Shared, write_segment
from weft.storage.views import LiveSegment, View

if TYPE_CHECKING:
    from weft.storage.store import Store

MODES = ("background", "inline", "off")
CODED_TOKENS = 50_000
"""A codebook is worth its training from this many tokens on; below, scoring everything is fast enough."""
CODED_SHARE = 8
"""In an index of twice that, a segment of this part of it is coded: scoring many small segments whole costs too
much."""
THREADS = 2
LAG = 8
"""The writer itself merges once there are this many segments more than the policy allows, with those being merged."""
LENT = CODED_TOKENS // CODED_SHARE
"""It makes only segments of fewer tokens than this, which takes a few milliseconds."""
FREE = 6
"""How many segments may gather beside those being merged."""
RECENT = 32
"""The usual size of an add is the median of this many."""
_log = logging.getLogger(__name__)


def codec_for(tokens: int, bits: int, index_tokens: int) -> Codec | None:
    """Return how a segment of `tokens` tokens is stored in an index of `index_tokens`; None leaves it flat."""
    least = CODED_TOKENS if index_tokens < 2 * CODED_TOKENS else CODED_TOKENS // CODED_SHARE
    return CODECS[bits] if tokens >= least else None


class Merger:
    """The merges of one writing store: in two threads beside the writer, so that a large one holds up no small ones."""

    def __init__(self, store: Store, mode: str) -> None:
        if mode not in MODES:
            raise invalid("merge", "open", f"one of {MODES}", mode)
        self.mode = mode
        self.shared: Shared | None = None
        """What the segments written by this process have in common with those of other indexes."""
        self.merges = 0
        """How many were done."""
        self.added_bytes = 0
        """Written by adds, by this process."""
        self.written_bytes = 0
        """Written by adds and merges together."""
        self.error: Exception | None = None
        """Why the last one failed, if it did; the next write tries again."""
        self._store = store
        self._changed = threading.Condition()  # guards what follows
        self._busy: list[list[LiveSegment]] = []  # what is being merged
        self._threads: set[threading.Thread] = set()
        self._stopping = False
        self._paused = 0
        self._alone = threading.RLock()  # one compaction at a time
        self._recent: deque[int] = deque(maxlen=RECENT)  # documents of the last adds

    @property
    def running(self) -> bool:
        """Whether a merge is under way now."""
        return bool(self._busy)

    def count(self, files: Iterable[Path], documents: Iterable[int]) -> None:
        """Count files that an add wrote, each of so many documents."""
        size = sum(path.stat().st_size for path in files)
        self._recent.extend(documents)
        self.added_bytes += size
        self.written_bytes += size

    # -- when ----------------------------------------------------------------------------------------

    def after_write(self) -> None:
        """Merge what is due, as the mode says."""
        if self.mode == "off" or self._paused:
            return
        if self.mode == "inline":
            self._work(self._claim())
            return
        if len(self._threads) < THREADS and not self._stopping:
            group = self._claim()
            if group is not None:
                self._start(group)
        # If the threads cannot keep up, the writer does small merges itself, or waits, so that it does not run away.
        while (excess := self._excess()) > LAG and not self._stopping:
            group = self._claim(most=LENT)
            if group is not None:
                if not self._do(group):
                    return
            elif excess <= 2 * LAG or not self._await_small():
                return

    def _start(self, group: list[LiveSegment]) -> None:
        def run() -> None:
            try:
                self._work(group)
            finally:
                with self._changed:
                    self._threads.discard(threading.current_thread())
                    self._changed.notify_all()

        # Not a daemon, though the thread of a group writer, which may start it, is one: one that is killed in native
        # code at the end of the process aborts it.
        thread = threading.Thread(target=run, name=f"weft merges {self._store.folder.name}", daemon=False)
        with self._changed:
            self._threads.add(thread)
        thread.start()

    def _work(self, group: list[LiveSegment] | None) -> None:
        """Merge this and whatever is due after it, until nothing is, or a merge fails, or the store is closed."""
        while group is not None and self._do(group) and not (self._stopping or self._paused):
            group = self._claim()

    def wait(self) -> None:
        """Return when no merge is due or under way any more, or the last one failed."""
        while self.mode == "background" and not self._paused:
            with self._changed:
                self._changed.wait_for(lambda: not self._threads)
            if self.error is not None or self._stopping or (group := self._claim()) is None:
                return
            self._start(group)

    def stop(self) -> None:
        """Let merges under way come to their end, and begin no other."""
        with self._changed:
            self._stopping = True
            threads = self._threads - {threading.current_thread()}
        for thread in threads:
            thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Begin no merge inside: for many writes that end in `settle` or a compaction."""
        with self._changed:
            self._paused += 1
        try:
            yield
        finally:
            with self._changed:
                self._paused -= 1

    # -- what ----------------------------------------------------------------------------------------

    def _claim(self, most: int | None = None) -> list[LiveSegment] | None:
        """Return segments to merge next, now claimed; None if none is due. `most` bounds their tokens."""
        with self._changed:
            with self._store.view() as view:
                if most is None and any(_size(group) > LARGE for group in self._busy):
                    most = LARGE  # one large merge at a time
                group = due(view, self._adds(view), self._busy, most)
            if group is None:
                if not self._busy:
                    self.error = None
                return None
            self._busy.append(group)
            return group

    def _adds(self, view: View) -> int:
        """The number of adds of the usual size that would have brought all documents."""
        if not self._recent or view.tokens < 2 * CODED_TOKENS:  # until then most segments are flat, and cost little
            return view.documents
        return view.documents // max(int(np.median(list(self._recent))), 1)

    def _excess(self) -> float:
        """By how many segments there are more than the policy allows."""
        with self._store.view() as view:
            return len(view.segments) - budget(self._adds(view))

    def _await_small(self) -> bool:
        """Wait for a small merge under way; False if there is none."""
        with self._changed:
            small = [group for group in self._busy if _size(group) <= LARGE]
            if small:
                self._changed.wait_for(lambda: any(group not in self._busy for group in small))
            return bool(small)

    def _do(self, group: list[LiveSegment]) -> bool:
        """Merge what was claimed; False if that failed."""
        try:
            self._merge(group)
        except Exception as error:
            # A full disk, a damaged segment, or a mistake of ours: what was written is committed, the index goes on as
            # it is, and the next write tries again.
            self.error = error
            _log.warning("segments of the index at %s were not merged: %s", self._store.folder, error)
            return False
        finally:
            with self._changed:
                self._busy.remove(group)
                self._changed.notify_all()
        return True

    def settle(self) -> None:
        """Merge after many writes: everything, if a good part of it is not coded yet, or else what is due."""
        with self._store.view() as view:
            fresh = sum(s.segment.n_tokens for s in view.segments if not s.segment.coded)
            mostly_new = len(view.segments) > 1 and fresh > view.tokens // 4
        if mostly_new:
            self.compact()
        self._work(self._claim())

    def compact(self) -> None:
        """Merge all segments that there are now; those of different kinds stay apart."""
        with self._alone, self.paused():
            with self._changed:
                self._changed.wait_for(lambda: not self._busy)
                with self._store.view() as view:
                    groups = [g for g in kinds(view.segments).values() if len(g) > 1 or not g[0].live.all()]
                self._busy += groups
            try:
                for group in groups:
                    self._merge(group)
            finally:
                with self._changed:
                    self._busy = [group for group in self._busy if group not in groups]
                    self._changed.notify_all()

    def _merge(self, group: list[LiveSegment]) -> None:
        store, group = self._store, sorted(group, key=lambda s: s.number)
        parts = [Kept(s.segment, np.flatnonzero(s.live)) for s in group if s.live.any()]
        replaced = [s.segment.path for s in group]
        gone = np.concatenate([s.segment.numbers[~s.live] for s in group])
        if not parts:
            with store.committing() as catalogue:
                _drop(catalogue, group, gone)
            _unlink(replaced)
            return
        numbers = np.concatenate([part.segment.numbers[part.ordinals] for part in parts])
        tokens = int(sum(part.lengths.sum() for part in parts))
        with store.view() as view:
            codec = codec_for(tokens, store.bits, view.tokens)
        with store.new_file() as path:
            write_segment(path, parts, codec, numbers=numbers, shared=self.shared)
            store.adopt(path)
            self.written_bytes += path.stat().st_size
            with store.committing() as catalogue:
                catalogue.add_segment(path.name, len(numbers), tokens, int(numbers[0]))
                _drop(catalogue, group, gone)
        self.merges += 1
        _unlink(replaced)


def due(
    view: View, adds: int, busy: Sequence[Sequence[LiveSegment]] = (), most: int | None = None
) -> list[LiveSegment] | None:
    """Return the segments of a state that should be merged next, None if all is well.

    Those that are being merged already (`busy`) count, for they are searched until it is done; but however many they
    are, a few may gather beside them. With `most`, the merge has no more tokens than that, about.
    """
    taken = {s.number for group in busy for s in group}
    free = [s for s in view.segments if s.number not in taken and (most is None or s.segment.n_tokens <= most)]
    elsewhere = len(view.segments) - len(free)
    count = len(free) + min(elsewhere, max(int(budget(adds)) - FREE, 0)) if busy else len(view.segments)
    for group in kinds(free).values():
        sized = [Sized(s.number, int(s.segment.n_tokens * share(s)) + s.allowed.number, 1 - share(s)) for s in group]
        chosen = choose(sized, adds, count, most)
        if chosen is not None:
            return [s for s in group if s.number in set(chosen)]
    return None


def _size(group: Sequence[LiveSegment]) -> int:
    return sum(s.segment.n_tokens for s in group)


def share(s: LiveSegment) -> float:
    """Return the part of a segment's documents that still counts."""
    return s.allowed.number / max(len(s.segment), 1)


def kinds(segments: Iterable[LiveSegment]) -> dict[object, list[LiveSegment]]:
    """Group segments by what they must share to be merged."""
    groups: dict[object, list[LiveSegment]] = {}
    for s in segments:
        groups.setdefault(s.segment.kind, []).append(s)
    return groups


def _drop(catalogue: Catalogue, group: list[LiveSegment], gone: NDArray[np.int64]) -> None:
    for s in group:
        catalogue.drop_segment(s.number)
    catalogue.drop_tombstones(gone.tolist())


def _unlink(paths: list[Path]) -> None:
    for path in paths:
        with suppress(OSError):  # no harm: the next writer tries again
            path.unlink()
