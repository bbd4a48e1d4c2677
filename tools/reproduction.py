"""Writes what experiments found into the pages docs/notes/reproduction-*.md.

    weft experiment all --data FOLDER … -o RESULTS
    python tools/reproduction.py RESULTS

Between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->`` stands what the run in RESULTS/NAME says: what it was made of,
its findings, and some of its tables, with their intervals. Everything else on the pages is written by hand. Experiments
that are not in RESULTS stay as they are, those without marks are left out; a run of the quick form is refused.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.analysis.experiments import EXPERIMENTS
from weft.evaluation.tables import Table

PAGES = Path(__file__).parent.parent / "docs" / "notes"
TABLES = {
    "alignments": r"ndcg-",
    "training-alignments": r"matrix|default-oracle",
    "pruning": r"pruning",
    "adaptation": r"gains-|adaptation-",
    "imputation": r"imputation",
    "k-prime": r"k-prime",
    "k-train": r"k-train",
    "gold-tokens": r"gold-tokens",
    "lexical-tokens": r"lexical-tokens",
    "score-density": r"density",
    "low-rank": r"(?!)",  # of flan-t5-small 96 rows, a head each
    "flops": r"formula|scoring|engine-all",
}
"""Which tables of an experiment are shown, by the beginning of their names; of others all."""
AVERAGES = {"gold-tokens", "lexical-tokens", "score-density"}
"""Experiments of which only the average over collections is shown."""
FINDINGS = 12
"""How many of an experiment's findings are shown."""


def block(results: Mapping[str, Any]) -> list[str]:
    """Return the lines that stand for an experiment's run."""
    name, config = results["experiment"], results["config"]
    lines = [_made_of(config), ""]
    said = results["findings"]
    lines += [f"- {finding}" for finding in said[:FINDINGS]]
    if len(said) > FINDINGS:
        lines.append(f"- … and {len(said) - FINDINGS} more, in the run's report.")
    for data in results["tables"]:
        if re.match(TABLES.get(name, ""), data["name"]):
            table = Table.read(data)
            if name in AVERAGES and any(row[0] == "average" for row in table.rows):
                table = replace(table, rows=[row for row in table.rows if row[0] == "average"])
            lines += ["", f"**{table.title}**", "", table.markdown()]
            lines += ["", table.note] if table.note else []
    return lines


def _made_of(config: Mapping[str, Any]) -> str:
    models = ", ".join(f"{model['name']} ({model['fingerprint'][:8]})" for model in config["models"])
    models = models or "models trained for it"
    pools = config["collections"]
    documents, queries = (sum(pool[key] for pool in pools) for key in ("documents", "queries"))
    collections = "1 collection" if len(pools) == 1 else f"{len(pools)} collections"
    of = f"{collections}, {documents:,} documents and {queries:,} queries in all"
    return f"*Run:* {of}, seed {config['seed']}; {models}; {config['seconds']:,.0f} seconds."


def fill(page: str, results: Mapping[str, Any]) -> str:
    """Return the page with an experiment's lines put between its marks."""
    name = results["experiment"]
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"the page has no place for {name}: {begin} … {end}")
    return "\n".join([before + begin, "", *block(results), "", end]) + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="where weft experiment -o wrote")
    parser.add_argument("--pages", type=Path, default=PAGES, help="the folder of the pages")
    options = parser.parse_args()
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(options.pages.glob("reproduction-*.md"))}
    written = []
    for name in EXPERIMENTS:
        path = options.results / name / "results.json"
        page = next((page for page, text in pages.items() if f"<!-- {name}:begin -->" in text), None)
        if path.is_file() and page is not None:
            results = json.loads(path.read_text(encoding="utf-8"))
            if results["config"]["quick"]:
                raise SystemExit(f"{path}: the quick form's numbers say little and are not written down")
            pages[page] = fill(pages[page], results)
            written.append(name)
    if not written:
        raise SystemExit(f"{options.results} has no experiments of the pages (NAME/results.json)")
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    print(f"{options.pages}: {', '.join(written)}", file=sys.stderr)


if __name__ == "__main__":
    main()
