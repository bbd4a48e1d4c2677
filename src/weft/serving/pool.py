"""`Pool`: threads that answer requests, a bounded queue in front of them, deadlines, and batches under load.

A search waits only while every thread is busy. A thread that becomes free takes, beside the oldest search, a few others
like it that wait already, encodes their queries in one run of the model, and answers one after the other. So batches
form under load, nobody ever waits for one to fill, and the oldest loses less than 5 ms to the others.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from weft.serving.problems import RefusedError
from weft.stopping import stopping

TOGETHER = 3
"""The maximum number of searches in one call: the first waits for the encoding of the others, about 2 ms each."""


class Deadline:
    """The time after which nobody waits for the result."""

    __slots__ = ("at",)

    def __init__(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    def check(self) -> None:
        """Give up once the time is over: call it between parts of the work."""
        if time.monotonic() >= self.at:
            raise RefusedError(504, "the request took too long and was given up")


class _Job:
    __slots__ = ("deadline", "future", "item", "key", "loop", "work")

    def __init__(self, work: Callable[..., Any], item: Any, key: Hashable | None, deadline: Deadline) -> None:
        self.work, self.item, self.key, self.deadline = work, item, key, deadline
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()

    def settle(self, result: Any, error: BaseException | None = None) -> None:
        """Hand the outcome to the event loop, from any thread."""
        try:
            self.loop.call_soon_threadsafe(self._set, result, error)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    def _set(self, result: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class _Called(_Job):
    """A job that a thread waits for."""

    __slots__ = ()

    def __init__(self, work: Callable[[], Any], deadline: Deadline) -> None:
        self.work, self.item, self.key, self.deadline = work, None, None, deadline
        self.future: Future[Any] = Future()  # type: ignore[assignment]

    def settle(self, result: Any, error: BaseException | None = None) -> None:
        """Hand the outcome to the thread, unless it has given up."""
        if self.future.set_running_or_notify_cancel():
            self._set(result, error)


class Pool:
    """A fixed number of threads with a bounded queue.

    Parameters
    ----------
    threads : int
    waiting : int
        Jobs that may wait; one more is refused with 503.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self.threads = threads
        self._waiting = waiting
        self._jobs: deque[_Job] = deque()
        self._guard = threading.Lock()
        # Threads that have nothing to do wait at locks of their own. The last to come is the first to be woken: what it
        # needs is still in its processor's cache.
        self._idle: list[threading.Lock] = []
        self._woken = 0  # threads that are on their way to a job
        self._closed = False
        self.batches = 0
        """Calls that answered more than one search."""
        self._members = [
            threading.Thread(target=self._run, name=f"weft-serving-{i}", daemon=True) for i in range(threads)
        ]
        for member in self._members:
            member.start()

    @property
    def waiting(self) -> int:
        """Jobs in the queue."""
        return len(self._jobs)

    async def run(self, work: Callable[[], Any], deadline: Deadline) -> Any:
        """Run a function on a thread and return what it returns."""
        return await self._submit(_Job(work, None, None, deadline))

    async def together(
        self, key: Hashable, item: Any, work: Callable[[Sequence[Any]], Iterable[Any]], deadline: Deadline
    ) -> Any:
        """Run ``work([item])``, or ``work`` of several items whose keys are equal, and return this item's result.

        Results are handed over one by one, as `work` yields them.
        """
        return await self._submit(_Job(work, item, key, deadline))

    def call(self, work: Callable[[], Any], deadline: Deadline) -> Any:
        """Run a function and return what it returns: on the calling thread, in the place of one that is idle.

        Nobody has to be woken for it. While all threads are busy it waits like other jobs.
        """
        with self._guard:
            place = self._idle.pop() if self._idle and not self._jobs and not self._closed else None
        if place is not None:
            try:
                with stopping(deadline.check):
                    return work()
            finally:
                with self._guard:
                    if self._jobs or self._closed:
                        self._woken += 1
                        place.release()
                    else:
                        self._idle.append(place)
        job = _Called(work, deadline)
        self._append(job)
        try:
            return job.future.result(deadline.at - time.monotonic())
        except TimeoutError:
            job.future.cancel()
            raise RefusedError(504, "the request took too long and was given up") from None

    def _append(self, job: _Job) -> None:
        with self._guard:
            if self._closed:
                raise RefusedError(503, "the server is stopping", retry=1)
            if len(self._jobs) >= self._waiting:
                raise RefusedError(503, "the server is busy", retry=1)
            self._jobs.append(job)
            if self._idle:
                self._idle.pop().release()
                self._woken += 1

    async def _submit(self, job: _Job) -> Any:
        self._append(job)
        try:
            async with asyncio.timeout_at(job.loop.time() + job.deadline.at - time.monotonic()):
                return await job.future
        except TimeoutError:
            raise RefusedError(504, "the request took too long and was given up") from None

    def close(self) -> None:
        """Stop the threads once the queue is empty."""
        with self._guard:
            self._closed = True
            while self._idle:
                self._idle.pop().release()
                self._woken += 1
        for member in self._members:
            member.join()

    def _run(self) -> None:
        own = threading.Lock()
        own.acquire()
        while (jobs := self._next(own)) is not None:
            alive = [job for job in jobs if not job.future.done()]  # cancelled or timed out: nobody wants the result
            if not alive:
                continue
            first, last = alive[0], max((job.deadline for job in alive), key=lambda deadline: deadline.at)
            try:
                first.deadline.check()
                with stopping(last.check):
                    if first.key is None:
                        first.settle(first.work())
                        continue
                    for job, result in zip(alive, first.work([job.item for job in alive]), strict=True):
                        job.settle(result)
            except BaseException as error:
                for job in alive:  # one that has its result keeps it
                    job.settle(None, error)

    def _next(self, own: threading.Lock) -> list[_Job] | None:
        while True:
            with self._guard:
                if self._jobs:
                    return self._taken()
                if self._closed:
                    return None
                self._idle.append(own)
            own.acquire()
            with self._guard:
                self._woken -= 1

    def _taken(self) -> list[_Job]:
        """Take the oldest job and, where more wait than threads are free, others like it."""
        taken = [self._jobs.popleft()]
        if taken[0].key is not None and len(self._jobs) > len(self._idle) + self._woken:
            for job in list(self._jobs):
                if job.key == taken[0].key and len(taken) < TOGETHER:
                    taken.append(job)
                    self._jobs.remove(job)
            self.batches += len(taken) > 1
        return taken
