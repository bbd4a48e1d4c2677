"""What the guides print is what the commands print: each ``console`` block of a page runs, in order, in one folder.

``WEFT_PASTE=1 pytest tests/cli/test_guides.py`` pastes what was printed into the pages.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "guides"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = ("grep.md", "indexing.md", "languages.md", "searching.md")
FILES = {
    "notes/mars.md": "# Mars\n\nMars looks red because of the rust in its dust.\n\n## Moons\n\nIts moons are small.\n",
    "notes/pump.txt": "The pump BX-4410 needs oil every month. Check the seal as well.\n",
    "notes/pump-2.txt": "The pump BX-4411 needs oil once a year. Check the seal as well.\n",
    "notes/brief.txt": "Die Pumpe braucht jeden Monat Öl, und die Dichtung ist nach einem Jahr zu wechseln.\n",
    "notes/scan.raw": "\0\1\2",
    "tables/faq.csv": "id,text\n1,How do I change my password?\n2,Where is my invoice?\n",
    "tables/staff.csv": "id,text\n1,Ada runs the workshop.\n2,Grace keeps the books.\n",
    "src/terminal.py": '"""Output for terminals."""\n\nimport re\n\n\ndef plain(text):\n'
    '    """Remove ANSI colours from a text."""\n    return re.sub(r"\\x1b\\[[0-9;]*m", "", text)\n\n\n'
    'def width(text):\n    """Count the columns that a text takes."""\n    return len(plain(text))\n',
}


def printed(command, folder):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(folder / "home"), "COLUMNS": "100"}
    environment.pop("XDG_CACHE_HOME", None)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def same(text):
    """A text with what depends on the processor, the digits of scores and sizes and the bars of both, left out."""
    return re.sub(r"[ ━]+", " ", re.sub(r"\d+\.\d+", "#.#", text))


def run(block, folder):
    """The block with what its commands print now."""
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"{command}\n{printed(command[2:], folder)}" for command in commands)


@pytest.mark.parametrize("page", PAGES)
def test_the_output_in_a_guide_is_real(page, tmp_path):
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (tmp_path / "home").mkdir()
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert blocks
    found = [run(block, tmp_path) for block in blocks]
    if os.environ.get("WEFT_PASTE"):
        made = iter(found)
        (DOCS / page).write_text(BLOCK.sub(lambda _: f"```console\n{next(made)}```", text), encoding="utf-8")
        return
    for block, real in zip(blocks, found, strict=True):
        assert same(real) == same(block)
