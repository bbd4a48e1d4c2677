"""One engine, one stream, one process. Prints JSON lines; `run.py` calls it.

    python measure.py ENGINE WORKLOAD one|groups|tune --index FOLDER [--knob '{…}'] [--cpu-minutes 60]

`one` writes document by document and searches after every 50 operations, `groups` in groups of 100 and searches after
each; `tune` writes in groups, then tries the engine's search settings on queries of their own. CPU time is that of the
whole process, except for our searches, which run in the calling thread while merges go on in another.
"""

import os
import sys

# Before the other imports: thread pools read these when they start.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import json
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import adapters
import numpy as np
from truth import exact_answers, recall, truth
from workload import ADD, DELETE, GROUP, TUNING, UPSERT, Group, K, Workload

ROUNDS = 5
WANTED = 0.98
NOISE = 1.15  # costs that differ by less are taken for equal


def emit(**record: Any) -> None:
    print(json.dumps(record), flush=True)


def spread(seconds: list[float]) -> dict[str, float]:
    """Median, mean, p99 and maximum, in milliseconds."""
    if not seconds:
        return {}
    ms = np.array(seconds) * 1e3
    figures = {"median": np.median(ms), "mean": ms.mean(), "p99": np.percentile(ms, 99), "max": ms.max()}
    return {"n": len(ms), **{name: round(float(value), 3) for name, value in figures.items()}}


class Stopwatch:
    """CPU seconds of the process, CPU seconds of this thread, and wall seconds of a block."""

    def __enter__(self) -> "Stopwatch":
        self.started = self.now()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu, self.thread, self.wall = np.subtract(self.now(), self.started).tolist()

    @staticmethod
    def now() -> tuple[float, float, float]:
        return time.process_time(), time.thread_time(), time.perf_counter()


