"""Write the section "Streams" of benchmarks/RESULTS.md from the lines that `run.py` has appended.

    python benchmarks/stream/report.py [--results build/stream/results.jsonl] [--output benchmarks/RESULTS.md]

Of several runs of an engine at a size the latest counts.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from results_file import RESULTS, write_section

OURS = "weft"
NAMES = {
    "weft": "weft",
    "lancedb": "LanceDB, `optimize` every 20 calls",
    "lancedb_seldom": "LanceDB, `optimize` every 500 records",
    "lancedb_flat": "LanceDB, no vector index",
    "qdrant": "Qdrant Edge, mean vector + MaxSim",
    "qdrant_hnsw": "Qdrant Edge, HNSW over MaxSim",
}
MODES = {"one": "one by one", "groups": "in groups of 100"}
ABOUT = """\
Synthetic documents of 60 to 120 token vectors (dim 128, float16) are added, one by one or in groups of 100 operations;
a tenth as many upserts and a twentieth as many deletes are mixed in. A search (32 tokens, k = 10) follows every 50
operations, or every group. Recall is against exact MaxSim in NumPy over the documents live at that moment, on up to
200 searches spread over the stream. CPU per write is everything an operation costs: the call, merges in the background,
maintenance. Stall: the longest time a write, or maintenance that the writer has to wait for, took on the clock."""
NOTES = """\
- A write of ours is on disk when the call returns, in a group when the group is done (fsync). LanceDB 0.40 calls fsync
  nowhere (strace); an update of Qdrant Edge stands in its write-ahead log, which is synced now and then.
- CPU time is that of the whole process. One thread for each engine's arithmetic; LanceDB's I/O threads stay, since it
  hangs with one. Our searches are timed in their own thread, so that merges beside them do not count as search.
- LanceDB stores float32: float16 about doubles the cost of its searches. Its documentation advises the IVF_PQ
  index (dimension / 8 sub-vectors) and `optimize` after 20 modifying calls. Each of those calls adds a part to the
  index, and a search asks every part; the two other rows avoid that, by optimizing seldom and training anew, and by
  doing without an index, as its documentation advises up to 100,000 rows.
- Qdrant's documentation advises against a graph over multivectors and for a dense vector before them; the mean of the
  tokens is that vector. `optimize` is called after every 100 operations and does nothing when nothing is due.
- Settings of a search are chosen on 50 queries that are not reported: the cheapest with recall@10 ≥ 0.98, or else the
  best."""


class Results:
    """The latest lines, by what they say, size, engine and mode."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self.latest = {(line["what"], line["size"], line["engine"], line["mode"]): line for line in lines}

    def of(self, what: str, size: int | None = None) -> list[dict[str, Any]]:
        """Lines of a kind, ours first."""
        chosen = [line for line in self.latest.values() if line["what"] == what and size in (None, line["size"])]
        place = {name: i for i, name in enumerate((*NAMES, *MODES))}
        return sorted(chosen, key=lambda line: (line["size"], place.get(line["mode"], 0), place[line["engine"]]))

    @property
    def sizes(self) -> list[int]:
        return sorted({line["size"] for line in self.of("stream")})


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def setting(knob: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in knob.items()) or "defaults"


# -- side by side --------------------------------------------------------------------------------------


