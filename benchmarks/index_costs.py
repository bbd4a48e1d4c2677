"""What an index costs beside searching: opening, one upsert, one delete, and the memory of a searching process.

    python benchmarks/index_costs.py DATA [--write]

DATA is a workload folder in the layout of the engine benchmark (tokens.npy, doclens.npy, queries.npy). The index
is built beside it on the first run. CPU time of one process with one thread; resident memory from /proc.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np

import weft
from results_file import write_section


def resident() -> tuple[int, int]:
    """Return resident bytes of this process, and of the segment files mapped into it."""
    total = mapped = 0
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"^[0-9a-f]+-[0-9a-f]+ ", line):
            inside = line.endswith(".seg")
        elif line.startswith("Rss:"):
            size = int(line.split()[1]) * 1024
            total += size
            mapped += size if inside else 0
    return total, mapped


def cpu_ms(act, repeats: int = 1) -> float:
    """Median CPU milliseconds of a call."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        act()
        times.append(time.process_time() - start)
    return 1e3 * float(np.median(times))


def ensure_index(data: Path) -> tuple[Path, str]:
    path = data.with_suffix(".weft")
    if path.exists():
        return path, "built earlier"
    lengths = np.load(data / "doclens.npy")
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    tokens = np.load(data / "tokens.npy", mmap_mode="r")
    start = time.process_time()
    with weft.Index.create(path, int(tokens.shape[1])) as index:
        index.add([str(i) for i in range(len(lengths))], weft.TokenVectors.trusted(tokens, offsets))
    seconds = time.process_time() - start
    return path, f"{seconds:.1f} CPU-s, {seconds / len(tokens) * 1e6:.1f} per million tokens"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    arguments = parser.parse_args()
    path, built = ensure_index(arguments.data)
    queries = np.load(arguments.data / "queries.npy").astype(np.float32)

    before, _ = resident()
    opened: list[weft.Index] = []
    open_ms = cpu_ms(lambda: opened.append(weft.Index.open(path)))
    index = opened[0]
    documents = len(index)
    first_ms = cpu_ms(lambda: index.search(queries[0]))
    for query in queries:
        index.search(query)
    total, mapped = resident()

    text = weft.TokenVectors.from_list([queries[0]])
    numbers = iter(range(10**6))
    upsert_ms = cpu_ms(lambda: index.add([f"probe{next(numbers) % 3}"], text), 15)
    assert index.search(queries[0], k=1)[0].ids[0].startswith("probe")
    delete_ms = cpu_ms(lambda: index.delete("probe0"), 5)
    index.delete(["probe1", "probe2"])
    assert not index.search(queries[0], k=1)[0].ids[0].startswith("probe")
    info = index.info()
    index.compact()
    index.close()

    grown = total - before
    lines = [
        f"`python benchmarks/index_costs.py {arguments.data.name}`: {documents:,} documents, "
        f"{info['tokens']:,} tokens, {info['bytes'] / info['tokens']:.0f} bytes a token; built: {built}.",
        "",
        "| what | cost | bar |",
        "| --- | ---: | ---: |",
        f"| open | {open_ms:.1f} ms CPU | 50 |",
        f"| first search (verifies what it reads) | {first_ms:.1f} ms CPU | |",
        f"| upsert and commit of one document | {upsert_ms:.1f} ms CPU | 50 |",
        f"| delete and commit | {delete_ms:.1f} ms CPU | |",
        f"| memory after {len(queries)} searches: grown by / mapped bytes touched | "
        f"{grown / 2**20:.0f} / {mapped / 2**20:.0f} MiB = {grown / mapped:.2f} | 1.5 |",
    ]
    print("\n".join(lines))
    if arguments.write:
        write_section("index-costs", "Index", lines)


if __name__ == "__main__":
    main()
