"""One engine, one workload, one process: build its index, or choose its knobs and search. `run.py` calls it.

    python measure.py ENGINE WORKLOAD build|search --index FOLDER [--queries 100] [--rounds 3] [--knobs '[{…}]']

Knobs are chosen on tuning queries, for every bar of recall the cheapest setting that reaches it there, and reported on
other queries, which no choice has seen. Searches for k = 10 and for k = 100 are tuned apart; an engine is asked for k
documents. Prints JSON lines. The time is CPU time of the whole process, so threads that an engine starts on its own
count too.
"""

import os

# Before the other imports: thread pools read these when they start.
for variable in (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "LANCE_CPU_THREADS",
    "TOKIO_WORKER_THREADS",
):  # fmt: skip
    os.environ[variable] = "1"

import argparse
import json
import platform
import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import adapters
import numpy as np
from workload import DEPTH, REPORTED, Workload, recall

BARS = {10: (0.95, 0.99), 100: (0.95,)}  # k: recalls @k that settings are chosen for
ENOUGH = (
    2.0  # a sweep ends where a setting reaches all bars at more than this many times the cost of the cheapest that does
)


def cpu_seconds() -> float:
    """CPU time of this process and of children that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def resident() -> tuple[int, int]:
    """Resident bytes of this process now: all, and those backed by files (mapped index, libraries)."""
    pages = [int(field) for field in Path("/proc/self/statm").read_text().split()]
    return pages[1] * resource.getpagesize(), pages[2] * resource.getpagesize()


def emit(**record: Any) -> None:
    print(json.dumps(record), flush=True)


def build(engine: adapters.Adapter, work: Workload, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wall, cpu = time.perf_counter(), cpu_seconds()
    engine.build(work, folder)
    cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    emit(
        what="build",
        cpu_s=round(cpu, 1),
        wall_s=round(wall, 1),
        cpu_s_per_m_tokens=round(cpu / work.tokens * 1e6, 1),
        index_bytes=adapters.folder_bytes(folder),
        peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        versions={"python": platform.python_version(), **engine.versions()},
    )


class Searches:
    """An engine asked the queries of a workload."""

    def __init__(self, engine: adapters.Adapter, work: Workload, folder: Path, queries: int, rounds: int) -> None:
        self.engine, self.work, self.folder, self.rounds = engine, work, folder, rounds
        truth = work.truth()
        self.tuning = work.queries[REPORTED : REPORTED + queries], truth[REPORTED : REPORTED + queries]
        self.reported = work.queries[:queries], truth[:queries]
        self.before = resident()
        start, cpu = time.perf_counter(), time.process_time()
        engine.open(work, folder)
        self.opened = {
            "open_cpu_ms": round((time.process_time() - cpu) * 1e3, 2),
            "open_wall_ms": round((time.perf_counter() - start) * 1e3, 2),
        }

    def ask(
        self, queries: list[np.ndarray], k: int, knob: dict[str, Any], rounds: int
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """CPU seconds, (rounds, queries), and what was found."""
        for query in queries[:5]:
            self.engine.search(query, k, **knob)
        times = np.empty((rounds, len(queries)))
        found: list[np.ndarray] = []
        for line in times:
            found = []
            for i, query in enumerate(queries):
                cpu = time.process_time()
                documents = self.engine.search(query, k, **knob)
                line[i] = time.process_time() - cpu
                found.append(np.asarray(documents))
        return times, found

    def choose(self, k: int) -> list[tuple[dict[str, Any], list[float]]]:
        """The settings to report, each with the bars it was chosen for; where none is reached, the best by recall."""
        queries, truth = self.tuning
        self.ask(queries, k, self.engine.knobs(self.work, k)[0], 1)  # so that no setting pays for what all read first
        tried: list[tuple[float, float, dict[str, Any]]] = []  # cost, recall, setting
        for knob in self.engine.knobs(self.work, k):
            times, found = self.ask(queries, k, knob, 1)
            cost, reached = float(times.mean()) * 1e3, recall(found, truth, k)
            tried.append((cost, reached, knob))
            emit(what="tuning", k=k, knob=knob, queries=len(queries), recall=round(reached, 4), cpu_ms=round(cost, 4))
            best = min((c for c, r, _ in tried if r >= max(BARS[k])), default=np.inf)
            if reached >= max(BARS[k]) and cost > ENOUGH * best:
                break
        chosen: list[tuple[dict[str, Any], list[float]]] = []
        for bar in BARS[k]:
            reaching = [one for one in tried if one[1] >= bar]
            if reaching:
                _, _, knob = min(reaching, key=lambda one: one[0])
                known = next((bars for other, bars in chosen if other == knob), None)
                if known is None:
                    chosen.append((knob, [bar]))
                else:
                    known.append(bar)
        return chosen or [(max(tried, key=lambda one: one[1])[2], [])]

    def report(self, k: int, knob: dict[str, Any], bars: list[float]) -> None:
        queries, truth = self.reported
        times, found = self.ask(queries, k, knob, self.rounds)
        each = np.median(times, axis=0) * 1e3  # of every query, the median of the rounds
        now = resident()
        emit(
            what="search",
            k=k,
            bars=bars,
            knob=knob,
            queries=len(queries),
            recall10=round(recall(found, truth, 10), 4),
            recall100=round(recall(found, truth, 100), 4) if k >= DEPTH else None,
            cpu_ms=round(float(each.mean()), 4),
            cpu_ms_median=round(float(np.median(each)), 4),
            cpu_ms_p95=round(float(np.percentile(each, 95)), 4),
            cpu_ms_best_round=round(float(times.mean(axis=1).min()) * 1e3, 4),
            bytes_per_token=round(self.engine.bytes_on_disk(self.work, self.folder, knob) / self.work.tokens, 2),
            rss_mb=round(now[0] / 2**20, 1),
            rss_over_start_mb=round((now[0] - self.before[0]) / 2**20, 1),
            rss_files_mb=round(now[1] / 2**20, 1),
            load=round(os.getloadavg()[0], 2),
            versions={"python": platform.python_version(), **self.engine.versions()},
            **self.opened,
        )


def search(searches: Searches, knobs: list[dict[str, Any]] | None) -> None:
    """Report given settings, or those that the tuning queries choose."""
    for knob in knobs or ():
        searches.report(DEPTH, knob, [])
    if knobs is None:
        for k in BARS:
            for knob, bars in searches.choose(k):
                searches.report(k, knob, bars)
        for knob in searches.engine.untuned:
            searches.report(10, knob, [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine")
    parser.add_argument("workload", type=Path)
    parser.add_argument("what", choices=("build", "search"))
    parser.add_argument("--index", type=Path, required=True, help="folder of this index")
    parser.add_argument("--queries", type=int, default=REPORTED, help="to tune on, and as many others to report")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--knobs", type=json.loads, help="a JSON list of settings to report, instead of a choice")
    parser.add_argument("--cpu-minutes", type=float, help="a build that takes longer is ended")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    engine, work = adapters.load(options.engine), Workload(options.workload)
    if options.cpu_minutes:
        most = int(options.cpu_minutes * 60)
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 10))
    if options.what == "build":
        build(engine, work, options.index)
    else:
        queries = min(options.queries, REPORTED, len(work.queries) - REPORTED)
        search(Searches(engine, work, options.index, queries, options.rounds), options.knobs)


if __name__ == "__main__":
    main()
