"""A cluster as queues: latencies under load, with hedging, stragglers and nodes that die. No clock, no network.

python benchmarks/cluster/simulate.py writes the tables of docs/notes/scale.md, from benchmarks/cluster/measured.json.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

MEASURED = Path(__file__).with_name("measured.json")
NOTE = Path(__file__).parents[2] / "docs" / "notes" / "scale.md"


@dataclass(frozen=True)
class Cluster:
    """What is simulated. Times are milliseconds."""

    shards: int
    replicas: int = 2
    nodes: int = 4
    cores: int = 8
    """Of each node, for shards"""
    search: float = 5.0
    """CPU of one shard's part of a query"""
    sigma: float = 0.35
    """Of the logarithm of that: some queries are longer than others"""
    query_sigma: float = 0.35
    """The same, of what all shards share: it is the query that is long"""
    straggling: float = 0.002
    """Share of requests that something holds up: a cold page, a merge, a neighbour"""
    held_up: float = 20.0
    """How many times longer they take"""
    network: float = 0.3
    """There and back"""
    router: float = 1.0
    """CPU of the router for a query; there are as many routers as it takes"""
    hedge: float | None = 0.95
    """Another replica is asked after this quantile of the last answers; None: never"""
    notice: float = 5000.0
    """Until a router knows that a machine that says nothing is dead"""
    timeout: float = 30_000.0


@dataclass
class Outcome:
    """What the clients saw, in milliseconds."""

    mean: float
    p50: float
    p95: float
    p99: float
    failed: int
    asked: int
    busy: float
    """Share of the cores' time"""
    hedges: float
    """Requests to a second replica, for each request to a first"""


@dataclass
class _Node:
    cores: int
    running: int = 0
    worked: float = 0.0
    waiting: deque[tuple[int, float]] = field(default_factory=deque)
    dead_since: float = math.inf


@dataclass
class _Request:
    """One shard's part of a query."""

    query: int
    shard: int
    begun: float
    asked: list[int] = field(default_factory=list)
    done: bool = False


class Simulation:
    """Queries that arrive at random at a rate, until so many were asked."""

    def __init__(self, cluster: Cluster, seed: int = 0) -> None:
        self.cluster, self.random = cluster, np.random.default_rng(seed)
        self.nodes = [_Node(cluster.cores) for _ in range(cluster.nodes)]
        self.events: list[tuple[float, int, str, Any]] = []
        self.order = itertools.count()
        self.requests: list[_Request] = []
        self.left: list[int] = []
        self.began: list[float] = []
        self.latencies: list[float] = []
        self.failed: set[int] = set()
        self.firsts = self.seconds = 0
        self.under_way = [[0] * cluster.replicas for _ in range(cluster.shards)]
        self.times: deque[float] = deque(maxlen=1000)
        self.after = 250.0
        self.factor: list[float] = []

    def run(self, rate: float, queries: int, *, dies: float | None = None) -> Outcome:
        """Ask so many queries, `rate` a second; the node 0 dies after the share `dies` of them."""
        arrivals = np.cumsum(self.random.exponential(1000 / rate, queries))
        for at in arrivals.tolist():
            self._later(at, "query", None)
        if dies is not None:
            self._later(float(arrivals[int(dies * queries)]), "death", 0)
        end = 0.0
        while self.events:
            now, _, what, about = heapq.heappop(self.events)
            end = now if what == "answer" else end
            getattr(self, f"_{what}")(now, about)
        good = np.array(self.latencies) if self.latencies else np.array([math.inf])
        p50, p95, p99 = np.percentile(good, [50, 95, 99])
        alive = sum(min(node.dead_since, end) for node in self.nodes) * self.cluster.cores
        busy = sum(node.worked for node in self.nodes) / alive
        hedges = self.seconds / max(self.firsts, 1)
        return Outcome(float(good.mean()), float(p50), float(p95), float(p99), len(self.failed), queries, busy, hedges)

    def _later(self, at: float, what: str, about: Any) -> None:
        heapq.heappush(self.events, (at, next(self.order), what, about))

    def node_of(self, shard: int, replica: int) -> int:
        """Return where a replica is: those of a shard on different nodes."""
        return (shard + replica) % self.cluster.nodes

    # -- events --------------------------------------------------------------------------------------

    def _query(self, now: float, _: None) -> None:
        number = len(self.left)
        self.left.append(self.cluster.shards)
        self.began.append(now)
        self.factor.append(float(self.random.lognormal(0, self.cluster.query_sigma)))
        for shard in range(self.cluster.shards):
            self.requests.append(_Request(number, shard, now + self.cluster.router))
            self._later(now + self.cluster.router, "ask", len(self.requests) - 1)
        self._later(now + self.cluster.timeout, "give_up", number)

    def _ask(self, now: float, which: int) -> None:
        """Ask a replica that was not asked yet: the least busy of those that are not known to be dead."""
        request, cluster = self.requests[which], self.cluster
        if request.done:
            return
        left = [replica for replica in range(cluster.replicas) if replica not in request.asked]
        if not left:
            return
        known = [r for r in left if now < self.nodes[self.node_of(request.shard, r)].dead_since + cluster.notice]
        busy = self.under_way[request.shard]
        chosen = min(known or left, key=lambda replica: (busy[replica], self.random.random()))
        self.firsts += not request.asked
        self.seconds += bool(request.asked)
        request.asked.append(chosen)
        busy[chosen] += 1
        node = self.nodes[self.node_of(request.shard, chosen)]
        if now < node.dead_since:  # a dead machine says nothing
            slow = cluster.held_up if self.random.random() < cluster.straggling else 1.0
            work = cluster.search * self.factor[request.query] * self.random.lognormal(0, cluster.sigma) * slow
            node.waiting.append((which * cluster.replicas + chosen, work))
            self._start(now + cluster.network / 2, node)
        if cluster.hedge is not None:
            self._later(now + self.after, "ask", which)

    def _start(self, now: float, node: _Node) -> None:
        while node.waiting and node.running < node.cores and now < node.dead_since:
            which, work = node.waiting.popleft()
            node.running += 1
            node.worked += work
            self._later(now + work, "answer", (which, node))

    def _answer(self, now: float, about: tuple[int, _Node]) -> None:
        which, node = about
        if now >= node.dead_since:
            return
        node.running -= 1
        self._start(now, node)
        number, replica = divmod(which, self.cluster.replicas)
        request, now = self.requests[number], now + self.cluster.network / 2
        self.under_way[request.shard][replica] -= 1
        if request.done:
            return
        request.done = True
        self._note(now - request.begun)
        self.left[request.query] -= 1
        if not self.left[request.query] and request.query not in self.failed:
            self.latencies.append(now - self.began[request.query])

    def _note(self, took: float) -> None:
        self.times.append(took)
        if self.cluster.hedge is not None and len(self.times) >= 20 and self.random.random() < 0.01:
            self.after = max(float(np.quantile(self.times, self.cluster.hedge)), 5.0)

    def _give_up(self, _: float, number: int) -> None:
        if self.left[number]:
            self.failed.add(number)

    def _death(self, now: float, which: int) -> None:
        self.nodes[which].dead_since = now
        self.nodes[which].waiting.clear()


