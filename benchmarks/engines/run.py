"""All engines over all workloads, a process for each build and each search; appends JSON lines for `report.py`.

    python benchmarks/engines/run.py --data DATA/s10k DATA/s100k DATA/real --indexes INDEXES --results results.jsonl
    python benchmarks/engines/run.py … --engines weft,int8          only these
    python benchmarks/engines/run.py … --build never                searches again with the indexes on disk
    python benchmarks/engines/run.py … --python tachiom=/path/to/python

A workload that does not exist is made: `s10k`, `s100k`, `s500k` by ../shared/bench/gen_synthetic.py, `real` (MiniLM)
and `real_weft` (weft-small) by encode_text.py. Before and after each engine's sweep the int8 brute force is timed, so
that figures can be quoted in multiples of that scan under the conditions of the same minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import adapters
from workload import Workload, compiler

HERE = Path(__file__).resolve().parent
GENERATOR = HERE.parents[2] / "shared" / "bench" / "gen_synthetic.py"
REAL = {"real": ["--model", "minilm"], "real_weft": ["--model", "weft-small", "--documents", "52000"]}
YARDSTICK = '[{"rerank": 0}]'


def prepare(folder: Path, python: str) -> Workload:
    """The workload, made when it is not there, with its exact answers."""
    if not (folder / "tokens.npy").exists():
        folder.mkdir(parents=True, exist_ok=True)
        synthetic = re.fullmatch(r"s(\d+)k", folder.name)
        if synthetic and not GENERATOR.exists():
            raise SystemExit(f"{folder} is not there, and neither is the generator that makes it, {GENERATOR}")
        if not synthetic and folder.name not in REAL:
            raise SystemExit(f"{folder} is not there; only s<n>k, {' and '.join(REAL)} can be made")
        if synthetic:
            command = [python, str(GENERATOR), str(folder), f"{synthetic[1]}000"]
        else:
            command = [python, str(HERE / "encode_text.py"), str(folder), *REAL[folder.name]]
        subprocess.run(command, check=True)
    work = Workload(folder)
    work.truth()
    return work


class Session:
    """Where this run's processes are started and their lines collected."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.pythons = dict(entry.split("=", 1) for entry in options.python)
        self.session = time.strftime("%Y-%m-%dT%H:%M:%S")

    def python(self, engine: str) -> str:
        return self.pythons.get(engine) or (sys.executable if engine in adapters.OWN else self.options.peers_python)

    def index(self, work: Workload, engine: str) -> Path:
        return Path(self.options.indexes) / work.name / engine

    def call(self, engine: str, work: Workload, what: str, *more: str) -> list[dict[str, Any]]:
        """The JSON lines of one process; one that says why when it failed."""
        target = str(self.index(work, engine))
        command = [
            self.python(engine),
            "-B",
            str(HERE / "measure.py"),
            engine,
            str(work.folder),
            what,
            "--index",
            target,
        ]
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
            if done.returncode == -signal.SIGXCPU:
                reason = f"took more than {self.options.max_build_minutes:g} CPU minutes to build"
            lines.append({"what": "failed", "doing": what, "reason": reason})
        return lines

    def record(self, engine: str, work: Workload, line: dict[str, Any]) -> None:
        common = {
            "engine": engine, "data": work.name, "documents": work.documents, "tokens": work.tokens,
            "session": self.session, "time": time.strftime("%Y-%m-%dT%H:%M:%S"), "machine": machine(),
        }  # fmt: skip
        with open(self.options.results, "a", encoding="utf-8") as results:
            results.write(json.dumps(common | line) + "\n")
        shown = {
            key: line[key]
            for key in (
                "what",
                "k",
                "bars",
                "knob",
                "recall",
                "recall10",
                "recall100",
                "cpu_ms",
                "x_int8",
                "cpu_s",
                "reason",
            )
            if key in line
        }
        print(work.name, engine, json.dumps(shown), flush=True)

    def yardstick(self, work: Workload) -> float:
        """CPU ms of an int8 scan now."""
        queries = self.options.queries if work.tokens < 5_000_000 else 20
        lines = self.call("int8", work, "search", "--queries", str(queries), "--rounds", "1", "--knobs", YARDSTICK)
        return float(lines[-1]["cpu_ms"])

    # -- build and search ----------------------------------------------------------------------------

    def build(self, engine: str, work: Workload) -> bool:
        """Build if asked to; say whether there is an index to search."""
        there = self.index(work, engine).exists()
        if self.options.build == "never" or (there and self.options.build == "missing"):
            return there
        estimate = self.estimated_minutes(engine, work)
        if estimate > self.options.max_build_minutes:
            reason = f"build would take about {estimate:.0f} CPU minutes"
            self.record(engine, work, {"what": "skipped", "reason": reason})
            return False
        lines = self.call(engine, work, "build", "--cpu-minutes", str(self.options.max_build_minutes))
        for line in lines:
            self.record(engine, work, line)
        if lines[-1]["what"] != "build":
            shutil.rmtree(self.index(work, engine), ignore_errors=True)  # what is half built is not to be searched
            return False
        return True

    def estimated_minutes(self, engine: str, work: Workload) -> float:
        """CPU minutes for this workload at the rate of the latest build of another one; 0 when there was none."""
        rates = [
            line["cpu_s_per_m_tokens"]
            for line in read(self.options.results)
            if line["what"] == "build" and line["engine"] == engine and line["data"] != work.name
        ]
        return rates[-1] * work.tokens / 1e6 / 60 if rates else 0.0

    def search(self, engine: str, work: Workload) -> None:
        before = self.yardstick(work)
        lines = self.call(
            engine, work, "search", "--queries", str(self.options.queries), "--rounds", str(self.options.rounds)
        )
        unit = (before + self.yardstick(work)) / 2
        for line in lines:
            if line["what"] == "search":
                line |= {"int8_ms": round(unit, 3), "x_int8": round(line["cpu_ms"] / unit, 4)}
            self.record(engine, work, line)


def read(path: str) -> list[dict[str, Any]]:
    if not Path(path).exists():
        return []
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line]


def machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"model name\s*: (.*)", info)
    flags = [flag for flag in ("avx2", "avx512f", "avx512_vnni") if re.search(rf"\b{flag}\b", info)]
    return {
        "cpu": name[1] if name else platform.processor(),
        "cores": os.cpu_count(),
        "simd": flags,
        "compiler": compiler(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--engines", default=",".join(adapters.NAMES), help="comma-separated; all by default")
    parser.add_argument("--indexes", default="build/engines/indexes")
    parser.add_argument("--results", default="build/engines/results.jsonl")
    parser.add_argument("--peers-python", default=sys.executable, help="interpreter of the peers' environment")
    parser.add_argument(
        "--python", action="append", default=[], metavar="ENGINE=PATH", help="interpreter of one engine"
    )
    parser.add_argument("--build", choices=("missing", "always", "never"), default="missing")
    parser.add_argument("--max-build-minutes", type=float, default=15)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    Path(options.results).parent.mkdir(parents=True, exist_ok=True)
    session = Session(options)
    for folder in options.data:
        work = prepare(folder, sys.executable)
        if not session.index(work, "int8").exists():
            session.record("int8", work, session.call("int8", work, "build")[-1])
        for engine in options.engines.split(","):
            if session.build(engine, work):
                session.search(engine, work)


if __name__ == "__main__":
    main()
