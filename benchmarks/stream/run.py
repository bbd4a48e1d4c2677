"""The stream through all engines, a process for each; appends JSON lines for `report.py`.

    python benchmarks/stream/run.py --data build/stream --results build/stream/results.jsonl
    python benchmarks/stream/run.py … --engines weft --documents 2000 --peers-documents 0 --graph-documents 0
    python benchmarks/stream/run.py … --engines qdrant --modes groups

Three sizes: all documents for ours and the peers that can take them; fewer for all engines; a few for a graph over
multivectors, which costs a tenth of a second and more for each document. Ours runs at each. A peer's search setting is
chosen on tuning queries first, unless it was for this size before.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import adapters
from truth import truth
from workload import Workload, make

HERE = Path(__file__).resolve().parent
GRAPHS = ("qdrant_hnsw",)


def prepare(folder: Path, documents: int) -> Workload:
    """The workload, made when it is not there, with its exact answers."""
    if not (folder / "settings.json").exists():
        print(f"making {folder}", flush=True)
        make(folder, documents)
    work = Workload(folder)
    truth(work)
    return work


class Session:
    """Where this run's processes are started and their lines collected."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.session = time.strftime("%Y-%m-%dT%H:%M:%S")

    def call(self, engine: str, work: Workload, what: str, *more: str) -> list[dict[str, Any]]:
        """The JSON lines of one process; one that says why when it failed."""
        python = sys.executable if engine in adapters.OWN else self.options.peers_python
        command = [python, "-B", "-W", "ignore", str(HERE / "measure.py"), engine, str(work.folder), what]
        command += ["--index", str(Path(self.options.indexes) / f"{engine}-{what}"), *more]
        minutes = str(self.options.cpu_minutes)
        done = subprocess.run([*command, "--cpu-minutes", minutes], capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
            lines.append({"what": "failed", "doing": what, "reason": reason})
        for line in lines:
            self.record(engine, work, what, line)
        return lines

    def record(self, engine: str, work: Workload, mode: str, line: dict[str, Any]) -> None:
        common = {
            "engine": engine, "size": work.documents, "tokens": work.settings["tokens"], "mode": mode,
            "session": self.session, "time": time.strftime("%Y-%m-%dT%H:%M:%S"), "machine": machine(),
        }  # fmt: skip
        with open(self.options.results, "a", encoding="utf-8") as results:
            results.write(json.dumps(common | line) + "\n")
        shown = {key: line[key] for key in ("what", "recall10", "chosen", "write_cpu_ms", "reason") if key in line}
        print(work.documents, engine, mode, json.dumps(shown), flush=True)

    def chosen(self, engine: str, work: Workload) -> dict[str, Any] | None:
        """The search setting for this size, tuned when it was not yet."""
        known = [
            line
            for line in read(self.options.results)
            if line["what"] == "tuned" and line["engine"] == engine and line["size"] == work.documents
        ]
        known = known or [line for line in self.call(engine, work, "tune") if line["what"] == "tuned"]
        return known[-1]["chosen"] if known else None

    def measure(self, engine: str, work: Workload) -> None:
        knob = None if engine in adapters.UNTUNED else self.chosen(engine, work)
        more = [] if knob is None else ["--knob", json.dumps(knob)]
        for mode in self.options.modes.split(","):
            self.call(engine, work, mode, *more)


def read(path: str) -> list[dict[str, Any]]:
    if not Path(path).exists():
        return []
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line]


def machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"model name\s*: (.*)", info)
    flags = [flag for flag in ("avx2", "avx512f", "avx512_vnni") if re.search(rf"\b{flag}\b", info)]
    return {"cpu": name[1] if name else platform.processor(), "cores": os.cpu_count(), "simd": flags}


def plan(options: argparse.Namespace) -> dict[int, list[str]]:
    """Which engines run at which size, smallest first."""
    wanted = options.engines.split(",")
    sizes: dict[int, list[str]] = {}
    for documents, engines in (
        (options.graph_documents, (*adapters.OWN, *GRAPHS)),
        (options.peers_documents, [name for name in adapters.NAMES if name not in GRAPHS]),
        (options.documents, adapters.OWN),
    ):
        if documents:
            there = sizes.setdefault(documents, [])
            there += [name for name in engines if name in wanted and name not in there]
    return dict(sorted(sizes.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000, help="for our index")
    parser.add_argument("--peers-documents", type=int, default=10_000, help="for all engines side by side; 0: none")
    parser.add_argument("--graph-documents", type=int, default=1_000, help="for a graph over multivectors; 0: none")
    parser.add_argument("--engines", default=",".join(adapters.NAMES), help="comma-separated; all by default")
    parser.add_argument("--modes", default="one,groups")
    parser.add_argument("--data", type=Path, default=Path("build/stream"), help="where workloads are kept")
    parser.add_argument("--indexes", default="build/stream/indexes", help="where indexes are made, and overwritten")
    parser.add_argument("--results", default="build/stream/results.jsonl")
    parser.add_argument("--peers-python", default=".venv-stream/bin/python")
    parser.add_argument("--cpu-minutes", type=float, default=60, help="a stream stops after so much CPU time")
    options = parser.parse_args()
    Path(options.results).parent.mkdir(parents=True, exist_ok=True)
    session = Session(options)
    for documents, engines in plan(options).items():
        work = prepare(options.data / f"n{documents}", documents)
        for engine in engines:
            session.measure(engine, work)


if __name__ == "__main__":
    main()
