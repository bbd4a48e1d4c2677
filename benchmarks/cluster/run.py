"""What a router and shards cost beside one index: CPU, latencies, recall; writes a section of benchmarks/RESULTS.md.

python benchmarks/cluster/run.py [--documents 40000] [--seconds 6] [--output benchmarks/RESULTS.md]

Ray carries no query, so it is not needed here: the servers are those that its actors run. About four minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "serving")]
import numpy as np
from collection import batches, text_queries, vector_queries

import weft
from results_file import RESULTS, write_section
from weft.serving.vectors import to_base64
from weft.sources.beir import DEMO, read_corpus
from weft.storage.segments.writing import Shared

NAME = "bench"
SHARDS = (1, 2, 4)
ALIGNMENTS = ("top-k:1", "xtr")
QUERIES = 200
MEASURED = HERE / "measured.json"


class Process:
    """A server, and what it costs."""

    def __init__(self, *arguments: object, core: int | None = None) -> None:
        pin = [] if core is None else ["taskset", "-c", str(core)]
        command = [*pin, sys.executable, str(HERE / "timed.py"), *map(str, arguments), "--port", "0", "--threads", "1"]
        self._timed = tempfile.NamedTemporaryFile(prefix="weft-timed-")  # noqa: SIM115
        environment = {**os.environ, "WEFT_TIMED": self._timed.name}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            found = re.search(r"serving .* at (http://\S+)", line)
            if found:
                self.url = found.group(1)
                return
        sys.exit("a server did not start")

    @property
    def cpu(self) -> float:
        """CPU seconds so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def searching(self) -> float:
        """Those of its searches."""
        return float(np.fromfile(self._timed.name)[0])

    def stop(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait()
        self._timed.close()


def built(folder: Path, documents: int, shards: int) -> list[Path]:
    """Return indexes that share the documents, made unless they are there."""
    encoder = weft.Encoder.load()
    paths = [folder / f"{documents}-{at}-of-{shards}.weft" for at in range(shards)]
    if all(path.exists() for path in paths):
        return paths
    drafts = [path.with_suffix(".partial") for path in paths]
    options = {"encoder_fingerprint": encoder.fingerprint, "salience_weighs": encoder.salience_weighs, "merge": "off"}
    indexes = [weft.Index.create(path, encoder.dim, **options) for path in drafts]
    for number, (rows, vectors) in enumerate(batches(documents, encoder.dim)):
        if number == 0 and shards > 1:  # as in a build, where shards share what a sample tells
            shared = Shared.of(vectors, documents * vectors.n_tokens // len(vectors) // shards)
            for index in indexes:
                index.merging.shared = shared
        indexes[number % shards].add(rows, vectors)
    for index, draft, path in zip(indexes, drafts, paths, strict=True):
        index.compact()
        index.close()
        draft.rename(path)
    return paths


@contextmanager
def served(
    paths: list[Path], cores: list[int] | None = None, replicas: int = 1
) -> Iterator[tuple[Process, list[Process]]]:
    """Serve shards, and a router in front of them; `cores` has the core of each replica."""
    running: list[Process] = []
    try:
        groups = []
        for at, path in enumerate(paths):
            core = None if cores is None else cores[at % len(cores)]
            members = [Process("serve", path, "--read-only", "--no-page", core=core) for _ in range(replicas)]
            running += members
            groups += ["--shard", ",".join(member.url for member in members)]
        router = Process("cluster", "route", "--name", NAME, *groups)
        running.append(router)
        yield router, running
    finally:
        for one in running:
            one.stop()


def bodies(alignment: str, dim: int) -> list[dict[str, Any]]:
    """Return requests by vectors: encoding costs the same however many shards there are."""
    made = []
    for query in vector_queries(QUERIES, dim):
        one = {"base64": to_base64(query), "dim": dim}
        made.append({"vectors": [one], "k": 10, "alignment": alignment, "fields": []})
    return made


def load(router: Process, asked: list[dict[str, Any]], seconds: float, *, clients: int = 0, rate: float = 0) -> Any:
    """Ask the router from another process."""
    host, port = router.url.removeprefix("http://").split(":")
    order = {"host": host, "port": int(port), "path": f"/v1/indexes/{NAME}/search", "bodies": asked}
    order |= {"seconds": seconds, "clients": clients, "rate": rate}
    loader = [sys.executable, str(HERE.parent / "serving" / "load.py")]
    done = subprocess.run(loader, input=json.dumps(order), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert not found["errors"], found
    return found


def direct(paths: list[Path], alignment: str) -> float:
    """Return CPU milliseconds of a query's searches in all shards, without servers."""
    indexes = [weft.Index.open(path) for path in paths]
    queries = [weft.TokenVectors.from_list([q]) for q in vector_queries(QUERIES, indexes[0].dim)]
    taken = 0.0
    for _ in range(2):  # the first round reads from disk
        before = time.process_time()
        for query in queries:
            for index in indexes:
                index.search(query, 10, alignment=alignment, threads=1)
        taken = time.process_time() - before
    for index in indexes:
        index.close()
    return 1000 * taken / QUERIES


def costs(paths: list[Path], seconds: float) -> list[dict[str, Any]]:
    """Return CPU and latencies of queries through a router."""
    rows = []
    with served(paths) as (router, running):
        for alignment in ALIGNMENTS:
            asked = bodies(alignment, weft.Encoder.load().dim)
            load(router, asked, 2, clients=1)  # warm
            before, router_before = sum(one.cpu for one in running), router.cpu
            searching = sum(one.searching for one in running)
            found = load(router, asked, seconds, clients=1)
            count = found["requests"]
            cpu = 1000 * (sum(one.cpu for one in running) - before) / count
            search = 1000 * (sum(one.searching for one in running) - searching) / count
            calm = load(router, asked, seconds, rate=20)
            rows.append(
                {
                    **{"shards": len(paths), "alignment": alignment, "cpu": cpu, "search": search},
                    "direct": direct(paths, alignment),
                    **{"router": 1000 * (router.cpu - router_before) / (count + calm["requests"])},
                    **{"p50": calm["p50"], "p99": calm["p99"]},
                }
            )
    return rows


def throughput(paths: list[Path], seconds: float) -> list[dict[str, Any]]:
    """Return queries a second of one node, a core with all shards, and of two; the router goes where there is room."""
    rows = []
    for nodes in (1, 2):
        with served(paths, cores=list(range(nodes))) as (router, _):
            asked = bodies("top-k:1", weft.Encoder.load().dim)
            load(router, asked, 2, clients=8)
            found = load(router, asked, seconds, clients=8)
            rows.append({"nodes": nodes, "rate": found["requests"] / found["seconds"], "p99": found["p99"]})
    return rows


def recalls(whole: Path, paths: list[Path]) -> list[dict[str, Any]]:
    """Return recall@10 at the default effort of one index and of the shards together, beside an exhaustive search."""
    indexes = [weft.Index.open(path) for path in [whole, *paths]]
    hits = {"one index": 0, "shards": 0}
    queries = [weft.TokenVectors.from_list([q]) for q in vector_queries(QUERIES, indexes[0].dim)]
    for query in queries:
        truth = set(indexes[0].search(query, 10, alignment="top-k:1", exact=True)[0].ids)
        found = [index.search(query, 10, alignment="top-k:1")[0] for index in indexes]
        hits["one index"] += len(truth & set(found[0].ids))
        rows = sorted((-score, name) for part in found[1:] for name, score in zip(part.ids, part.scores, strict=True))
        hits["shards"] += len(truth & {name for _, name in rows[:10]})
    for index in indexes:
        index.close()
    return [{"what": what, "recall": number / (10 * QUERIES)} for what, number in hits.items()]


def encoding() -> dict[str, float]:
    """Return what encoding and writing real texts costs, and what a query's encoding does."""
    texts = [document.full_text for document in read_corpus(DEMO)][:300]
    encoder = weft.Encoder.load()
    encoder.encode_document(texts[:8], threads=1, progress=False)
    before = time.process_time()
    made = encoder.encode_document(texts, threads=1, progress=False)
    seconds = time.process_time() - before
    queries = text_queries(100)
    encoder.encode_query(queries[:1], threads=1)
    before = time.process_time()
    for query in queries:
        encoder.encode_query([query], threads=1)
    query_ms = 1000 * (time.process_time() - before) / len(queries)
    return {"encode_cpu_s_per_million_tokens": 1e6 * seconds / made.n_tokens, "query_encode_ms": query_ms}


def measure(documents: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Measure all of it."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"documents": documents, "load": os.getloadavg()[0], "nice": os.nice(0), **encoding()}
    shards = {number: built(folder, documents, number) for number in SHARDS}
    with weft.Index.open(shards[1][0]) as index:
        info = index.info()
        found |= {"tokens": info["tokens"], "bytes_per_token": info["bytes"] / info["tokens"]}
    found["costs"] = [row for number in SHARDS for row in costs(shards[number], seconds)]
    found["nodes"] = throughput(shards[4], seconds)
    found["recalls"] = recalls(shards[1][0], shards[4])
    return found


def lines(found: dict[str, Any]) -> list[str]:
    """Return the section."""
    made = [
        f"Command: `python benchmarks/cluster/run.py`. {found['documents']:,} documents, {found['tokens']:,} tokens,",
        f"real texts and synthetic vectors; queries of 16 vectors, k = 10; load average before: {found['load']:.1f}.",
        "CPU is that of all servers for a query. *Search* is the shards' own searches within it; *alone*, the same in",
        "one process without servers, one index after the other. Latencies at 20 queries a second, client and servers",
        "on 2 cores." + (f" Nice value {found['nice']}: others used the machine." if found["nice"] else ""),
        "",
        "| shards | alignment | CPU ms | search ms | beyond it ms | of that, router ms | alone ms | p50 ms | p99 ms |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in found["costs"]:
        numbers = [row["cpu"], row["search"], row["cpu"] - row["search"], row["router"], row["direct"]]
        cells = [*(f"{ms:.2f}" for ms in numbers), *(f"{row[name]:.1f}" for name in ("p50", "p99"))]
        made.append(f"| {row['shards']} | `{row['alignment']}` | {' | '.join(cells)} |")
    one, two = (row["rate"] for row in found["nodes"])
    made += [
        "",
        "| figure | value |",
        "| --- | ---: |",
        f"| queries a second, 4 shards on one core | {one:.0f} |",
        f"| … on two cores, which the router and the client use, too | {two:.0f} ({two / one:.2f}×) |",
        *(f"| recall@10 at the default effort, {row['what']} | {row['recall']:.3f} |" for row in found["recalls"]),
        f"| encoding documents, CPU-s a million tokens | {found['encode_cpu_s_per_million_tokens']:.0f} |",
        f"| encoding a query, CPU-ms | {found['query_encode_ms']:.1f} |",
    ]
    return made


def main() -> None:
    """Measure, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=40_000)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--folder", type=Path, default=Path("build/cluster"))
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args()
    found = measure(given.documents, given.seconds, given.folder)
    if given.output == RESULTS:
        MEASURED.write_text(json.dumps(found, indent=1) + "\n")
    write_section("cluster", "Beyond one machine", lines(found), given.output)


if __name__ == "__main__":
    main()
