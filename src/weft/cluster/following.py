"""An index that follows its shard's log: it writes to the log first, and reads there what others wrote."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from weft.cluster.log import ShardLog
from weft.encoders import Encoder
from weft.errors import WeftError
from weft.ingest import Summary
from weft.search import Index
from weft.serving import schemas
from weft.serving.limits import Limits
from weft.serving.pool import Deadline, Pool
from weft.serving.problems import RefusedError
from weft.serving.served import Served
from weft.storage.catalogue import Catalogue
from weft.storage.operations import Operation
from weft.text_index import TextIndex

POSITION = "log_position"
"""The setting with the last entry of the log that was applied; it changes in the same transaction."""
FOLLOW_SECONDS = 0.5
"""How often a replica looks for new entries. A reader that asks for a version does not wait that long."""
_log = logging.getLogger("weft.cluster")


class LoggedIndex(Index):
    """An index whose changes come from a log."""

    log: ShardLog
    position: int = 0

    @classmethod
    def following(cls, folder: Path, log: ShardLog, at: int = 0) -> Self:
        """Open a copy of a shard that is as old as entry `at` of its log, or older."""
        made = cls.open(folder)
        with made.reading_catalogue() as catalogue:
            made.position = int(catalogue.settings().get(POSITION, at))
        made.log, made._order, made._applied = log, threading.RLock(), threading.local()
        return made

    _order: threading.RLock
    _applied: threading.local

    def catch_up(self, upto: int | None = None) -> int:
        """Apply what is in the log; return how far the index is now."""
        if upto is not None and self.position >= upto:
            return self.position
        with self._order:
            for number, operations in self.log.since(self.position):
                self._apply(number, operations)
            return self.position

    def write(self, operations: Sequence[Operation], *, flat: bool = False) -> int:
        """Write to the log, then here: every change that was acknowledged is in the log."""
        with self._order:
            self.lock()  # before anything is promised
            while not self.log.append(self.position + 1, operations):
                self.catch_up()  # another writer was first
            return self._apply(self.position + 1, operations, flat=flat)

    def _apply(self, number: int, operations: Sequence[Operation], *, flat: bool = False) -> int:
        self._applied.number = number
        try:
            deleted = super().write(operations, flat=flat)
        finally:
            self._applied.number = None
        self.position = number
        return deleted

    @contextmanager
    def committing(self) -> Iterator[Catalogue]:
        """Write to the catalogue in one transaction; an entry's number is part of it."""
        with super().committing() as catalogue:
            yield catalogue
            number = getattr(self._applied, "number", None)  # of this thread: merges commit beside it
            if number is not None:
                catalogue.set(POSITION, number)


class LoggedTexts(TextIndex):
    """A `TextIndex` over a `LoggedIndex`."""

    def __init__(self, index: LoggedIndex, encoder: Encoder | None = None) -> None:
        super().__init__(index, encoder)
        self.logged = index

    def add_sources(self, sources: Any, **options: Any) -> Summary:
        """Add documents, given what the log says is there."""
        self.logged.catch_up()
        return super().add_sources(sources, **options)

    def delete(self, ids: Any) -> int:
        """Remove documents, given what the log says is there."""
        self.logged.catch_up()
        return super().delete(ids)


class Following(Served):
    """An index that follows its log, behind a server."""

    texts: LoggedTexts

    def __init__(
        self,
        name: str,
        texts: LoggedTexts,
        pool: Pool,
        limits: Limits,
        *,
        writable: bool = True,
        seconds: float = FOLLOW_SECONDS,
    ) -> None:
        super().__init__(name, texts, pool, limits, writable=writable)
        self._ends = threading.Event()
        self._seconds = seconds
        self.behind: str | None = None
        """Why it cannot follow its log, if it cannot."""
        self._follower = threading.Thread(target=self._follow, name="weft-following", daemon=True)

    def load(self) -> None:
        """Apply what the log has, and warm up; only then is it ready."""
        self.texts.logged.catch_up()
        super().load()
        self._follower.start()

    def close(self) -> None:
        """Stop following, write what waits, and close the index."""
        self._ends.set()
        if self._follower.is_alive():
            self._follower.join()
        super().close()

    def _follow(self) -> None:
        while not self._ends.wait(self._seconds):
            try:
                self.texts.logged.catch_up()
                self.behind = None
            except (WeftError, OSError) as error:  # the store may be back the next time
                if self.behind is None:
                    _log.warning("the index %s cannot follow its log: %s", self.name, error)
                self.behind = str(error)

    @property
    def version(self) -> int:
        """The entry of the log that was applied last."""
        return self.texts.logged.position

    def check_reached(self, version: int) -> None:
        """Return once this version can be read."""
        if version <= self.version:
            return
        reached = self.texts.logged.catch_up(version)
        if reached < version:
            raise RefusedError(409, f"version {version} does not exist: the log ends at {reached}")

    async def add(self, request: schemas.AddRequest, deadline: Deadline) -> schemas.AddAnswer:
        """Add documents; when this returns they are in the log."""
        answer = await super().add(request, deadline)
        answer.version = str(self.version)
        return answer

    async def delete(self, request: schemas.DeleteRequest, deadline: Deadline) -> schemas.DeleteAnswer:
        """Remove documents; when this returns that is in the log."""
        answer = await super().delete(request, deadline)
        answer.version = str(self.version)
        return answer
