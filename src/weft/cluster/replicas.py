"""One shard's servers: one is asked, a second if the first is slow; servers that fail rest for a while."""

from __future__ import annotations

import asyncio
import bisect
import random
import time
from collections import deque
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from weft.cluster.wire import Response, UnreachableError, Wire
from weft.errors import DataError, InvalidParameterError, WeftError
from weft.serving.problems import RefusedError

REMEMBERED = 200
"""The times of this many answers tell when to ask another replica."""
HEDGE = 0.95
"""Another replica is asked once an answer takes longer than this share of the last ones took."""
FIRST_HEDGE = 0.25
"""Another replica is asked after this many seconds while there are too few times to go by."""
LEAST_HEDGE = 0.005
REST_SECONDS = (0.5, 8.0)
"""Seconds that a replica rests after a failure, at first and at most: twice as long after each further failure."""
PACKED = "application/msgpack"
JSON = "application/json"
_unpack = msgspec.msgpack.decode


class ShardError(WeftError):
    """No replica of a shard answers."""


class Replica:
    """One server of a shard."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.wire = Wire(url, key)
        self.url = self.wire.url
        self.asked = self.failed = 0
        self.version = 0
        self.under_way = 0
        self.warm = True
        self._failures = 0
        self._until = 0.0

    @property
    def rests(self) -> bool:
        """Whether it failed lately."""
        return time.monotonic() < self._until

    def good(self) -> None:
        """Count an answer."""
        self._failures, self._until = 0, 0.0

    def bad(self) -> None:
        """Count a failure: the replica rests."""
        self.failed += 1
        self._failures += 1
        seconds = min(REST_SECONDS[0] * 2 ** min(self._failures - 1, 10), REST_SECONDS[1])
        self._until = time.monotonic() + seconds * random.uniform(0.8, 1.2)


class Replicas:
    """The servers of one shard.

    Parameters
    ----------
    name : str
        Of the index on each server.
    urls : sequence of str
        The first is the one that writes.
    key : str, optional
    """

    def __init__(self, name: str, urls: Sequence[str], key: str | None = None) -> None:
        if not urls:
            raise DataError(f"the shard {name} has no servers")
        self.name = name
        self.members = [Replica(url, key) for url in urls]
        self.hedges = 0
        self._path = f"/v1/indexes/{quote(name, safe='')}"
        self._times: deque[float] = deque(maxlen=REMEMBERED)
        self._sorted: list[float] = []

    @property
    def writer(self) -> Replica:
        """The one that writes."""
        return self.members[0]

    @property
    def hedge_after(self) -> float:
        """Seconds after which another replica is asked."""
        if len(self._times) < 20:
            return FIRST_HEDGE
        return max(self._sorted[int(HEDGE * (len(self._sorted) - 1))], LEAST_HEDGE)

    async def pack(self, step: str, request: Any, answer: type[Any]) -> Any:
        """Ask any replica for a step of a search: see `weft.serving.parts`."""
        body = msgspec.msgpack.encode(request)
        response = await self.ask("POST", f"/parts/{step}", body, PACKED)
        return _unpack(response.body, type=answer)

    async def ask(self, method: str, path: str, body: bytes | None = None, kind: str = JSON) -> Response:
        """Ask one replica, another if it fails or takes long; return the first good answer."""
        order = self._order()
        waiting: dict[asyncio.Task[Response], Replica] = {}
        problem: Exception = UnreachableError("no replica")
        try:
            while order or waiting:
                if order:
                    replica = order.pop(0)
                    task = asyncio.ensure_future(self._one(replica, method, path, body, kind))
                    waiting[task] = replica
                done, _ = await asyncio.wait(
                    waiting, timeout=self.hedge_after if order else None, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    self.hedges += 1
                for task in done:
                    waiting.pop(task)
                    error = task.exception()
                    if error is None:
                        return task.result()
                    if not isinstance(error, ShardError | UnreachableError):
                        raise error  # the same everywhere
                    problem = error
        finally:
            for task in waiting:
                task.cancel()
        raise ShardError(f"no server of the shard {self.name} answers: {problem}")

    async def write(self, path: str, body: bytes) -> Response:
        """Ask the writer; another replica, if it cannot be reached or does not take it, as while it starts.

        The shard's log allows one history only, whoever writes it, and a repeated write has no further effect.
        """
        problem: Exception | None = None
        for member in sorted(self.members, key=lambda replica: replica.rests):  # stable: the writer first
            try:
                return await self._one(member, "POST", path, body, JSON)
            except (UnreachableError, ShardError) as error:
                problem = error
        if isinstance(problem, ShardError):
            raise problem
        raise ShardError(f"no server of the shard {self.name} can be reached: {problem}")

    def _order(self) -> list[Replica]:
        """Return the replicas in the order to ask them: the least busy first, resting ones last."""
        shuffled = random.sample(self.members, len(self.members))
        return sorted(shuffled, key=lambda replica: (replica.rests or not replica.warm, replica.under_way))

    async def _one(self, replica: Replica, method: str, path: str, body: bytes | None, kind: str) -> Response:
        begun = time.perf_counter()
        replica.asked += 1
        replica.under_way += 1
        try:
            response = await replica.wire.request(method, self._path + path, body, kind)
        except UnreachableError:
            replica.bad()
            raise
        except asyncio.CancelledError:
            self._note(time.perf_counter() - begun)  # at least as long
            raise
        finally:
            replica.under_way -= 1
        if response.status < 300:
            replica.good()
            self._note(time.perf_counter() - begun)
            return response
        try:
            detail = str(msgspec.json.decode(response.body)["detail"])
        except (msgspec.DecodeError, KeyError, TypeError):
            detail = f"it answered {response.status}"
        if response.status == 422:
            raise InvalidParameterError(detail)
        if response.status in (400, 404, 413, 415) and "starting" not in detail and "no index" not in detail:
            raise RefusedError(response.status, detail)
        replica.bad()
        raise ShardError(f"{replica.url}: {detail}")

    def _note(self, seconds: float) -> None:
        if len(self._times) == REMEMBERED:
            old = self._times[0]
            del self._sorted[bisect.bisect_left(self._sorted, old)]
        self._times.append(seconds)
        bisect.insort(self._sorted, seconds)

    def close(self) -> None:
        """Close all connections."""
        for member in self.members:
            member.wire.close()
