"""Our index at its default effort, no knobs: recall, filters, throughput. Writes a section of benchmarks/RESULTS.md.

    python benchmarks/engines/defaults.py --data DATA/s10k DATA/s100k DATA/real_weft --indexes INDEXES
    python benchmarks/engines/defaults.py --data DATA/s10k …        one set; lines of the others stay as they are
    python benchmarks/engines/defaults.py --data … --recall         no times, which a busy machine would spoil
    python benchmarks/engines/defaults.py --report                  only writes the section anew

Workloads are made by `run.py`; an index that is not there is built. CPU time is that of the whole process. Every query
is asked alone (`Index.search(query, k=k)`), in three rounds; a query's time is the median of its rounds. Recall is
given for the reported queries and, apart from them, for those that defaults may be chosen on.
"""

from __future__ import annotations

import os

# Before the other imports: thread pools read these when they start.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from adapters import weft
from run import machine, read
from workload import REPORTED, Workload, exact_rerank

from weft import Document, Index, Ranking, simd_level

sys.path.append(str(Path(__file__).parents[1]))
from results_file import RESULTS, write_section

BARS = {10: 0.98, 100: 0.95}  # recall@k of a search for k
PARTS = 1000
THREADS = (1, 2)
ROUNDS = 3


class Kept(NamedTuple):
    """A filter, and the share of documents that it lets through."""

    share: str
    filter: str | None
    parts: int


FILTERS = (Kept("all", None, PARTS), Kept("1 %", "part < 10", 10), Kept("0.1 %", "part == 0", 1))


def parts(work: Workload) -> np.ndarray:
    """A number below 1,000 for each document, at random: what the filters ask for."""
    return np.random.default_rng(0).integers(0, PARTS, work.documents)


class Marked(weft.Engine):
    """The index of this project, each document with its part as metadata."""

    def texts(self, work: Any) -> Iterator[tuple[Any, np.ndarray]]:
        of = parts(work)
        for name, vectors in super().texts(work):
            yield Document(name, "", {"part": int(of[int(name)])}), vectors


# -- measuring ---------------------------------------------------------------------------------------


def recall(rankings: list[Ranking], truth: list[np.ndarray], k: int) -> float:
    """Mean share of the exact top k that was found."""
    shares = [
        len(np.intersect1d([int(name) for name in ranking.ids[:k]], wanted[:k])) / max(min(k, len(wanted)), 1)
        for ranking, wanted in zip(rankings, truth, strict=True)
    ]
    return round(float(np.mean(shares)), 4)


def timed(queries: list[np.ndarray], ask: Callable[[np.ndarray], Ranking]) -> np.ndarray:
    """CPU ms of every query, the median of the rounds."""
    times = np.empty((ROUNDS, len(queries)))
    for line in times:
        for i, query in enumerate(queries):
            cpu = time.process_time()
            ask(query)
            line[i] = time.process_time() - cpu
    return np.median(times, axis=0) * 1e3


def searches(index: Index, work: Workload, *, times: bool) -> Iterator[dict[str, Any]]:
    """Recall, and cost if wanted, at k = 10 and 100, without a filter and with two."""
    of = parts(work)
    exact = work.truth()
    for share, kept, below in FILTERS:
        allowed = np.flatnonzero(of < below).astype(np.int32)
        truth = list(exact) if kept is None else [exact_rerank(work, query, allowed)[:100] for query in work.queries]
        index.search(work.queries[0], k=10)
        cpu = time.process_time()
        index.search(work.queries[0], k=10, filter=kept)
        first = (time.process_time() - cpu) * 1e3  # a filter is evaluated once, for all queries that come with it
        for k in BARS:

            def ask(query: np.ndarray, k: int = k, kept: str | None = kept, *, hits: bool = False) -> Ranking:
                return index.search(query, k=k, filter=kept, hits=hits)[0]

            found = [ask(query) for query in work.queries]
            reported, other = found[:REPORTED], found[REPORTED:]
            yield {
                "what": "search", "k": k, "documents_kept": len(allowed), "kept": share,
                "recall10": recall(reported, truth[:REPORTED], 10), "recall": recall(reported, truth[:REPORTED], k),
                "recall_tuning": recall(other, truth[REPORTED:], k),
                **(costs(work.queries[:REPORTED], ask) if times else {}),
                **({"first_cpu_ms": round(first, 2)} if times and kept is not None else {}),
            }  # fmt: skip


def costs(queries: list[np.ndarray], ask: Callable[..., Ranking]) -> dict[str, float]:
    """CPU ms of a query without and with the aligned pairs."""
    bare, paired = timed(queries, ask), timed(queries, partial(ask, hits=True))
    figures = {"cpu_ms": bare.mean(), "cpu_ms_p95": np.percentile(bare, 95), "with_pairs_cpu_ms": paired.mean()}
    return {name: round(float(value), 3) for name, value in figures.items()}


