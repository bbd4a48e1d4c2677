"""The distribution is called weft-search: ``weft`` on PyPI is another project's."""

import re
import subprocess
from importlib.metadata import metadata, version
from pathlib import Path

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
