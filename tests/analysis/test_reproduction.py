"""The page of results: what stands between its marks is what a run says."""

import importlib.util
import json
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
