"""Write the engines' section of benchmarks/RESULTS.md from the lines that `run.py` has appended.

    python benchmarks/engines/report.py [--results build/engines/results.jsonl] [--output benchmarks/RESULTS.md]

Of several sweeps of an engine over a workload the latest counts. Only settings that the tuning queries chose are shown,
measured on other queries. Every bar of the engine gets a line: our figure, the fastest peer chosen for the recall, the
ratio, and whether it is met.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quoted import LINES, WHY

sys.path.append(str(Path(__file__).parents[1]))
from results_file import RESULTS, write_section

OURS = "weft"  # engines whose name begins so are ours
SHORT = 0.005  # by which recall on the reported queries may lie below the bar that a setting of ours was chosen for
CHEAP = ("int8", "fp16", "maxsim_cpu", "lemur_ann")  # nothing to build, or built from another's index
HEAD = (
    "engine",
    "setting",
    "k",
    "chosen for",
    "recall@10",
    "recall@100",
    "CPU ms",
    "× int8",
    "bytes/token",
    "RSS MB",
    "build CPU-s/M tokens",
)
ABOUT = """\
- *CPU ms*: CPU time of the whole process for a query, one thread; the mean over queries of the median of the rounds.
- *k*: 10 documents are asked for where recall@10 is the bar, 100 where recall@100 is.
- *chosen for*: settings are chosen on 100 queries, for each bar the cheapest that reaches it there (–: the most it
  reaches, or exact). They are measured on other queries, so the recall shown may lie below the bar.
- *recall* is against exact MaxSim over the float16 vectors.
- *× int8*: multiples of an int8 full scan timed right before and after each engine; ratios are formed from it.
- *bytes/token*: all that a search needs on disk, float16 vectors included where it re-ranks with them.
- *Quoted*: measured on another machine (`engines/quoted.py`), times the int8 scan here."""
NAMES = {
    "int8": "int8 brute force",
    "fp16": "fp16 brute force (exact)",
    "weft": "weft",
    "weft4": "weft, 4 bits",
    "weft2": "weft, 2 bits",
    "weft_pruned": "weft, half of the tokens",
    "tachiom": "Tachiom",
    "tachiom64": "Tachiom, 64 subspaces",
    "lemur": "LEMUR (from the paper)",
    "lemur_ann": "LEMUR (from the paper) + FAISS IVF-SQ8",
    "lemur_random": "LEMUR, untrained",
    "faiss_tokens": "FAISS IVF-PQ fast-scan + exact re-rank",
    "lancedb": "LanceDB, IVF_PQ",
    "qdrant": "Qdrant Edge, mean vector + MaxSim",
    "qdrant_int8": "Qdrant Edge, mean vector + MaxSim, int8",
    "qdrant_hnsw": "Qdrant Edge, HNSW over MaxSim, int8",
    "plaid": "PLAID (colbert-ai)",
    "maxsim_cpu": "maxsim-cpu (exact)",
}


@dataclass
class Point:
    """One engine at one setting on one workload."""

    engine: str
    title: str
    data: str
    setting: str
    recall10: float
    recall100: float | None
    cpu_ms: float
    x_int8: float
    bytes_per_token: float | None
    quoted: bool = False
    line: dict[str, Any] | None = None
    k: int = 10

    def chosen_for(self, k: int, level: float) -> bool:
        """Whether the tuning queries chose it for a bar; what is quoted was tuned elsewhere."""
        if self.line is None:
            return k == 10 and self.recall10 >= level
        return self.k == k and level in self.line["bars"]

    def reaches(self, k: int) -> float:
        """Recall@k on the reported queries."""
        return self.recall10 if k == 10 else self.recall100 or 0.0

    @property
    def ours(self) -> bool:
        return self.engine.startswith(OURS)

    @property
    def exact(self) -> bool:
        return bool(self.line and self.line["knob"].get("exact"))


class Results:
    """The latest lines, by what they say."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        latest: dict[tuple[Any, ...], dict[str, Any]] = {}
        for line in lines:
            knob = json.dumps(line.get("knob"), sort_keys=True)
            latest[line["what"], line["data"], line["engine"], line.get("k"), knob] = line
        self.searches = [line for line in latest.values() if line["what"] == "search" and "bars" in line]
        self.builds = {(line["data"], line["engine"]): line for line in latest.values() if line["what"] == "build"}
        self.problems = [line for line in latest.values() if line["what"] in ("failed", "skipped")]
        newest = {(line["data"], line["engine"]): line["session"] for line in self.searches}
        self.searches = [line for line in self.searches if line["session"] == newest[line["data"], line["engine"]]]
        self.data = sorted({line["data"] for line in self.searches}, key=lambda name: (name[0] != "s", len(name), name))

    def points(self, data: str) -> list[Point]:
        """All settings measured on a workload, and the quoted ones of engines that were not."""
        measured = [
            Point(
                line["engine"], NAMES.get(line["engine"], line["engine"]), data, setting(line["knob"]),
                line["recall10"], line["recall100"], line["cpu_ms"], line["x_int8"], line["bytes_per_token"], line=line,
                k=line["k"],
            )
            for line in self.searches
            if line["data"] == data
        ]  # fmt: skip
        there = {point.engine for point in measured}
        unit = statistics.median([line["int8_ms"] for line in self.searches if line["data"] == data] or [0.0])
        return measured + [
            Point(
                q.engine, q.title, data, q.setting, q.recall10, q.recall100, q.x_int8 * unit, q.x_int8,
                q.bytes_per_token, quoted=True,
            )
            for q in LINES
            if q.data == data and q.engine not in there
        ]  # fmt: skip


