"""Rooms import only from rooms above them: at the top of a file, inside functions, and for types alike."""

import ast
import re
from pathlib import Path

import weft

ROOMS = (
    *("_telemetry", "errors", "stopping", "_renamed", "checks", "types", "_native", "alignment", "kernels"),
    *("encoders", "storage", "search"),
    *("sources", "ingest", "explain", "text_index", "evaluation", "training", "generative", "analysis"),
    *("serving", "cluster", "integrations", "cli"),
)
"""From the top; CONTRIBUTING.md says what each one holds."""
SOURCES = Path(weft.__file__).parent


def imported(file):
    """Every name of weft that a file imports, in full, with the line."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((name, node.lineno) for name in found if name.split(".")[0] in ("weft", ""))


def test_rooms_import_only_what_is_above_them():
    wrong = []
    for file in SOURCES.rglob("*.py"):
        path = file.relative_to(SOURCES)
        if path.name in ("__init__.py", "__main__.py") and len(path.parts) == 1:
            continue  # the whole house
        if path.parts[0] == "recipes":
            continue  # a wheel has them inside; they are run, not imported
        above = ROOMS[: ROOMS.index(path.parts[0].removesuffix(".py")) + 1]
        wrong += [f"{path}:{line}: {name}" for name, line in imported(file) if f"{name}.".split(".")[1] not in above]
    assert not wrong, "\n".join(wrong)


def test_contributing_has_the_rooms_in_this_order():
    page = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("| room | holds |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    named = [
        name
        for cell in cells
        for name in re.findall(r"`(?:src/weft/|weft\.)?(\w+)(?:\.py|/)?`", cell)
        if name != "native"
    ]
    assert named == [room for room in ROOMS if room not in ("_telemetry", "_renamed")]


def test_the_command_line_opens_indexes_by_text_index_alone():
    others = ("weft.search.Index", "weft.search.index", "weft.storage.store", "weft.storage.catalogue")
    for file in (SOURCES / "cli").glob("*.py"):
        assert not [name for name, _ in imported(file) if name.startswith(others)], file.name
