"""``weft index`` as a person runs it: passages a second and peak memory, then again with nothing and one file changed.

    python benchmarks/indexing.py [--model FOLDER] [--passages 10000] [--threads N] [--write]

The passages are those of the demo collection in turns, each with a number of its own, so that none is like another to
the index; they lie in files of 100 rows. Every run is a process of its own, start-up and loading of the model included.

    python benchmarks/indexing.py --files FOLDER --version before=PYTHON --version now=PYTHON [--write]

measures a folder of your own files instead, with the version of weft that each interpreter has, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import weft
from results_file import write_section
from weft.sources.beir import DEMO, read_corpus

ROWS = 100


def write_passages(folder: Path, count: int) -> int:
    """Write the files; return the number of words."""
    texts = [document.full_text for document in read_corpus(DEMO)]
    words = 0
    for start in range(0, count, ROWS):
        numbers = range(start, min(start + ROWS, count))
        rows = [{"id": f"p{n}", "text": f"{n}. {texts[n % len(texts)]}"} for n in numbers]
        words += sum(len(row["text"].split()) for row in rows)
        (folder / f"{start:08}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return words


def run(*arguments: str, python: str = sys.executable) -> tuple[float, float, dict[str, int]]:
    """Run ``weft index``; return wall seconds, peak memory in MB and its summary."""
    start = time.perf_counter()
    # Children report their largest, so each run has a parent of its own.
    code = (
        "import resource, subprocess, sys; r = subprocess.run([sys.executable, '-m', 'weft', *sys.argv[1:]]);"
        " print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(r.returncode)"
    )
    done = subprocess.run([python, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    seconds = time.perf_counter() - start
    summary, peak = done.stdout.strip().splitlines()
    return seconds, int(peak) / 1000, json.loads(summary)


def compare(files: Path, versions: list[str], threads: int, rounds: int = 2) -> list[str]:
    """Index a folder of files with several versions of weft, in turns, and again with nothing changed."""
    found: dict[tuple[str, str], list[tuple[float, float, int]]] = {}
    for _ in range(rounds):
        for name, python in (version.split("=", 1) for version in versions):
            with TemporaryDirectory() as made:
                command = ["index", str(files), "-o", f"{made}/n.weft", "--threads", str(threads), "--json"]
                for what in ("all", "nothing changed"):
                    seconds, peak, summary = run(*command, python=python)
                    found.setdefault((what, name), []).append((seconds, peak, summary["passages"]))
    size = sum(path.stat().st_size for path in files.rglob("*") if path.is_file())
    number = sum(path.is_file() for path in files.rglob("*"))
    lines = [
        f"`python benchmarks/indexing.py --files FOLDER`, {threads} threads: {number:,} text files of "
        f"{size / 1e6:.2f} MB, weft-small; the best of {rounds} runs of each version, in turns.",
        "",
        "| run | version | passages written | seconds | passages a second | peak memory, MB |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for (what, name), runs in sorted(found.items(), key=lambda entry: entry[0][0]):
        seconds, peak, written = min(runs)
        speed = f"{written / seconds:,.0f}" if written else "–"
        lines.append(f"| {what} | {name} | {written:,} | {seconds:.2f} | {speed} | {peak:,.0f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a light folder; by default the bundled model")
    parser.add_argument("--passages", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--write", action="store_true", help="write the section of RESULTS.md")
    parser.add_argument("--files", type=Path, help="a folder of text files to index instead")
    parser.add_argument(
        "--version", action="append", default=[], metavar="NAME=PYTHON", help="an interpreter with weft"
    )
    options = parser.parse_args()
    if options.files:
        lines = compare(options.files, options.version or [f"now={sys.executable}"], options.threads)
        print("\n".join(lines))
        if options.write:
            write_section("files", "Indexing text files", lines)
        return
    with TemporaryDirectory() as made:
        texts, index = Path(made) / "texts", Path(made) / "n.weft"
        texts.mkdir()
        words = write_passages(texts, options.passages)
        command = ["index", str(texts), "-o", str(index), "--threads", str(options.threads), "--json", "--sync"]
        command += ["--model", options.model] if options.model else []
        rows = [("all", *run(*command)), ("nothing changed", *run(*command))]
        changed = sorted(texts.iterdir())[0]
        changed.write_text(changed.read_text().replace('"text": "0. ', '"text": "New. ', 1))
        rows.append(("one passage changed", *run(*command)))
        name = weft.Encoder.load(options.model).name
        with weft.Index.open(index) as opened:
            info = opened.info()
    lines = [
        f"`python benchmarks/indexing.py`, {options.threads} threads: {options.passages:,} passages of "
        f"{words / options.passages:.0f} words ({info['tokens']:,} tokens) with {name} of {info['dim']} dimensions; "
        f"the index has {info['bytes'] / 1e6:.1f} MB.",
        "",
        "| run | passages written | seconds | passages a second | peak memory, MB |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for run_name, seconds, peak, summary in rows:
        written = summary["passages"]
        speed = f"{written / seconds:,.0f}" if written > 1 else "–"
        lines.append(f"| {run_name} | {written:,} | {seconds:.1f} | {speed} | {peak:,.0f} |")
    print("\n".join(lines))
    if options.write:
        write_section("indexing", "Indexing passages", lines)


if __name__ == "__main__":
    main()