def side_by_side(results: Results, size: int, mode: str) -> list[str]:
    lines = [line for line in results.of("stream", size) if line["mode"] == mode]
    if not lines:
        return []
    head = (
        "engine", "setting", "recall@10", "CPU ms a write", "ms a write, median / p99", "longest stall, ms",
        "search CPU ms, median / p99", "in the last quarter", "segments",
    )  # fmt: skip
    table = [f"#### {MODES[mode].capitalize()}", "", row(*head), "| --- | --- |" + " ---: |" * (len(head) - 2)]
    for line in lines:
        write, search, last = line["write"], line["search_cpu"], line["search_cpu_last_quarter"]
        stopped = "" if line["finished"] else f" (stopped after {line['documents']:,} documents, {cpu(line)})"
        table.append(
            row(
                NAMES[line["engine"]] + stopped,
                setting(line["knob"]),
                f"{line['recall10']:.3f}",
                ms(line["write_cpu_ms"]),
                f"{ms(write['median'])} / {ms(write['p99'])}",
                f"{line['stall_ms']:,.0f}",
                f"{ms(search['median'])} / {ms(search['p99'])}",
                f"{ms(last['median'])} / {ms(last['p99'])}",
                f"{line.get('segments_max', '–')}",
            )
        )
    return [*table, ""]


def cpu(line: dict[str, Any]) -> str:
    return f"{line['cpu_s'] / 60:.0f} CPU minutes"


# -- bars ----------------------------------------------------------------------------------------------


def bar(name: str, value: float | None, most: float | None, shown: str, *, least: bool = False) -> str:
    if value is None:
        return row(name, "–", "–", "not measured")
    if most is None:
        return row(name, shown, "–", "")
    met = value >= most if least else value <= most
    return row(name, shown, f"{'≥' if least else '≤'} {most:g}", "met" if met else "**missed**")


def bars(results: Results, size: int) -> list[str]:
    """Our index at one size: both ways of writing, what was asked for and what came."""
    lines = []
    for stream in results.of("stream", size):
        if stream["engine"] != OURS:
            continue
        compacted = results.latest.get(("compacted", size, OURS, stream["mode"]))
        lines += ["", f"#### {MODES[stream['mode']].capitalize()}", ""]
        lines += [row("what", "ours", "bar", ""), "| --- | ---: | ---: | --- |"]
        lines += search_bars(stream, compacted) + writer_bars(stream)
    return lines


def search_bars(stream: dict[str, Any], compacted: dict[str, Any] | None) -> list[str]:
    last = stream["search_cpu_last_quarter"]
    lines = []
    if compacted:
        again, once = compacted["compacted_cpu"]["median"], compacted.get("compacted_once_cpu", {}).get("median")
        left = compacted["stream_cpu"]
        for name, found, unit in (
            ("compacted, the same queries asked once each; in the last quarter of the stream", last, once),
            ("compacted, queries asked again and again; in the last quarter of the stream", last, again),
            ("compacted, queries asked again and again; as the stream left it, in turn", left, again),
        ):
            for figure, most in (("median", 2), ("p99", 4)):
                ratio = found[figure] / unit if unit else None
                shown = f"{ratio:.2f} ({ms(found[figure])} / {ms(unit)} CPU ms)" if unit else "–"
                lines.append(bar(f"search, {figure} / median {name}", ratio, most, shown))
        recall, exact = compacted["recall10"], compacted["exact_recall10"]
        shown = f"{recall['stream']:.3f}; {recall['compacted']:.3f}; {exact:.3f}"
        name = "recall@10 as the stream left it; compacted; `exact=True` over the codes"
        lines.append(bar(name, recall["stream"], 0.98, shown, least=True))
        cost, counts = compacted["compaction"], (compacted["segments"], compacted["compacted_segments"])
        shown = f"{cost['cpu_s']} CPU-s, {cost['wall_s']} s"
        lines.append(bar(f"`compact()` of {counts[0]} segments into {counts[1]}", 0, None, shown))
    fifths = ", ".join(f"{value:.3f}" for value in stream["recall10_fifths"])
    shown = f"{stream['recall10']:.3f} (fifths of the stream: {fifths})"
    return [*lines, bar("recall@10 during the stream", stream["recall10"], 0.98, shown, least=True)]


def along(stream: dict[str, Any]) -> str:
    """Segments at ten moments."""
    counts = [moment["segments"] for moment in stream["over_time"]]
    places = sorted({round(i * (len(counts) - 1) / 9) for i in range(10)})
    return " ".join(str(counts[place]) for place in places)


