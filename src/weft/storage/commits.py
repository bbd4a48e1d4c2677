"""The writer's side of a store: its lock, its connection to the catalogue, and files on their way into a commit."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from weft.storage.catalogue import Catalogue
from weft.storage.database import faults_named
from weft.storage.folder import CATALOGUE, SEGMENTS, check_one_name, segment_files
from weft.storage.lock import WriterLock
from weft.storage.views import Views

_log = logging.getLogger(__name__)


class Commits:
    """Transactions of one writing store. The lock is taken by the first, and kept until `close`."""

    def __init__(self, folder: Path, views: Views) -> None:
        self.folder = folder
        self._views = views
        self._guard = threading.RLock()
        self._lock: WriterLock | None = None
        self._own: Catalogue | None = None
        self._tidy = False
        self._new: set[str] = set()  # files that are being written
        self._doubtful: set[str] = set()  # those of them that a failed commit may have named

    @property
    def locked(self) -> bool:
        """Whether this store is the one that writes."""
        return self._lock is not None

    def close(self) -> None:
        """Close the readers' and the writer's connections, and let the next writer in."""
        with self._guard:
            self._views.close()
            if self._own is not None:
                self._own.close()
                self._own = None
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def let_go(self) -> None:
        """Close the connection if it is not in use; it is opened again when it is needed."""
        if self._guard.acquire(blocking=False):
            try:
                if self._own is not None and not self._own.in_transaction:
                    self._own.close()
                    self._own = None
            finally:
                self._guard.release()

    @contextmanager
    def committing(self) -> Iterator[Catalogue]:
        """Write to the catalogue in one transaction, on disk when this returns."""
        with self.writing():
            assert self._own is not None
            try:
                with self._own.transaction():
                    yield self._own
                    generation = self._own.generation() + 1
                if self._lock is not None:
                    self._lock.mark(generation)
            except BaseException:
                self._doubtful |= self._new
                raise
            self._own.fold_log()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer's lock and a connection, after removing the leftovers of earlier writers."""
        self._views.check_process()
        with self._guard, faults_named(self.folder):
            self._views.check_open()
            if self._lock is None:
                check_one_name(self.folder / CATALOGUE)
                self._lock = WriterLock(self.folder)
                self._tidy = False
            if self._own is None:
                self._own = Catalogue.open(self.folder)
            if not self._tidy:
                if self._leftovers():
                    # A commit whose fsync failed may still stand in SQLite's log, unseen until a crash makes SQLite
                    # read the log again. It may name a leftover: write over it before removing that.
                    with self._own.transaction():
                        pass
                self._collect_leftovers()
                self._tidy = True
            try:
                yield
            except BaseException:
                self._tidy = False
                raise

    @contextmanager
    def new_file(self) -> Iterator[Path]:
        """Name a segment file to be written; if the block fails it is removed, at once or by the next writer."""
        path = self.folder / SEGMENTS / f"{secrets.token_hex(8)}.seg"
        self._new.add(path.name)
        try:
            with faults_named(self.folder):
                yield path
        except BaseException:
            self._views.disown(path.name)
            if path.name in self._doubtful:  # the commit that failed may still stand in SQLite's log: see `writing`
                with self._guard:
                    self._new.discard(path.name)
                    self._tidy = False
            else:
                with suppress(OSError):
                    path.unlink()
            raise
        finally:
            self._new.discard(path.name)
            self._doubtful.discard(path.name)

    def _leftovers(self) -> list[Path]:
        """Return files that no committed state names: from a crash, or forgotten by a merge."""
        assert self._own is not None
        named = {row.file for row in self._own.segments()} | self._new
        return [path for path in segment_files(self.folder) if path.name not in named]

    def _collect_leftovers(self) -> None:
        try:
            for path in self._leftovers():
                path.unlink(missing_ok=True)
        except OSError as error:  # no harm: what had to be written is on disk, and the next writer tries again
            _log.warning("cannot remove a leftover of the index at %s: %s", self.folder, error)
