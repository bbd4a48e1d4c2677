"""One shard's servers: one is asked, a second if the first is slow; servers that fail rest for a while."""

from __future__ import annotations

import asyncio
import bisect
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
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
JSON = "application/json"


class ShardError(WeftError):
    """No replica of a shard answers."""


class Replica:
    """One server of a shard."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.wire = Wire(url, key)
        self.url = self.wire.url
        self.asked = self.failed = 0
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

    def step(self, name: str, body: bytes) -> asyncio.Future[Response]:
        """Ask any replica for a step of a search (`weft.serving.parts`), packed; another if it fails or takes long.

        The future has the first good answer, or why there is none.
        """
        return _Race(self, lambda replica: replica.wire.step(self._path, name, body)).answer

    async def ask(self, method: str, path: str, body: bytes | None = None, kind: str = JSON) -> Response:
        """Ask one replica, another if it fails or takes long; return the first good answer."""
        whole = self._path + path
        return await _Race(
            self, lambda replica: asyncio.ensure_future(replica.wire.request(method, whole, body, kind))
        ).answer

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

    def order(self) -> list[Replica]:
        """Return the replicas in the order to ask them, the last one first: the least busy, resting ones at the end."""
        if len(self.members) == 1:
            return self.members[:]
        shuffled = random.sample(self.members, len(self.members))
        shuffled.sort(key=lambda replica: (replica.rests or not replica.warm, replica.under_way), reverse=True)
        return shuffled

    async def _one(self, replica: Replica, method: str, path: str, body: bytes | None, kind: str) -> Response:
        replica.asked += 1
        replica.under_way += 1
        begun = time.perf_counter()
        try:
            return self.judged(replica, await replica.wire.request(method, self._path + path, body, kind), begun)
        except UnreachableError:
            replica.bad()
            raise
        finally:
            replica.under_way -= 1

    def judged(self, replica: Replica, response: Response, begun: float) -> Response:
        """Return an answer if it is good; otherwise raise what it says, `ShardError` if another replica may do."""
        if response.status < 300:
            replica.good()
            self.note(time.perf_counter() - begun)
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

    def note(self, seconds: float) -> None:
        """Remember how long an answer took."""
        if len(self._times) == REMEMBERED:
            old = self._times[0]
            del self._sorted[bisect.bisect_left(self._sorted, old)]
        self._times.append(seconds)
        bisect.insort(self._sorted, seconds)

    def close(self) -> None:
        """Close all connections."""
        for member in self.members:
            member.wire.close()


class _Race:
    """A request to one replica, to the next if that one fails or takes long; `answer` has the first good answer.

    Callbacks, and no tasks: a query asks every shard, so this runs more often than anything else in a router.
    """

    def __init__(self, shard: Replicas, send: Callable[[Replica], asyncio.Future[Response]]) -> None:
        self._shard, self._send = shard, send
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Response] = self._loop.create_future()
        self._order = shard.order()
        self._under_way: dict[asyncio.Future[Response], tuple[Replica, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.answer.add_done_callback(self._over)
        self._next()

    def _next(self) -> None:
        replica = self._order.pop()
        replica.asked += 1
        replica.under_way += 1
        asked = self._send(replica)
        self._under_way[asked] = replica, time.perf_counter()
        asked.add_done_callback(self._answered)
        if self._order:
            self._timer = self._loop.call_later(self._shard.hedge_after, self._hedge)

    def _hedge(self) -> None:
        self._timer = None
        if not self.answer.done():
            self._shard.hedges += 1
            self._next()

    def _answered(self, asked: asyncio.Future[Response]) -> None:
        replica, begun = self._under_way.pop(asked)
        replica.under_way -= 1
        if asked.cancelled():
            self._shard.note(time.perf_counter() - begun)  # at least as long
            return
        error = asked.exception()
        if self.answer.done():  # both came at once
            return
        if error is None:
            try:
                self.answer.set_result(self._shard.judged(replica, asked.result(), begun))
                return
            except ShardError as refused:
                error = refused
            except WeftError as refused:  # the same everywhere
                self.answer.set_exception(refused)
                return
        elif isinstance(error, UnreachableError):
            replica.bad()
        else:
            self.answer.set_exception(error)
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._order:
            self._next()
        elif not self._under_way:
            self.answer.set_exception(ShardError(f"no server of the shard {self._shard.name} answers: {error}"))

    def _over(self, _: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for asked in list(self._under_way):
            asked.cancel()
