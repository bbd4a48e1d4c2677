"""The page of results: what stands between its marks is what a run says."""

import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest

from weft.analysis.experiments import EXPERIMENTS
from weft.analysis.run import find, run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    path = ROOT / "tools" / "reproduction.py"
    if not path.exists():
        pytest.skip("the tool is not part of an installed package")
    spec = importlib.util.spec_from_file_location("reproduction", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_run_is_written_between_its_marks(lab, tmp_path, tool):
    report = run(find("imputation").make(["k_prime=3"]), lab, tmp_path)
    results = json.loads((report.parent / "results.json").read_text(encoding="utf-8"))
    page = "Before.\n<!-- imputation:begin -->\nold\n<!-- imputation:end -->\nAfter.\n"
    filled = tool.fill(page, results)
    assert "old" not in filled
    assert filled.startswith("Before.\n<!-- imputation:begin -->\n")
    assert filled.endswith("<!-- imputation:end -->\nAfter.\n")
    assert "*Run:* 1 collection, 40 documents and 20 queries" in filled
    # The table as the run itself wrote it.
    table = (report.parent / "imputation.md").read_text(encoding="utf-8").split("\n\n")[1]
    assert table in filled
    assert all(finding in filled for finding in results["findings"])
    assert tool.fill(filled, results) == filled
    with pytest.raises(SystemExit, match="no place for imputation"):
        tool.fill("Nothing.", results)


def test_the_pages_have_a_place_for_each_of_aligners_and_xtrs_experiments(tool):
    page = "".join(path.read_text(encoding="utf-8") for path in tool.PAGES.glob("reproduction-*.md"))
    assert set(tool.TABLES) <= set(EXPERIMENTS)
    for name in tool.TABLES:
        assert page.count(f"<!-- {name}:begin -->") == page.count(f"<!-- {name}:end -->") == 1


EVERY = {
    *(f"ALIGNER table {n}" for n in range(3, 14)),
    *("ALIGNER table 2, left", "ALIGNER table 2, right"),
    *(f"ALIGNER figure {n}" for n in range(3, 8)),
    *(f"XTR table {n}" for n in (*range(1, 7), "D.1", "D.2")),
    "XTR tables E.1 to E.5",
    *(f"XTR figure {n}" for n in (2, 4, 5, 6, 7)),
    *(f"GR table {n}" for n in (5, 6)),
    *(f"GR figure {n}" for n in (2, 3, 4, 5)),
    *("GR lemma 5.1", "GR lemma 5.2"),
}


def test_every_table_and_figure_has_a_command_and_a_verdict(tool):
    page = (tool.PAGES / "reproduction.md").read_text(encoding="utf-8")
    section = page.partition("## Every table and figure")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if "|" in line][2:]
    named = [row[0] for row in rows]
    assert len(set(named)) == len(named)
    assert set(named) >= EVERY
    for name, commands, verdict, here, size in rows:
        assert verdict in ("agrees", "does not agree", "not testable here"), name
        assert here == "–" or re.search(r"\d", here), name
        assert (here != "–") or verdict == "not testable here", name
        assert size, name
        for command in re.findall(r"`([^`]+)`", commands):
            first, *rest = shlex.split(command)
            if first in ("weft", "python"):  # those of other verbs have tests of their own
                continue
            settings = [word for i, word in enumerate(rest) if word[0] != "-" and rest[i - 1 : i] != ["-m"]]
            assert find(first).make(settings).name == first, name