class Stream:
    """The stream going through an engine, and what is seen on the way."""

    def __init__(self, engine: adapters.Adapter, work: Workload, knob: dict[str, Any], cpu_minutes: float) -> None:
        self.engine, self.work, self.knob, self.cpu_minutes = engine, work, knob, cpu_minutes
        self.writes: list[Stopwatch] = []
        self.during_merge: list[float] = []  # wall seconds of writes while a merge was under way
        self.maintenance: list[Stopwatch] = []
        self.searches: dict[int, tuple[float, float]] = {}  # query: CPU and wall seconds
        self.found: dict[int, list[str]] = {}
        self.moments: list[dict[str, Any]] = []
        self.descriptors = self.files = self.operations = 0

    def run(self, size: int, *, search: bool = True) -> None:
        """Write all groups of so many operations, and search when it is time, as long as the CPU budget lasts."""
        self.started = Stopwatch.now()
        for group in self.work.groups(size):
            self.write(group)
            self.operations = group.end
            query = self.work.due(group.end) if search and group.end % max(size, 1) == 0 else None
            if query is not None:
                self.search(query)
            if time.process_time() - self.started[0] > 60 * self.cpu_minutes:
                break
        self.ended = Stopwatch.now()

    def write(self, group: Group) -> None:
        kinds: dict[int, list[Any]] = {ADD: [], UPSERT: [], DELETE: []}
        for kind, document, text in group.rows.tolist():
            kinds[kind].append(str(document) if kind == DELETE else (str(document), self.work.text(text)))
        merging = self.engine.merging()
        with Stopwatch() as watch:
            self.engine.write(kinds[ADD], kinds[UPSERT], kinds[DELETE])
        self.writes.append(watch)
        if merging or self.engine.merging():
            self.during_merge.append(watch.wall)
        self.files = max(self.files, self.engine.files() or 0)
        with Stopwatch() as watch:
            maintained = self.engine.maintain()
        if maintained:
            self.maintenance.append(watch)

    def search(self, query: int) -> None:
        cpu, wall = self.engine.cpu(), time.perf_counter()
        self.found[query] = self.engine.search(self.work.queries[query], K, **self.knob)
        self.searches[query] = self.engine.cpu() - cpu, time.perf_counter() - wall
        self.descriptors = max(self.descriptors, len(os.listdir("/proc/self/fd")))
        # After the search, so that it does not find the newest state loaded already.
        self.moments.append({"operations": self.operations, **self.engine.state()})

    # -- what came out ---------------------------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        rows = self.work.rows[: self.operations]
        cpu, thread, wall = np.subtract(self.ended, self.started).tolist()
        background = max(cpu - thread, 0.0) if self.engine.cpu is time.thread_time else 0.0
        writing = sum((w.thread if background else w.cpu) for w in self.writes)
        maintaining = sum(w.cpu for w in self.maintenance)
        last = [query for query in self.searches if self.work.asked_at[query] > 0.75 * self.operations]
        return {
            "operations": len(rows),
            "documents": int((rows[:, 0] == ADD).sum()),
            "finished": self.operations == len(self.work.rows),
            "cpu_s": round(cpu, 1),
            "wall_s": round(wall, 1),
            "write_cpu_ms": round((writing + background + maintaining) / len(rows) * 1e3, 3),
            "background_cpu_s": round(background, 1),
            "write": spread([w.wall for w in self.writes]),
            "write_call_cpu": spread([w.thread if background else w.cpu for w in self.writes]),
            "write_during_merge": spread(self.during_merge),
            "maintenance": {"cpu_s": round(maintaining, 1), **spread([w.wall for w in self.maintenance])},
            "stall_ms": round(max(w.wall for w in (*self.writes, *self.maintenance)) * 1e3, 1),
            "search_cpu": spread([cpu for cpu, _ in self.searches.values()]),
            "search_wall": spread([wall for _, wall in self.searches.values()]),
            "search_cpu_last_quarter": spread([self.searches[query][0] for query in last]),
            "descriptors": self.descriptors,
            "files": self.files or None,
            **self.recalls(),
            **self.segments(),
        }

    def recalls(self) -> dict[str, Any]:
        """recall@10 over the sampled searches, and in each fifth of the stream."""
        answers = truth(self.work)
        sampled = [query for query in self.found if query in answers]
        if not sampled:
            return {}
        fifths = [part.tolist() for part in np.array_split(sampled, 5) if len(part)]
        of = [recall([self.found[q] for q in some], [answers[q] for q in some]) for some in (sampled, *fifths)]
        return {"sampled": len(sampled), "recall10": round(of[0], 4), "recall10_fifths": [round(r, 4) for r in of[1:]]}

    def segments(self) -> dict[str, Any]:
        last = self.moments[-1] if self.moments else {}
        counts = [moment["segments"] for moment in self.moments if "segments" in moment]
        seen = {"segments_max": max(counts), "segments_end": counts[-1]} if counts else {}
        if last.get("added_bytes"):
            seen["write_amplification"] = round(last["written_bytes"] / last["added_bytes"], 2)
        some = self.moments[:: max(len(self.moments) // 40, 1)]
        return {**seen, "merges": last.get("merges"), "over_time": some}


# -- after the stream ----------------------------------------------------------------------------------


def beside_compacted(engine: Any, work: Workload, folder: Path) -> None:
    """The index as the stream left it and a compacted copy, asked the same queries in turn."""
    answers = truth(work)
    asked = [query for query in work.final if query in answers]
    state = engine.state()["segments"]
    other, cost = engine.compacted(folder)
    pair = {"stream": engine, "compacted": other}
    times: dict[str, list[float]] = {name: [] for name in pair}
    found: dict[str, list[list[str]]] = {name: [] for name in pair}
    for round_ in range(-1, ROUNDS):  # the first warms up
        for query in asked:
            for name, one in pair.items():
                start = one.cpu()
                result = one.search(work.queries[query], K)
                if round_ >= 0:
                    times[name].append(one.cpu() - start)
                if round_ == 0:
                    found[name].append(result)
    streamed = [query for query in range(work.final.start) if work.asked_at[query] > 0.75 * len(work.rows)]
    once = []  # as in the stream: queries that were not asked before, whose documents are in no cache
    for query in streamed:
        start = other.cpu()
        other.search(work.queries[query], K)
        once.append(other.cpu() - start)
    exact = [engine.search(work.queries[query], K, exact=True) for query in asked]
    wanted = [answers[query] for query in asked]
    emit(
        what="compacted",
        segments=state,
        compacted_segments=other.state()["segments"],
        compaction={name: round(value, 1) for name, value in cost.items()},
        recall10={name: round(recall(found[name], wanted), 4) for name in pair},
        exact_recall10=round(recall(exact, wanted), 4),
        **{f"{name}_cpu": spread(values) for name, values in (*times.items(), ("compacted_once", once))},
    )
    other.close()


def tune(engine: adapters.Adapter, work: Workload, cpu_minutes: float) -> None:
    """Emit each setting's cost and recall, and which to take: the cheapest with enough recall, else the best."""
    stream = Stream(engine, work, {}, cpu_minutes)
    stream.run(GROUP, search=False)
    engine.finish()
    answers = exact_answers(work, work.tuning, np.full(TUNING, stream.operations))
    tried = []
    for knob in engine.knobs:
        engine.search(work.tuning[0], K, **knob)
        times, found = [], []
        for query in work.tuning:
            start = engine.cpu()
            found.append(engine.search(query, K, **knob))
            times.append(engine.cpu() - start)
        tried.append({"knob": knob, "recall10": round(recall(found, answers), 4), "search_cpu": spread(times)})
    enough = [one for one in tried if one["recall10"] >= WANTED]
    least = min((one["search_cpu"]["median"] for one in enough), default=0.0)
    cheap = [one for one in enough if one["search_cpu"]["median"] <= NOISE * least]  # of equals the first
    chosen = cheap[0] if cheap else max(tried, key=lambda one: one["recall10"])
    emit(what="tuned", operations=stream.operations, chosen=chosen["knob"], tried=tried)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=adapters.NAMES)
    parser.add_argument("workload", type=Path)
    parser.add_argument("what", choices=("one", "groups", "tune"))
    parser.add_argument("--index", type=Path, required=True, help="folder for the index, made anew")
    parser.add_argument("--knob", type=json.loads, help="search setting; the engine's default if not given")
    parser.add_argument("--cpu-minutes", type=float, default=60, help="stop the stream after so much CPU time")
    options = parser.parse_args()
    work, engine = Workload(options.workload), adapters.load(options.engine)
    if any(os.environ.get(name) != value for name, value in engine.environment.items()):
        os.environ.update(engine.environment)  # some are read while the library is loaded: begin again with them
        os.execv(sys.executable, sys.orig_argv)
    shutil.rmtree(options.index, ignore_errors=True)
    options.index.mkdir(parents=True)
    engine.create(options.index)
    if options.what == "tune":
        tune(engine, work, options.cpu_minutes)
    else:
        knob = engine.default if options.knob is None else options.knob
        stream = Stream(engine, work, knob, options.cpu_minutes)
        stream.run(1 if options.what == "one" else GROUP)
        versions = {"python": platform.python_version(), **engine.versions()}
        emit(what="stream", knob=knob, load=round(os.getloadavg()[0], 2), versions=versions, **stream.summary())
        if stream.operations == len(work.rows) and hasattr(engine, "compacted"):
            beside_compacted(engine, work, options.index)
    engine.close()


if __name__ == "__main__":
    main()
