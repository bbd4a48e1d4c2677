"""What the guides print is what the commands print.

Each ``console`` block of a page runs, in order, in one folder, and so does a ``python`` block that has a ``text`` block
with its output behind it.

``WEFT_PASTE=1 pytest tests/cli/test_guides.py`` pastes what was printed into the pages.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(
    r"^```console\n(?P<console>.*?)^```$|^```python\n(?P<code>(?:(?!```)[^\n]*\n)*)```\n\n```text\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PAGES = (
    *("guides/explanations.md", "guides/filters.md", "guides/grep.md", "guides/indexing.md", "guides/languages.md"),
    *("guides/searching.md", "guides/adaptation.md", "guides/evaluation.md", "reference/durability.md"),
)
DEMO = Path(__file__).parents[2] / "src" / "weft" / "sources" / "demo"
NEEDS = {"guides/adaptation.md": ["ir_measures"], "guides/evaluation.md": ["ir_measures", "bm25s"]}
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
    if "PYTHONPATH" in environment:  # which may be seen from the folder that the tests were started in
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, environment["PYTHONPATH"].split(os.pathsep)))
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
    """A text without random names, and without what depends on the processor or on how far merges have come: digits of
    scores and sizes, bars, segments before a `weft compact`."""
    text = re.sub(r"[0-9a-f]{16}\.seg|bytes \d+ to \d+|\d+ (?=→)", "#", text)
    return re.sub(r"[ ━]+", " ", re.sub(r"\d+\.\d+", "#.#", text))


def run(block, folder):
    """The block as it stands in the page, with what it prints now."""
    if block["console"] is not None:
        commands = [line for line in block["console"].splitlines() if line.startswith("$ ")]
        lines = "".join(f"{command}\n{printed(command[2:], folder)}" for command in commands)
        return f"```console\n{lines}```"
    (folder / "block.py").write_text(block["code"], encoding="utf-8")
    return f"```python\n{block['code']}```\n\n```text\n{printed('python block.py', folder)}```"


def examples(folder):
    """The demo's first eight queries with their judgements, as `weft adapt` takes them, and its index."""
    texts = {row["_id"]: row["text"] for row in map(json.loads, (DEMO / "queries.jsonl").read_text().splitlines())}
    rows = [line.split("\t") for line in (DEMO / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    first = list(dict.fromkeys(row[0] for row in rows))[:8]
    lines = ["\t".join([texts[query], *judged]) + "\n" for query, *judged in rows if query in first]
    (folder / "examples.tsv").write_text("".join(lines), encoding="utf-8")
    printed(f"weft index '{DEMO}' -o demo.weft", folder)


def compare(page, folder):
    """Run the blocks of a page; they must print what stands there, or it is pasted."""
    for module in NEEDS.get(page, []):
        pytest.importorskip(module, reason=f"needs {module}: pip install 'weft-search[eval]'")
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (folder / "home").mkdir()
    if page == "guides/adaptation.md":
        examples(folder)
    if page == "guides/evaluation.md":
        (folder / "src" / "weft" / "sources").mkdir(parents=True)
        (folder / "src" / "weft" / "sources" / "demo").symlink_to(DEMO)
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert blocks
    found = [run(block, folder) for block in blocks]
    if os.environ.get("WEFT_PASTE"):
        made = iter(found)
        (DOCS / page).write_text(BLOCK.sub(lambda _: next(made), text), encoding="utf-8")
        return
    for block, real in zip(blocks, found, strict=True):
        assert same(real) == same(block[0])


@pytest.mark.parametrize("page", PAGES)
def test_the_output_in_a_guide_is_real(page, tmp_path):
    compare(page, tmp_path)