def throughput(index: Index, work: Workload) -> Iterator[dict[str, Any]]:
    """Queries a second when 1 and 2 threads ask, each query a call."""
    for threads in THREADS:
        rates = []
        for _ in range(ROUNDS):
            waiting = iter(work.queries * 2)

            def ask(waiting: Iterator[np.ndarray] = waiting) -> None:
                for query in waiting:  # next() of a list's iterator is one step under the interpreter's lock
                    index.search(query, k=10, hits=False)

            started = [threading.Thread(target=ask) for _ in range(threads)]
            wall, cpu = time.perf_counter(), time.process_time()
            for thread in started:
                thread.start()
            for thread in started:
                thread.join()
            count = 2 * len(work.queries)
            rates.append((count / (time.perf_counter() - wall), (time.process_time() - cpu) / count * 1e3))
        rate, cost = sorted(rates)[len(rates) // 2]
        yield {"what": "throughput", "threads": threads, "queries_a_second": round(rate, 1), "cpu_ms": round(cost, 3)}


def measure(work: Workload, folder: Path, *, times: bool) -> Iterator[dict[str, Any]]:
    engine = Marked()
    if not (folder / "index").exists():
        folder.mkdir(parents=True, exist_ok=True)
        engine.build(work, folder)
    engine.open(work, folder)
    if times:
        for query in work.queries:  # the first searches verify what they read
            engine.index.search(query, k=100)
    yield from searches(engine.index, work, times=times)
    if times:
        yield from throughput(engine.index, work)


# -- the section -------------------------------------------------------------------------------------


ABOUT = """\
`Index.search(query, k=k)` without any setting of effort. Bars: recall@10 ≥ .98 at k = 10, recall@100 ≥ .95 at k = 100;
bold: missed. Tuning: the 100 queries that defaults may be chosen on, apart from the 100 that are reported. CPU ms of a
query: without the aligned pairs (`hits=False`), its 95th percentile, and with them. "First": the first query with a
filter, which evaluates it; the next ones find it evaluated. "–": not timed."""
HEAD = (
    "set", "documents", "tokens", "filter keeps", "k", "recall@k", "recall@k, tuning", "recall@10", "CPU ms", "p95",
    "with pairs", "first",
)  # fmt: skip

COSTS = ("cpu_ms", "cpu_ms_p95", "with_pairs_cpu_ms", "first_cpu_ms")


def row(line: dict[str, Any]) -> str:
    bar = BARS[line["k"]] if line["kept"] == "all" else 0.0
    cells = [
        line["data"],
        f"{line['documents']:,}",
        f"{line['tokens']:,}",
        f"{line['kept']} ({line['documents_kept']:,})",
        str(line["k"]),
        *(f"{r:.3f}" if r >= bar else f"**{r:.3f}**" for r in (line["recall"], line["recall_tuning"])),
        f"{line['recall10']:.3f}",
        *(f"{line[cost]:.2f}" if line.get(cost) else "–" for cost in COSTS),
    ]
    return f"| {' | '.join(cells)} |"


def section(lines: list[dict[str, Any]]) -> list[str]:
    kinds = ("data", "what", "kept", "k", "threads")
    kept = list({tuple(line.get(kind) for kind in kinds): line for line in lines}.values())
    about, loads = kept[-1]["machine"], [line["load"] for line in kept]
    levels = ", ".join(sorted({line["simd"] for line in kept}))
    rates = [
        (line["data"], line["threads"], line["queries_a_second"], line["cpu_ms"])
        for line in kept
        if line["what"] == "throughput"
    ]
    return [
        f"{about['cpu']}, {about['cores']} cores, {levels}; load average {min(loads):.1f} to {max(loads):.1f}.",
        "Command: `python benchmarks/engines/defaults.py` (its head says how).",
        "",
        ABOUT,
        "",
        f"| {' | '.join(HEAD)} |",
        "| --- |" + " ---: |" * (len(HEAD) - 1),
        *(row(line) for line in kept if line["what"] == "search"),
        "",
        "Throughput, k = 10, 1 and 2 threads that ask, a call for each query:",
        "",
        "| set | threads | queries/s | a thread | CPU ms |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(f"| {data} | {n} | {rate:.0f} | {rate / n:.0f} | {cost:.2f} |" for data, n, rate, cost in rates),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="folders of workloads")
    parser.add_argument("--indexes", type=Path, default=Path("build/engines/indexes"))
    parser.add_argument("--results", type=Path, default=Path("build/engines/defaults.jsonl"))
    parser.add_argument("--recall", action="store_true", help="no times")
    parser.add_argument("--report", action="store_true", help="write the section of RESULTS.md from all lines")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    for folder in options.data:
        work = Workload(folder)
        common = {
            "data": work.name, "documents": work.documents, "tokens": work.tokens, "machine": machine(),
            "simd": simd_level(),
        }  # fmt: skip
        for line in measure(work, options.indexes / work.name / "defaults", times=not options.recall):
            found = {**common, "time": time.strftime("%Y-%m-%dT%H:%M:%S"), "load": round(os.getloadavg()[0], 2), **line}
            print(json.dumps({key: value for key, value in found.items() if key != "machine"}), flush=True)
            with options.results.open("a", encoding="utf-8") as results:
                results.write(json.dumps(found) + "\n")
    if options.report:
        write_section("defaults", "Default effort", section(read(str(options.results))), options.output)


if __name__ == "__main__":
    main()