def setting(knob: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in knob.items()) or "–"


def fastest(points: Iterable[Point]) -> Point | None:
    """By the multiple of int8 brute force: that is what carries from one busy minute to another."""
    return min(points, key=lambda point: point.x_int8, default=None)


# -- tables ------------------------------------------------------------------------------------------


def table(results: Results, data: str) -> list[str]:
    points = results.points(data)
    first = next(line for line in results.searches if line["data"] == data)
    lines = [
        f"### {data}: {first['documents']:,} documents, {first['tokens']:,} tokens",
        "",
        f"| {' | '.join(HEAD)} |",
        "| --- | --- |" + " ---: |" * (len(HEAD) - 2),
    ]
    order = list(dict.fromkeys(point.engine for point in sorted(points, key=lambda p: (p.quoted, not p.ours))))
    for point in sorted(points, key=lambda p: (order.index(p.engine), p.k, p.x_int8)):
        built = results.builds.get((data, point.engine))
        cells = [
            f"{point.title}{' (quoted)' if point.quoted else ''}",
            point.setting,
            str(point.k),
            ", ".join(f"≥ {bar}" for bar in point.line["bars"]) if point.line and point.line["bars"] else "–",
            f"{point.recall10:.3f}",
            f"{point.recall100:.3f}" if point.recall100 is not None else "–",
            f"{point.cpu_ms:.2f}",
            f"{point.x_int8:.3f}",
            f"{point.bytes_per_token:.0f}" if point.bytes_per_token else "–",
            f"{point.line['rss_mb']:.0f}" if point.line else "–",
            f"{built['cpu_s_per_m_tokens']:.0f}" if built else "–",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


# -- bars --------------------------------------------------------------------------------------------


def bar(name: str, ours: str, against: str, ratio: float | None, met: bool | None, want: str) -> str:
    verdict = "not measured" if met is None else "met" if met else "**missed**"
    shown = f"{ratio:.2f}" if ratio is not None else "–"
    return f"| {name} | {want} | {ours} | {against} | {shown} | {verdict} |"


def figure(point: Point | None, k: int = 10) -> str:
    if point is None:
        return "–"
    mark = ", quoted" if point.quoted else ""
    return f"{point.title}: {point.cpu_ms:.2f} ms ({point.x_int8:.3f} × int8) at {point.reaches(k):.3f}{mark}"


def speed_bars(results: Results) -> list[str]:
    lines = []
    for data in results.data:
        points = results.points(data)
        ours = [point for point in points if point.ours and not point.exact]
        peers = [point for point in points if not point.ours]
        for k, level in ((10, 0.95), (10, 0.99), (100, 0.95)):
            we = fastest(point for point in ours if point.chosen_for(k, level))
            they = fastest(point for point in peers if point.chosen_for(k, level))
            ratio = they.x_int8 / we.x_int8 if we and they else None
            met = None if not ours else bool(we and ratio and ratio >= 5 and we.reaches(k) >= level - SHORT)
            name = f"{data}, recall@{k} ≥ {level}"
            lines.append(bar(name, figure(we, k), figure(they, k), ratio, met, "≥ 5× the fastest peer"))
        tachiom = [point for point in peers if point.engine == "tachiom" and point.k == 10]
        if tachiom:
            ceiling = max(point.recall10 for point in tachiom)
            they = fastest(point for point in tachiom if point.recall10 >= ceiling - 0.005)
            we = fastest(point for point in ours if they and point.k == 10 and point.recall10 >= they.recall10)
            ratio = they.x_int8 / we.x_int8 if we and they else None
            met = None if not ours else bool(ratio and ratio >= 2)
            lines.append(bar(f"{data}, at Tachiom's recall", figure(we), figure(they), ratio, met, "≥ 2× Tachiom"))
        exact = fastest(point for point in points if point.engine == OURS and point.exact)
        scan = fastest(p for p in points if p.engine == "int8" and p.setting == "rerank 0" and p.k == 10)
        if data.startswith("s") and scan:
            ratio = 1 / exact.x_int8 if exact else None  # the scan timed around it, not in its own sweep
            met = None if exact is None else bool(ratio and ratio >= 3)
            lines.append(bar(f"{data}, exact=True", figure(exact), figure(scan), ratio, met, "≥ 3× int8 brute force"))
    return lines


def other_bars(results: Results) -> list[str]:
    lines = [growth_bar(results, level) for level in (0.95, 0.99)]
    for data in results.data:
        lines += [build_bar(results, data), *size_bars(results, data)]
    opened = [line["open_wall_ms"] for line in results.searches if line["data"] == "s100k" and line["engine"] == OURS]
    shown, met = (f"{min(opened):.1f} ms", min(opened) < 50) if opened else ("–", None)
    return [*lines, bar("s100k, open", shown, "–", None, met, "< 50 ms")]


def growth_bar(results: Results, level: float) -> str:
    """How much slower a query gets from 10k to 100k documents at a recall, ours and the peers'."""
    ratios: dict[str, float] = {}
    small, large = ([p for p in results.points(data) if not p.exact] for data in ("s10k", "s100k"))
    for engine in dict.fromkeys(point.engine for point in large):
        a, b = (
            fastest(p for p in points if p.engine == engine and p.chosen_for(10, level)) for points in (small, large)
        )
        if a and b and not b.quoted:
            ratios[engine] = b.cpu_ms / a.cpu_ms
    we = ratios.get(OURS)
    peers = {engine: ratio for engine, ratio in ratios.items() if not engine.startswith(OURS)}
    against = "; ".join(f"{NAMES.get(engine, engine)} {ratio:.1f}×" for engine, ratio in peers.items()) or "–"
    shown, met = (f"{we:.2f}×", we < 3) if we else ("–", None)
    return bar(f"growth 10k → 100k, recall@10 ≥ {level}", shown, against, None, met, "< 3×")


def build_bar(results: Results, data: str) -> str:
    costs = {engine: line["cpu_s_per_m_tokens"] for (where, engine), line in results.builds.items() if where == data}
    we = costs.get(OURS)
    peers = {engine: cost for engine, cost in costs.items() if engine not in CHEAP and not engine.startswith(OURS)}
    least = min(peers, key=lambda engine: peers[engine], default=None)
    against = f"{NAMES.get(least, least)}: {peers[least]:.0f}" if least else "–"
    ratio = peers[least] / we if least and we else None
    shown, met = (f"{we:.0f}", we <= 65) if we is not None else ("–", None)
    return bar(f"{data}, build CPU-s per M tokens", shown, against, ratio, met, "≤ 65")


def size_bars(results: Results, data: str) -> list[str]:
    lines = []
    sized = [point for point in results.points(data) if point.bytes_per_token and not point.exact]
    run = {point.engine for point in sized}
    for level, most, engine in ((0.95, 80, "weft4"), (0.99, 160, OURS), (0.0, 40, "weft2")):
        reached = sorted((p for p in sized if p.recall10 >= level), key=lambda p: (p.bytes_per_token or 0, -p.recall10))
        we = next((point for point in reached if point.ours), None)
        they = next((point for point in reached if not point.ours), None)
        met = bool(we and (we.bytes_per_token or 0) <= most) if engine in run else None  # not run on this set
        name = f"at recall@10 ≥ {level}" if level else "compact"
        lines.append(bar(f"{data}, bytes per token, {name}", size(we), size(they), None, met, f"≤ {most}"))
    return lines


def size(point: Point | None) -> str:
    if point is None:
        return "–"
    return f"{point.title}: {point.bytes_per_token:.0f} at {point.recall10:.3f}{', quoted' if point.quoted else ''}"


# -- the section -------------------------------------------------------------------------------------


def section(results: Results) -> list[str]:
    last = max(results.searches, key=lambda line: line["time"])
    machine = last["machine"]
    packages = {
        name: value for line in results.searches for name, value in line["versions"].items() if name != "python"
    }
    sessions = sorted({line["session"] for line in results.searches})
    loads = [line["load"] for line in results.searches]
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, {', '.join(machine['simd'])}; kernels compiled by "
        f"{machine['compiler']}; {', '.join(f'{name} {value}' for name, value in sorted(packages.items()))}.",
        "Command: `make bench-engines` (`benchmarks/engines/run.py`, then `report.py`).",
        f"Sessions: {', '.join(sessions)}; load average during the searches {min(loads):.1f} to {max(loads):.1f}.",
        "",
        ABOUT,
        "",
    ]
    for data in results.data:
        lines += table(results, data)
    lines += [
        "### Bars",
        "",
        "| bar | wanted | ours | the fastest peer | ratio to the fastest peer | |",
        "| --- | --- | --- | --- | ---: | --- |",
        *speed_bars(results),
        *other_bars(results),
        "",
    ]
    measured = {(line["data"], line["engine"]) for line in results.searches}
    notes = [
        f"- {NAMES.get(line['engine'], line['engine'])} on {line['data']}: {line['what']}, {line['reason']}"
        for line in results.problems
        if (line["data"], line["engine"]) not in measured
    ]
    titles = {q.engine: q.title.split(",")[0] for q in LINES}
    notes += [f"- {titles[engine]}: {why}" for engine, why in WHY.items()]
    return [*lines, "Not measured here:", "", *notes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("build/engines/results.jsonl"))
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.results.read_text(encoding="utf-8").splitlines() if line]
    write_section("engines", "Engines", section(Results(lines)), options.output)


if __name__ == "__main__":
    main()
