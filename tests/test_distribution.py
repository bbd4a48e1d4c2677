"""The distribution is called weft-search: ``weft`` on PyPI is another project's."""

import re
import subprocess
import tomllib
from importlib.metadata import metadata, version
from pathlib import Path

import pytest
import yaml

import weft
from weft.errors import missing_extra

ROOT = Path(__file__).parent.parent
WRONG = re.compile(r"pip install ['\"]?weft(?![-\w])|\bweft\[[a-z]")


def texts():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    names = listed.stdout.split("\0") if listed.returncode == 0 else [p.relative_to(ROOT) for p in ROOT.rglob("*")]
    suffixes = {".py", ".md", ".toml", ".yml", ".yaml", ".cfg", ".txt", ".html", ".js", ".ipynb"}
    for name in names:
        path = ROOT / name
        if path.suffix in suffixes and path.is_file() and path != Path(__file__):
            yield path, path.read_text(encoding="utf-8", errors="replace")


def test_nobody_is_sent_to_the_other_project():
    wrong = [f"{path.relative_to(ROOT)}: {found[0]}" for path, text in texts() for found in WRONG.finditer(text)]
    assert wrong == []


def test_the_installed_distribution():
    assert metadata("weft-search")["Name"] == "weft-search"
    assert weft.__version__ == version("weft-search")
    assert str(missing_extra("torch", "torch", "training")).endswith("pip install 'weft-search[torch]'")


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", changes, re.MULTILINE)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]
    assert {released[0], cited, weft.__version__} == {project["version"]}
    assert changes.index("## [Unreleased]") < changes.index(f"## [{released[0]}]")


def test_workflows_ask_for_what_exists():
    files = sorted((ROOT / ".github").rglob("*.yml"))
    if not files:
        pytest.skip("needs a git checkout: an sdist has no workflows")
    workflows = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in files}
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"tests", "wheels", "docs"} <= set(workflows)
    asked = []
    for workflow in workflows.values():
        for job in (workflow.get("jobs") or {}).values() if isinstance(workflow, dict) else ():
            chosen = job.get("strategy", {}).get("matrix", {}).get("target", [])
            for step in job["steps"]:
                asked += re.findall(r"make ([\w-]+)", step.get("run", ""))
            asked += chosen
    assert {"lint", "test", "docs", "test-wheel"} <= set(asked)
    assert sorted(set(asked) - targets) == []
