"""`WriteQueue`: the one thread that writes to an index. What waits together is committed together.

A commit costs a few fsyncs however much is in it. While one is made, requests gather; the next takes all of the same
kind that do not touch the same document. An answer is given when its documents are on disk.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.serving.pool import Deadline
from weft.serving.problems import RefusedError
from weft.text_index import TextIndex
from weft.types import Document

GROUP = 256
"""At most this many documents are committed together, unless one request has more."""
_log = logging.getLogger("weft.serving")


@dataclass(frozen=True)
class Written:
    """What became of one request's documents."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    ids: tuple[str, ...] = ()


@dataclass(eq=False)
class _Write:
    documents: list[Document]
    """To add; empty for a deletion."""
    ids: list[str]
    split: bool
    deadline: Deadline
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Written] = field(init=False)

    def __post_init__(self) -> None:
        self.future = self.loop.create_future()

    @property
    def kind(self) -> tuple[bool, bool]:
        return bool(self.documents), self.split

    def settle(self, result: Written | None, error: BaseException | None = None) -> None:
        def give() -> None:
            if self.future.done():
                return
            if error is not None:
                self.future.set_exception(error)
            else:
                assert result is not None
                self.future.set_result(result)

        try:
            self.loop.call_soon_threadsafe(give)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return


class WriteQueue:
    """The adds and deletes of one index, in order.

    Parameters
    ----------
    texts : TextIndex
    waiting : int
        Documents that may wait.
    threads : int
        For encoding.
    """

    def __init__(self, texts: TextIndex, waiting: int, threads: int) -> None:
        self._texts, self._most, self._threads = texts, waiting, threads
        self._queue: deque[_Write] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None
        self.begun = self.commits = 0

    @property
    def waiting(self) -> int:
        """Documents in the queue."""
        return sum(len(write.ids) for write in tuple(self._queue))

    async def add(self, documents: Sequence[Document], split: bool, deadline: Deadline) -> Written:
        """Add documents; return when they are on disk."""
        return await self._take(list(documents), [document.id for document in documents], split, deadline)

    async def delete(self, ids: Sequence[str], deadline: Deadline) -> Written:
        """Remove documents with all their passages; return when they are gone."""
        return await self._take([], list(ids), True, deadline)

    async def _take(self, documents: list[Document], ids: list[str], split: bool, deadline: Deadline) -> Written:
        write = _Write(documents, ids, split, deadline, asyncio.get_running_loop())
        with self._changed:
            if self._closed:
                raise RefusedError(503, "the server is stopping", retry=1)
            if self._queue and self.waiting + len(ids) > self._most:
                raise RefusedError(503, "too many documents wait to be written", retry=1)
            self._queue.append(write)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="weft-serving-writer", daemon=True)
                self._thread.start()
            self._changed.notify()
        # Not cancelled from here on: a write that has begun is finished, and the answer must say so.
        return await write.future

    def close(self) -> None:
        """Write what is queued, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    # -- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while (group := self._next()) is not None:
            alive = []
            for write in group:
                try:
                    write.deadline.check()
                    alive.append(write)
                except RefusedError:
                    write.settle(None, RefusedError(504, "the documents waited too long; none was written"))
            if not alive:
                continue
            self.begun += len(alive)
            try:
                results = self._add(alive) if alive[0].documents else self._delete(alive)
                self.commits += 1
            except BaseException as error:
                for write in alive:
                    write.settle(None, error)
                continue
            for write, result in zip(alive, results, strict=True):
                write.settle(result)

    def _next(self) -> list[_Write] | None:
        with self._changed:
            while not self._queue:
                if self._closed:
                    return None
                self._changed.wait()
            group = [self._queue.popleft()]
            touched, number = set(group[0].ids), len(group[0].ids)
            while self._queue and self._queue[0].kind == group[0].kind:
                ids = self._queue[0].ids
                if number + len(ids) > GROUP or touched.intersection(ids):
                    break
                group.append(self._queue.popleft())
                touched.update(ids)
                number += len(ids)
            return group

    def _add(self, group: list[_Write]) -> list[Written]:
        there = {document.id for write in group for document in write.documents if self._texts.family(document.id)}
        documents = [document for write in group for document in write.documents]
        summary = self._texts.add(documents, split=group[0].split, threads=self._threads, progress=False)
        written = set(summary.ids)
        return [_written(write, written, there) for write in group]

    def _delete(self, group: list[_Write]) -> list[Written]:
        members = [{member.id for name in write.ids for member in self._texts.family(name)} for write in group]
        every: set[str] = set().union(*members)
        if every:
            self._texts.delete([name for write in group for name in write.ids])
        results, seen = [], set[Any]()
        for found in members:
            results.append(Written(deleted=len(found - seen)))
            seen |= found
        return results


def _written(write: _Write, written: set[str], there: set[str]) -> Written:
    ids = tuple(write.ids)
    changed = [name for name in ids if name in written]
    updated = sum(name in there for name in changed)
    return Written(len(changed) - updated, updated, len(ids) - len(changed), ids=ids)