# -- sizes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assumed:
    """What was not measured here, said in docs/notes/scale.md."""

    tokens_per_passage: int = 120
    cores: int = 16
    ram_gb: int = 128
    ssd_gb: int = 3750
    price: float = 0.90
    """Dollars an hour of such a machine"""
    ram_share: float = 0.25
    """Of an index that queries touch often"""
    shard_passages: int = 5_000_000
    replicas: int = 2
    busy: float = 0.5
    """Share of the cores' time that is used at the peak"""


ENGINES = {
    "search_ms_by_tokens": [(899_087, 1.93), (9_001_023, 4.32)],
    "bytes_per_token_by_bits": {"8": 155, "4": 74, "2": 40},
    "index_cpu_s_per_million_tokens": 36,
}
"""Of benchmarks/RESULTS.md, Earlier runs (the only one at both sizes): settings with a recall@10 of .99, 8 bits; other
bits cost about the same CPU."""


def read_measured(path: Path = MEASURED) -> dict[str, Any]:
    """Return what `run.py` and the benchmarks of engines measured."""
    found: dict[str, Any] = json.loads(path.read_text())
    (row,) = (row for row in found["costs"] if row["shards"] == 4 and row["alignment"] == "top-k:1")
    each = max(row["cpu"] - row["search"] - row["router"], 0.0) / row["shards"]
    return {**found, **ENGINES, "router_ms": row["router"], "shard_overhead_ms": each}


def search_ms(tokens: float, measured: Mapping[str, Any]) -> float:
    """Return CPU of a search in one shard: what was measured, grown as it grew between two sizes."""
    (small, at_small), (large, at_large) = measured["search_ms_by_tokens"]
    power = math.log(at_large / at_small) / math.log(large / small)
    return float(at_large * (tokens / large) ** power)