def writer_bars(stream: dict[str, Any]) -> list[str]:
    merging, amplification = stream["write_during_merge"], stream.get("write_amplification")
    operation = "write" if stream["mode"] == "one" else "group"
    most_ms = 100 if stream["mode"] == "one" else None
    most = round(12 + math.log2(stream["documents"]), 1)
    during = f"{ms(merging.get('p99'))} of {merging.get('n', 0):,} (median {ms(merging.get('median'))})"
    return [
        bar("segments, most at a search", stream["segments_max"], most, str(stream["segments_max"])),
        bar("segments along the stream", 0, None, along(stream)),
        bar("segment files, most at any time", stream["files"], None, str(stream["files"])),
        bar("open descriptors, most", stream["descriptors"], None, str(stream["descriptors"])),
        bar("write amplification", amplification, 8, f"{amplification} in {stream['merges']} merges"),
        bar(f"p99 of a {operation} while a merge runs, ms", merging.get("p99"), most_ms, during),
        bar("longest stall of the writer, ms", stream["stall_ms"], None, ms(stream["stall_ms"])),
        bar(f"CPU of a {operation} in the writer's thread, ms", 0, None, ms(stream["write_call_cpu"]["mean"])),
        bar("CPU in the background, s", 0, None, f"{stream['background_cpu_s']} of {stream['cpu_s']}"),
    ]


# -- the section ---------------------------------------------------------------------------------------


def tuning(results: Results) -> list[str]:
    lines = [row("documents", "engine", "setting: recall@10, CPU ms"), "| ---: | --- | --- |"]
    for line in results.of("tuned"):
        tried = [
            f"{'**' if one['knob'] == line['chosen'] else ''}{setting(one['knob'])}: {one['recall10']:.3f}, "
            f"{ms(one['search_cpu']['median'])}{'**' if one['knob'] == line['chosen'] else ''}"
            for one in line["tried"]
        ]
        lines.append(row(f"{line['size']:,}", NAMES[line["engine"]], "; ".join(tried)))
    return lines


def section(results: Results) -> list[str]:
    streams = results.of("stream")
    machine = max(streams, key=lambda line: line["time"])["machine"]
    versions = {name: value for line in streams for name, value in line["versions"].items()}
    sessions, loads = sorted({line["session"] for line in streams}), [line["load"] for line in streams]
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {', '.join(machine['simd'])}; "
        f"{', '.join(f'{name} {value}' for name, value in sorted(versions.items()))}.",
        "Command: `make bench-stream` (`benchmarks/stream/run.py`, then `report.py`).",
        f"Sessions: {', '.join(sessions)}; load average at the end of a stream {min(loads):.1f} to {max(loads):.1f}.",
        "",
        *ABOUT.splitlines(),
        "",
    ]
    for size in reversed(results.sizes):
        tokens = next(line["tokens"] for line in streams if line["size"] == size)
        beside = any(line["engine"] != OURS for line in results.of("stream", size))
        lines += [f"### {size:,} documents, {tokens:,} tokens written", ""]
        if beside:
            for mode in MODES:
                lines += side_by_side(results, size, mode)
        if size == results.sizes[-1]:
            lines += [*bars(results, size)[1:], ""]
    failed = [
        f"- {NAMES[line['engine']]}, {line['size']:,} documents, {line['mode']}: {line['reason']}"
        for line in results.of("failed")
        if ("stream", line["size"], line["engine"], line["mode"]) not in results.latest
    ]
    lines += ["### How it was measured", "", *NOTES.splitlines(), *failed, ""]
    return [*lines, *tuning(results)] if results.of("tuned") else lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("build/stream/results.jsonl"))
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.results.read_text(encoding="utf-8").splitlines() if line]
    write_section("streams", "Streams", section(Results(lines)), options.output)


if __name__ == "__main__":
    main()
