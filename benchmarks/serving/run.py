"""Requests a second, latencies and CPU of `weft serve`, on this machine; writes a section of benchmarks/RESULTS.md.

python benchmarks/serving/run.py [--documents 100000] [--seconds 20] [--soak 600] [--output benchmarks/RESULTS.md]

It takes about half an hour. `--parts` runs some of it and keeps what was measured; `--parts report` writes the section.
The part `page` needs Chromium and Playwright.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from collection import build, text_queries, vector_queries

import weft
from results_file import RESULTS, write_section

CLIENTS = (1, 8, 16, 64)
SLICE = 2500
ROUNDS = 5
NAME = "bench"
SEARCH = f"/v1/indexes/{NAME}/search"
SUMS = "vectors, sum-of-max"
"""Vector queries under another alignment than the index's own."""


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
        """CPU seconds so far, of workers too."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ticks = 0
        for process in (self.process.pid, *children):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

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


@contextmanager
def calling(folder: Path, kind: str) -> Iterator[Callable[[int], float]]:
    """Lend what returns CPU milliseconds of a search without HTTP, with documents and spans: the mean of so many."""
    from weft.serving.limits import Limits
    from weft.serving.pool import Deadline, Pool
    from weft.serving.served import Search
    from weft.serving.served import Served as Index

    pool = Pool(1, 8)
    with weft.TextIndex.open(folder) as texts:
        served = Index(NAME, texts, pool, Limits())
        served.load()
        search = Search(10, (), None, ("text", "metadata", "spans"))
        queries = iter(text_queries(SLICE) if kind == "text" else vector_queries(SLICE, texts.index.dim))
        ask: Any = served._by_text if kind == "text" else served._by_vectors

        def measure(number: int) -> float:
            before = time.process_time()
            for query in islice(queries, number):
                ask([query], search, Deadline(60))
            return 1000 * (time.process_time() - before) / number

        yield measure
    pool.close()


@cache
def _texts() -> list[dict[str, Any]]:
    return [{"query": text} for text in text_queries(8 * SLICE)]


def bodies(kind: str, part: int) -> list[dict[str, Any]]:
    """Return the requests of one load: no two loads share a text, and there are more than the server remembers."""
    if kind == "text":
        return _texts()[part * SLICE : (part + 1) * SLICE]
    halves = [base64.b64encode(v.astype("<f2").tobytes()).decode() for v in vector_queries(2000, 128)]
    given = {"alignment": "sum-of-max"} if kind == SUMS else {}
    return [{"vectors": [{"base64": half}], **given} for half in halves]


@contextmanager
def serving(folder: Path, *more: str) -> Iterator[Served]:
    """Run a server."""
    server = Served(folder, *more)
    try:
        yield server
    finally:
        server.stop()


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


class Bench:
    """The parts, each with a server of its own; what they measured is kept in a file."""

    def __init__(self, folder: Path, kept: Path, seconds: float, soak: float) -> None:
        self.folder, self.kept, self.seconds, self.soak = folder, kept, seconds, soak
        self.found: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}

    def run(self, part: str) -> None:
        """Measure one part."""
        load = os.getloadavg()[0]
        self.found[part] = {**getattr(self, part.replace("-", "_"))(), "load": load}
        self.kept.write_text(json.dumps(self.found))
        print(part, json.dumps(self.found[part]), flush=True)

    def text(self) -> dict[str, Any]:
        return self._clients("text")

    def vectors(self) -> dict[str, Any]:
        return self._clients("vectors")

    def sums(self) -> dict[str, Any]:
        return self._clients(SUMS)

    def workers(self) -> dict[str, Any]:
        found = {}
        for kind in ("text", "vectors"):
            with serving(self.folder, "--workers", "2") as server:
                server.load(bodies(kind, 0), 5, clients=4)
                found[kind] = server.load(bodies(kind, 1), self.seconds, clients=16)
        return found

    def _clients(self, kind: str) -> dict[str, Any]:
        with serving(self.folder) as server:
            server.load(bodies(kind, 0), 5, clients=4)
            found = {str(n): server.load(bodies(kind, 1 + i), self.seconds, clients=n) for i, n in enumerate(CLIENTS)}
            peak = max(row["rate"] for row in found.values())
            found["half"] = server.load(bodies(kind, 5), self.seconds, rate=peak / 2)
            return found

    def http(self) -> dict[str, Any]:
        """What HTTP adds to a search that is called from Python, texts and vectors: both in turns."""
        found = {}
        for kind in ("text", "vectors"):
            with serving(self.folder) as server, calling(self.folder, kind) as call:
                server.load(bodies(kind, 0), 12, clients=4)
                call(SLICE // 2)  # as warm as what it is compared with
                asked = [bodies(kind, 6)[turn::ROUNDS] for turn in range(ROUNDS)]
                rounds = [
                    (server.load(some, self.seconds / ROUNDS, clients=1)["cpu"], call(SLICE // 2 // ROUNDS))
                    for some in asked
                ]
            over, alone = zip(*rounds, strict=True)
            found[kind] = {"over": median(over), "alone": median(alone)}
        return found

    def page(self) -> dict[str, Any]:
        """When the first result is on the screen, in Chromium."""
        from typing_page import measured

        return measured(self.folder, 50)

    def writes(self) -> dict[str, Any]:
        """Searches at a quarter of the peak beside 50 documents a second."""
        if "text" not in self.found:
            self.run("text")
        rate = max(row["rate"] for name, row in self.found["text"].items() if name in map(str, CLIENTS)) / 4
        copy = self.folder.with_name(f"{NAME}-written") / f"{NAME}.weft"  # written to, so made anew
        shutil.rmtree(copy.parent, ignore_errors=True)
        shutil.copytree(self.folder, copy)
        with serving(copy) as server:
            server.load(bodies("text", 0), 5, clients=4)
            seconds = 3 * self.seconds
            thread, counted = written(server, seconds)
            busy = server.load(bodies("text", 7), seconds, rate=rate)
            thread.join()
        shutil.rmtree(copy.parent)
        return {**busy, "written": counted[0], "wanted": 50 * seconds}

    def memory(self) -> dict[str, Any]:
        """Memory every half minute of a long load at a low rate, texts and vectors in turns."""
        seen = []
        with serving(self.folder) as server:
            server.load(bodies("text", 0), 10, clients=2)
            server.load(bodies("vectors", 0), 10, clients=2)
            errors = requests = 0
            for step in range(max(int(self.soak // 30), 1)):
                seen.append(server.memory)
                kind = "text" if step % 2 else "vectors"
                row = server.load(bodies(kind, step % 8), min(self.soak, 30), rate=30)
                errors, requests = errors + row["errors"], requests + row["requests"]
            seen.append(server.memory)
        return {"seen": seen, "errors": errors, "requests": requests}

    def lines(self, documents: int) -> list[str]:
        """Return the section."""
        names = re.findall(r"model name\s*: (\S+ \S+)", Path("/proc/cpuinfo").read_text())
        with weft.Index.open(self.folder) as index:
            own = index.alignment
        packages = ("weft-search", "uvicorn", "starlette", "msgspec")
        loads = ", ".join(f"{part} {row['load']:.1f}" for part, row in self.found.items())
        head = ("requests/s", "p50 ms", "p95 ms", "p99 ms", "CPU ms", "requests/s per core", "errors")
        lines = [
            f"{names[0]}, {os.cpu_count()} cores, {weft.simd_level()}; "
            + ", ".join(f"{name} {version(name)}" for name in packages)
            + f". Load average before each part: {loads}.",
            f"Command: `make bench-serving`. {documents:,} documents, texts real, vectors synthetic; bundled model; "
            f"k = 10 with texts, metadata and spans, scored by `{own}` unless another alignment is named; "
            f"{self.seconds:g} s each; the load runs in a second process on the same cores. "
            "CPU is the server's for each request; requests a second per core are what that allows.",
            "",
            row("queries", "clients", *head),
            row(*["---"] * 9),
        ]
        for part, kind in (("text", "text"), ("vectors", "vectors"), ("sums", SUMS)):
            for name, found in self.found.get(part, {}).items():
                if name != "load":
                    lines.append(row(kind, "half of the peak, open loop" if name == "half" else name, *figures(found)))
        for kind, found in self.found.get("workers", {}).items():
            if kind != "load":
                lines.append(row(f"{kind}, --workers 2", 16, *figures(found)))
        if "writes" in self.found:
            label = "text, 50 documents/s written"
            lines.append(row(label, "a quarter of the peak, open loop", *figures(self.found["writes"])))
        lines += ["", row("figure", "value", "bar"), row("---", "---", "---")]
        for part, bar in (("text", "≥ 100"), ("vectors", "≥ 400"), ("sums", "≥ 400")):
            per_core = [1000 / found["cpu"] for name, found in self.found.get(part, {}).items() if name != "load"]
            if per_core:
                kind = SUMS if part == "sums" else part
                lines.append(
                    row(f"requests a second per core, {kind}", f"{min(per_core):.0f} to {max(per_core):.0f}", bar)
                )
        for kind in ("text", "vectors"):
            if kind in self.found:
                half = self.found[kind]["half"]
                lines.append(row(f"p99 / p50 at half load, {kind}", f"{half['p99'] / half['p50']:.1f}", "≤ 4"))
            if "http" in self.found:
                over, alone = self.found["http"][kind]["over"], self.found["http"][kind]["alone"]
                said = f"{over:.2f} − {alone:.2f} = {over - alone:.2f} ms"
                lines.append(row(f"CPU that HTTP adds to the Python call, {kind}", said, "≤ 0.5 ms"))
        if "writes" in self.found:
            done = self.found["writes"]
            lines.append(row("documents written beside searches", done["written"], f"{done['wanted']:.0f}"))
        if "page" in self.found:
            done = self.found["page"]
            said = f"{done['p50']:.0f}, {done['p95']:.0f}, {done['max']:.0f}"
            lines.append(
                row("ms from the last key to the first result on the screen: median, p95, most", said, "< 100")
            )
        if "memory" in self.found:
            done = self.found["memory"]
            seen = ", ".join(f"{megabytes:.0f}" for megabytes in done["seen"][:: max(len(done["seen"]) // 6, 1)])
            label = f"MB in {self.soak:.0f} s, {done['requests']:,} requests, {done['errors']} errors"
            lines.append(row(label, seen, "flat"))
        return lines


PARTS = ("text", "vectors", "sums", "workers", "http", "page", "writes", "memory")


def main() -> None:
    """Make the index, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--soak", type=float, default=600)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}, or report")
    parser.add_argument("--data", type=Path, default=Path("build/serving"))
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    folder = options.data / str(options.documents) / f"{NAME}.weft"
    folder.parent.mkdir(parents=True, exist_ok=True)
    build(folder, options.documents)
    bench = Bench(folder, folder.parent / "measured.json", options.seconds, options.soak)
    wanted = [part for part in options.parts.split(",") if part != "report"]
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}, and report")
    for part in wanted:
        if part == "page" and (importlib.util.find_spec("playwright") is None or shutil.which("chromium") is None):
            print("page: left out, as there is no Playwright or no Chromium", file=sys.stderr)
            continue
        bench.run(part)
    if wanted in ([], list(PARTS)):
        lines = bench.lines(options.documents)
        print("\n".join(lines))
        write_section("serving", "Serving", lines, options.output)


if __name__ == "__main__":
    main()
