"""The examples run and find what they promise; the quick start is the same everywhere it is shown."""

import os
import re
import runpy
import sys
from pathlib import Path

import pytest

from weft.encoders.light import is_light_folder
from weft.encoders.loading import BUNDLED

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
SHOWN = ("README.md", "docs/start/quickstart.md")
QUICKSTART = (EXAMPLES / "quickstart.py").read_text(encoding="utf-8")


@pytest.fixture
def example(tmp_path, monkeypatch, capsys):
    """A function that runs an example in an empty folder, with the bundled model, and returns what it printed."""
    if not is_light_folder(BUNDLED):
        other = os.environ.get("WEFT_TEST_MODEL")  # the folder of a light model to stand in
        if other is None:
            pytest.skip("this checkout has no model in src/weft/models/weft-small")
        monkeypatch.setattr("weft.encoders.loading.BUNDLED", Path(other))
    monkeypatch.chdir(tmp_path)

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_the_quick_start_is_short_and_the_same_everywhere():
    lines = [line for line in QUICKSTART.splitlines() if line.strip()]
    assert len(lines) <= 15
    assert [line for line in lines if "import" in line] == ["import weft"]
    for page in SHOWN:
        assert f"```python\n{QUICKSTART}```" in (ROOT / page).read_text(encoding="utf-8"), page


@pytest.mark.parametrize("page", SHOWN)
def test_the_output_of_the_quick_start_is_real(example, page):
    (shown,) = re.findall(r"^```text\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert same(shown) == same("".join(f"{line.rstrip()}\n" for line in example("quickstart.py").splitlines()))


def same(text):
    """A text without what depends on the processor: the last digits of scores, and the bars."""
    return re.sub(r"[ ━]+", " ", re.sub(r"(\d+\.\d)\d+", r"\1", text))


def test_quickstart(example):
    first, _, *explanation = example("quickstart.py").splitlines()
    assert " mars: Iron oxide" in first
    assert explanation[0].startswith("1. mars  ")
    assert float(first.split()[0]) == pytest.approx(float(explanation[0].split()[2]), abs=0.01)
    assert "the score" in explanation[-1]


def test_folder(example, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "bread.md").write_text("# Bread\n\nLet the dough rise for two hours.")
    (tmp_path / "notes" / "bikes.txt").write_text("Oil the chain once a month.")
    assert "2 added" in example("folder.py", "notes", "baking a loaf")
    (tmp_path / "notes" / "bikes.txt").unlink()
    said = example("folder.py", "notes", "baking a loaf")
    assert "0 added, 0 updated, 1 unchanged, 1 removed" in said
    assert "notes/bread.md" in said


def test_filters_and_updates(example):
    said = example("filters_and_updates.py").splitlines()
    assert said[0].startswith("3 added")
    assert sorted(said[2].partition("meat: ")[2].strip("[]").split(", ")) == ["'dal'", "'salad'"]
    assert said[3] == "... in a hurry: ['salad']"
    assert said[4].startswith("0 added, 1 updated, 2 unchanged")
    assert sorted(said[5].partition("left: ")[2].strip("[]").split(", ")) == ["'dal'", "'salad'"]


def test_hybrid(example):
    vectors, hybrid, meant, _ = example("hybrid.py").splitlines()
    assert vectors.split()[:2] == ["4411", "vectors"]
    assert "['X-4411'" in hybrid
    assert "V-0032" in meant


def test_explanation_page(example, tmp_path):
    said = example("explanation_page.py")
    assert "1. tides" in said
    page = (tmp_path / "why.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "what makes the tide come in" in page


def test_every_example_is_run_here():
    tests = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES.glob("*.py") if f'example("{path.name}"' not in tests] == []
