"""Requests a second, latencies and CPU of `weft serve`, on this machine; writes a section of benchmarks/RESULTS.md.

python benchmarks/serving/run.py [--documents 100000] [--seconds 20] [--soak 600] [--output benchmarks/RESULTS.md]
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import subprocess
import sys
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from collection import build, text_queries, vector_queries

import weft
from results_file import RESULTS, write_section

CLIENTS = (1, 8, 16, 64)
SLICE = 2500  # queries of one load: no two loads share any, and there are more than the server remembers
NAME = "bench"
SEARCH = f"/v1/indexes/{NAME}/search"


class Served:
    """A server process, and what it costs."""

    def __init__(self, folder: Path, *more: str) -> None:
        command = [sys.executable, "-m", "weft", "serve", str(folder), "--port", "0", *more]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            found = re.search(r"serving .* at http://(\S+):(\d+)", line)
            if found:
                self.host, self.port = found.group(1), int(found.group(2))
                return
        sys.exit("the server did not start")

    @property
    def cpu(self) -> float:
        """CPU seconds so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> float:
        """Megabytes that are the process's own: what is mapped from files is the system's cache."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        return int(found.group(1)) / 1024 if found else 0.0

    def load(
        self, bodies: list[dict[str, Any]], seconds: float, *, clients: int = 0, rate: float = 0
    ) -> dict[str, Any]:
        """Run a load in another process; add the server's CPU milliseconds for each request."""
        order = {"host": self.host, "port": self.port, "path": SEARCH, "bodies": bodies, "seconds": seconds}
        order |= {"clients": clients, "rate": rate}
        before = self.cpu
        loader = [sys.executable, str(Path(__file__).with_name("load.py"))]
        done = subprocess.run(loader, input=json.dumps(order), capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        found["cpu"] = 1000 * (self.cpu - before) / max(found["requests"], 1)
        found["rate"] = found["requests"] / found["seconds"]
        return found

    def stop(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait()


def direct(folder: Path, queries: list[str]) -> float:
    """Return CPU milliseconds of a search by text, documents and spans included, without HTTP."""
    from weft.serving.limits import Limits
    from weft.serving.pool import Deadline, Pool
    from weft.serving.served import Served as Index
    from weft.serving.served import _Search

    pool = Pool(1, 8)
    with weft.TextIndex.open(folder) as texts:
        served = Index(NAME, texts, pool, Limits())
        served.load()
        search = _Search(10, (), None, ("text", "metadata", "spans"))
        for query in queries[:50]:
            served._by_text([query], search, Deadline(60))
        before = time.process_time()
        for query in queries[50:]:
            served._by_text([query], search, Deadline(60))
        taken = time.process_time() - before
    pool.close()
    return 1000 * taken / len(queries[50:])


def written(server: Served, seconds: float, rate: float = 50) -> tuple[threading.Thread, list[int]]:
    """Write documents at a rate in a thread of this process; return it and where it counts."""
    counted = [0, 0]

    def write() -> None:
        with weft.connect(f"http://{server.host}:{server.port}") as notes:
            begun = time.perf_counter()
            while (passed := time.perf_counter() - begun) < seconds:
                due = int(passed * rate)
                if due > counted[0]:
                    rows = {f"new{n}": f"A document that was written while others were found, number {n}."
                            for n in range(counted[0], due)}  # fmt: skip
                    notes.add(rows)
                    counted[0] = due
                else:
                    time.sleep(0.005)

    thread = threading.Thread(target=write)
    thread.start()
    return thread, counted


def row(*cells: object) -> str:
    """Return a line of a table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def figures(found: dict[str, Any]) -> list[str]:
    """Return the cells that all tables have."""
    times = [f"{found[name]:.1f}" for name in ("p50", "p95", "p99")]
    return [f"{found['rate']:.0f}", *times, f"{found['cpu']:.2f}", f"{1000 / found['cpu']:.0f}", str(found["errors"])]


def measure(folder: Path, seconds: float, soak: float) -> list[str]:
    """Run everything and return the section's lines."""
    texts = [{"query": text} for text in text_queries(10 * SLICE)]
    slices = iter([texts[first : first + SLICE] for first in range(0, len(texts), SLICE)])
    halves = [base64.b64encode(v.astype("<f2").tobytes()).decode() for v in vector_queries(2000, 128)]
    vectors = [{"vectors": [{"base64": half}]} for half in halves]
    head = ("requests/s", "p50 ms", "p95 ms", "p99 ms", "CPU ms", "requests/s per core", "errors")
    lines = ["", row("queries", "clients", *head), row(*["---"] * 9)]
    server = Served(folder)
    try:
        server.load(next(slices), 3, clients=4)
        peaks = {}
        for name in ("text", "vectors"):
            for clients in CLIENTS:
                bodies = next(slices) if name == "text" else vectors
                found = server.load(bodies, seconds, clients=clients)
                lines.append(row(name, clients, *figures(found)))
                peaks[name] = max(peaks.get(name, 0.0), found["rate"])
            bodies = next(slices) if name == "text" else vectors
            half = server.load(bodies, seconds, rate=peaks[name] / 2)
            lines.append(row(name, "half of the peak, open loop", *figures(half)))
            lines.append(row(name, "p99 / p50 of that", f"{half['p99'] / half['p50']:.1f}", *[""] * 6))
        spans = [{**body, "fields": ["text", "metadata", "spans"]} for body in next(slices)]
        over = server.load(spans, seconds, clients=1)
        thread, counted = written(server, seconds)
        busy = server.load(next(slices), seconds, rate=peaks["text"] / 4)
        thread.join()
        lines.append(row("text, 50 documents/s written", "a quarter of the peak, open loop", *figures(busy)))
        before = server.memory
        if soak:
            server.load(texts, soak, clients=8)
        after = server.memory
    finally:
        server.stop()
    alone = direct(folder, [body["query"] for body in next(slices)[:1050]])
    lines += [
        "",
        row("figure", "value", "bar"),
        row("---", "---", "---"),
        row("CPU of a text search through HTTP, one client", f"{over['cpu']:.2f} ms", ""),
        row("CPU of the same search in Python", f"{alone:.2f} ms", ""),
        row("HTTP adds", f"{over['cpu'] - alone:.2f} ms", "≤ 0.5 ms"),
        row("documents written beside searches", f"{counted[0]}", f"{50 * seconds:.0f}"),
    ]
    if soak:
        lines.append(row(f"memory before and after {soak:.0f} s of load", f"{before:.0f} MB, {after:.0f} MB", "flat"))
    return lines


def main() -> None:
    """Make the index, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--soak", type=float, default=600)
    parser.add_argument("--data", type=Path, default=Path("build/serving"))
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    kept = options.data / f"{options.documents}.weft"
    build(kept, options.documents)
    copy = options.data / f"{NAME}.weft"  # written to, so made anew
    subprocess.run(["rm", "-rf", str(copy)], check=True)
    subprocess.run(["cp", "-r", str(kept), str(copy)], check=True)
    names = re.findall(r"model name\s*: (\S+ \S+)", Path("/proc/cpuinfo").read_text())
    packages = ("weft-search", "uvicorn", "starlette", "msgspec")
    lines = [
        f"{names[0]}, {os.cpu_count()} cores, {weft.simd_level()}; load average {os.getloadavg()[0]:.1f}; "
        + ", ".join(f"{name} {version(name)}" for name in packages)
        + ".",
        f"Command: `make bench-serving`. {options.documents:,} documents, texts real, vectors synthetic; the bundled "
        f"model; k = 10 with texts, metadata and spans; {options.seconds:g} s each; the load runs in a second process "
        "on the same cores. CPU is the server's for each request; requests a second per core are what that allows.",
    ]
    lines += measure(copy, options.seconds, options.soak)
    print("\n".join(lines))
    write_section("serving", "Serving", lines, options.output)


if __name__ == "__main__":
    main()
