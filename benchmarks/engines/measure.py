"""One engine, one workload, one process: build its index, or sweep its knobs. Prints JSON lines; `run.py` calls it.

    python measure.py ENGINE WORKLOAD build|search --index FOLDER [--queries 100] [--rounds 3] [--knobs '[{…}]']

The time is CPU time of the whole process, so threads that an engine starts on its own count too.
"""

import os

# Before the other imports: thread pools read these when they start.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
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
from workload import DEPTH, Workload, recall


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


def search(
    engine: adapters.Adapter,
    work: Workload,
    folder: Path,
    queries: int,
    rounds: int,
    knobs: list[dict[str, Any]] | None,
) -> None:
    truth = work.truth()
    before = resident()
    start, cpu = time.perf_counter(), time.process_time()
    engine.open(work, folder)
    opened = {"open_cpu_ms": (time.process_time() - cpu) * 1e3, "open_wall_ms": (time.perf_counter() - start) * 1e3}
    asked = work.queries[:queries]
    for knob in knobs or engine.knobs(work):
        for query in asked[:5]:
            engine.search(query, DEPTH, **knob)
        times = np.empty((rounds, len(asked)))
        found: list[np.ndarray] = []
        for line in times:
            found = []
            for i, query in enumerate(asked):
                cpu = time.process_time()
                documents = engine.search(query, DEPTH, **knob)
                line[i] = time.process_time() - cpu
                found.append(np.asarray(documents))
        each = np.median(times, axis=0) * 1e3  # of every query, the median of the rounds
        now = resident()
        emit(
            what="search",
            knob=knob,
            queries=len(asked),
            recall10=round(recall(found, truth, 10), 4),
            recall100=round(recall(found, truth, 100), 4),
            cpu_ms=round(float(each.mean()), 4),
            cpu_ms_median=round(float(np.median(each)), 4),
            cpu_ms_p95=round(float(np.percentile(each, 95)), 4),
            cpu_ms_best_round=round(float(times.mean(axis=1).min()) * 1e3, 4),
            bytes_per_token=round(engine.bytes_on_disk(work, folder, knob) / work.tokens, 2),
            rss_mb=round(now[0] / 2**20, 1),
            rss_over_start_mb=round((now[0] - before[0]) / 2**20, 1),
            rss_files_mb=round(now[1] / 2**20, 1),
            load=round(os.getloadavg()[0], 2),
            versions={"python": platform.python_version(), **engine.versions()},
            **{name: round(value, 2) for name, value in opened.items()},
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine")
    parser.add_argument("workload", type=Path)
    parser.add_argument("what", choices=("build", "search"))
    parser.add_argument("--index", type=Path, required=True, help="folder of this index")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--knobs", type=json.loads, help="a JSON list in place of the engine's own sweep")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    engine, work = adapters.load(options.engine), Workload(options.workload)
    if options.what == "build":
        build(engine, work, options.index)
    else:
        search(engine, work, options.index, options.queries, options.rounds, options.knobs)


if __name__ == "__main__":
    main()
