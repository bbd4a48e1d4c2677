"""Merging segments while adds, deletes and searches go on.

A merge reads a committed state, writes a new file beside the old ones, and needs the writer's lock only for the commit
that puts the one in place of the others. What was deleted or replaced meanwhile is a tombstone of a document's number,
wherever that document lies, so nothing has to be done for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weft.errors import WeftError, invalid
from weft.storage.catalogue import Catalogue
from weft.storage.codecs import CODECS
from weft.storage.codecs.base import Codec
from weft.storage.merging import Sized, choose
from weft.storage.segments.pieces import Kept
from weft.storage.segments.writing import write_segment
from weft.storage.views import LiveSegment, View

if TYPE_CHECKING:
    from weft.storage.store import Store

MODES = ("background", "inline", "off")
CODED_TOKENS = 50_000
"""From this many tokens on a codebook is worth its training; below, scoring everything is fast enough."""
CODED_SHARE = 8
"""In an index of twice that, this part of it is enough: many small segments scored whole would cost too much."""
_log = logging.getLogger(__name__)


def codec_for(tokens: int, bits: int, index_tokens: int) -> Codec | None:
    """Return how a segment of so many tokens is stored in an index of so many; None leaves it flat."""
    least = CODED_TOKENS if index_tokens < 2 * CODED_TOKENS else CODED_TOKENS // CODED_SHARE
    return CODECS[bits] if tokens >= least else None


class Merger:
    """The merges of one writing store."""

    def __init__(self, store: Store, mode: str) -> None:
        if mode not in MODES:
            raise invalid("merge", "open", f"one of {MODES}", mode)
        self.mode = mode
        self.merges = 0
        """How many were done."""
        self.added_bytes = 0
        """Written by adds, by this process."""
        self.written_bytes = 0
        """Written by adds and merges together."""
        self.error: WeftError | OSError | None = None
        """Why the last one failed, if it did; the next write tries again."""
        self._store = store
        self._running = threading.Lock()  # one merge at a time
        self._thread: threading.Thread | None = None
        self._state = threading.Lock()  # guards _thread and _stopping
        self._stopping = False
        self._paused = 0

    @property
    def running(self) -> bool:
        """Whether a merge is under way now."""
        return self._running.locked()

    def count(self, files: Iterable[Path]) -> None:
        """Count files that an add wrote."""
        size = sum(path.stat().st_size for path in files)
        self.added_bytes += size
        self.written_bytes += size

    # -- when ----------------------------------------------------------------------------------------

    def after_write(self) -> None:
        """Merge what is due, as the mode says."""
        if self.mode == "off" or self._paused:
            return
        if self.mode == "inline":
            while self._step():
                pass
            return
        with self._state:
            if self._stopping or (self._thread is not None and self._thread.is_alive()):
                return
            if self._due() is None:
                return
            self._thread = threading.Thread(target=self._run, name=f"weft merges {self._store.folder.name}")
            self._thread.start()

    def _run(self) -> None:
        while True:
            more = self._step()
            with self._state:
                if not more or self._stopping:
                    self._thread = None  # under the lock: whoever writes next starts another
                    return

    def wait(self) -> None:
        """Return when no merge is due any more, or the last one failed."""
        while self.mode == "background" and not self._paused:
            with self._state:
                thread = self._thread
            if thread is None:
                if self.error is not None or self._due() is None:
                    return
                self.after_write()
            else:
                thread.join()

    def stop(self) -> None:
        """Let the merge under way come to its end, and begin no other."""
        with self._state:
            self._stopping = True
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Begin no merge inside: for many writes that end in `settle` or a compaction."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def settle(self) -> None:
        """Merge after many writes: everything, if a good part of it is not coded yet, or else what is due."""
        with self._store.view() as view:
            fresh = sum(s.segment.n_tokens for s in view.segments if not s.segment.coded)
            mostly_new = len(view.segments) > 1 and fresh > view.tokens // 4
        if mostly_new:
            self.compact()
        while self._step():
            pass

    # -- what ----------------------------------------------------------------------------------------

    def _due(self) -> list[LiveSegment] | None:
        """Return the segments to merge next."""
        with self._store.view() as view:
            return due(view)

    def _step(self) -> bool:
        """Do one merge; False if none was due, or it failed."""
        try:
            with self._running:
                chosen = self._due()
                if chosen is None:
                    self.error = None
                    return False
                self._merge(chosen)
        except (OSError, WeftError) as error:
            # A full disk, or a damaged segment: the index goes on as it is, and the next write tries again.
            self.error = error
            _log.warning("segments of the index at %s were not merged: %s", self._store.folder, error)
            return False
        return True

    def compact(self) -> None:
        """Merge all segments that there are now; those of different kinds stay apart."""
        with self._running:
            with self._store.view() as view:
                groups = list(kinds(view.segments).values())
            for group in groups:
                if len(group) > 1 or not group[0].live.all():
                    self._merge(group)

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
            others = [s.segment for s in view.segments]
        with store.new_file() as path:
            write_segment(path, parts, codec, numbers=numbers, others=others)
            self.written_bytes += path.stat().st_size
            with store.committing() as catalogue:
                catalogue.add_segment(path.name, len(numbers), tokens, int(numbers[0]))
                _drop(catalogue, group, gone)
        self.merges += 1
        _unlink(replaced)


def due(view: View) -> list[LiveSegment] | None:
    """Return the segments of a state that should be merged next, None if all is well."""
    for group in kinds(view.segments).values():
        sized = [Sized(s.number, int(s.segment.n_tokens * share(s)) + s.allowed.number, 1 - share(s)) for s in group]
        chosen = choose(sized, view.documents, len(view.segments))
        if chosen is not None:
            return [s for s in group if s.number in set(chosen)]
    return None


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