@dataclass(frozen=True)
class Plan:
    """What a collection takes."""

    gigabytes: float
    """Of one copy"""
    ram: float
    """Gigabytes of all copies that are touched often"""
    shards: int
    nodes: int
    query_ms: float
    """CPU of all servers"""
    rate: float
    """Queries a second"""
    build_hours: float
    """Of a core"""

    @classmethod
    def of(cls, passages: float, bytes_per_token: float, measured: Mapping[str, Any], assumed: Assumed) -> Plan:
        """Plan for so many passages: nodes are as many as their disks and their memory ask for."""
        tokens = passages * assumed.tokens_per_passage
        gigabytes = tokens * bytes_per_token / 1e9
        shards = max(1, math.ceil(passages / assumed.shard_passages))
        copies = gigabytes * assumed.replicas
        nodes = max(
            assumed.replicas,
            math.ceil(copies / (0.8 * assumed.ssd_gb)),
            math.ceil(copies * assumed.ram_share / (0.8 * assumed.ram_gb)),
        )
        one = search_ms(tokens / shards, measured) + measured["shard_overhead_ms"]
        query = shards * one + measured["router_ms"] + measured["query_encode_ms"]
        each = measured["encode_cpu_s_per_million_tokens"] + measured["index_cpu_s_per_million_tokens"]
        rate = nodes * assumed.cores * 1000 * assumed.busy / query
        return cls(gigabytes, copies * assumed.ram_share, shards, nodes, query, rate, tokens / 1e6 * each / 3600)


def plan_lines(measured: Mapping[str, Any], assumed: Assumed) -> list[str]:
    """Return the table of sizes."""
    made = [
        "| passages | bits | one copy, GB | hot, GB | shards | nodes | CPU-ms a query | queries/s | $/hour "
        "| $ a million queries | core-hours to build | $ to build |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for passages in SIZES:
        for bits, size in measured["bytes_per_token_by_bits"].items():
            plan = Plan.of(passages, size, measured, assumed)
            dollars = plan.nodes * assumed.price
            numbers = [plan.gigabytes, plan.ram, plan.shards, plan.nodes, plan.query_ms, plan.rate, dollars]
            numbers += [dollars / 3600 / plan.rate * 1e6, plan.build_hours]
            numbers += [plan.build_hours / assumed.cores * assumed.price]
            made.append(f"| {passages:,.0f} | {bits} | {' | '.join(f'{number:,.0f}' for number in numbers)} |")
    return made


def measured_lines(measured: Mapping[str, Any]) -> list[str]:
    """Return the table of what `run.py` measured."""
    return [
        f"With {measured['documents']:,} documents and a load average of {measured['load']:.0f} before:",
        "",
        "| what | CPU |",
        "| --- | ---: |",
        f"| a router, for a query of 4 shards | {measured['router_ms']:.1f} ms |",
        f"| a shard's server, for a query, beyond the search | {measured['shard_overhead_ms']:.1f} ms |",
        f"| encoding a query | {measured['query_encode_ms']:.1f} ms |",
        f"| encoding a million tokens | {measured['encode_cpu_s_per_million_tokens']:.0f} s |",
    ]


def queue_lines(measured: Mapping[str, Any], assumed: Assumed) -> list[str]:
    """Return the table of latencies."""
    made = [
        "| shards | what | p50 ms | p95 ms | p99 ms | failed | hedged |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    one = search_ms(assumed.shard_passages * assumed.tokens_per_passage, measured) + measured["shard_overhead_ms"]
    for shards in (1, 4, 16, 64):
        base: dict[str, Any] = {"shards": shards, "nodes": max(2, shards), "cores": 4, "search": one}
        rate = assumed.busy * 1000 * base["nodes"] * base["cores"] / (one * shards * GROWN)
        queries = max(1000, 20_000 // shards)
        for what, hedge, dies in (("hedged", 0.95, None), ("never hedged", None, None), ("a node dies", 0.95, 0.5)):
            found = Simulation(Cluster(hedge=hedge, **base)).run(rate, queries, dies=dies)
            times = " | ".join(f"{ms:,.0f}" for ms in (found.p50, found.p95, found.p99))
            made.append(f"| {shards} | {what} | {times} | {found.failed} of {queries:,} | {found.hedges:.1%} |")
    return made


SIZES = (1e7, 1e8, 1e9, 1e10)
GROWN = math.exp(2 * 0.35**2 / 2) * (1 + 0.002 * 19)
"""The mean of a request's work over `Cluster.search`."""


def main() -> None:
    """Write the tables into docs/notes/scale.md."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from results_file import write_section

    measured, assumed = read_measured(), Assumed()
    write_section("plan", "Sizes", plan_lines(measured, assumed), NOTE)
    write_section("measured", "Measured", measured_lines(measured), NOTE)
    write_section("queues", "Latencies", queue_lines(measured, assumed), NOTE)


if __name__ == "__main__":
    main()
