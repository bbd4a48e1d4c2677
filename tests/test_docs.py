"""The documentation knows every verb and every room."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weft.cli.main import app

ROOT = Path(__file__).parent.parent
VERBS = [
    *(command.name for command in app.registered_commands),
    *(group.typer_instance.info.name for group in app.registered_groups),
]
NO_API = {"cli", "models", "checks"}  # commands have a reference of their own, weights and checks none


def test_the_reference_of_the_command_line_has_every_verb():
    page = runpy.run_path(str(ROOT / "tools" / "cli_reference.py"))["reference"]()
    assert re.findall(r"^## `weft (.*)`$", page, re.MULTILINE) == VERBS
    assert "--install-completion" in page
    assert "* `-f, --filter" in page
    assert [line for line in page.splitlines() if line.startswith("* ") and line.endswith("...")] == []  # cut off


def test_help_names_arguments_as_a_reader_would():
    page = runpy.run_path(str(ROOT / "tools" / "cli_reference.py"))["reference"]()
    usages = re.findall(r"^\$ weft [a-z ]*\[OPTIONS\](.*)$", page, re.MULTILINE)
    assert len(usages) > 25
    shaped = r"(?: (?:\{[A-Z|.=]+\}|\[[A-Z|.=]+\])(?:\.\.\.)?)*(?: COMMAND \[ARGS\]\.\.\.)?"
    assert [usage for usage in usages if not re.fullmatch(shaped, usage)] == []
    assert re.findall(r"^\* `-.*<list\[.*$", page, re.MULTILINE) == []  # a Python type


def test_the_reference_of_the_http_api_has_every_field_with_what_it_means():
    pytest.importorskip("msgspec")
    page = runpy.run_path(str(ROOT / "tools" / "http_reference.py"))["reference"]()
    assert "## POST /v1/indexes/{name}/search\n\nSearch. Scope `read`." in page
    assert "## DELETE /v1/indexes/{name}/documents/{id}\n\nRemove a document. Scope `write`." in page
    requests, answers = page.split("\n## Objects\n")
    fields = re.findall(r"^\| `(\w+)` \| .* \| .* \| (.*) \|$", requests, re.MULTILINE)
    assert ("k", "How many documents to return.") in fields
    assert [name for name, said in fields if not said] == []
    assert "### Hit\n" in answers


def test_configuration_has_every_variable_of_the_environment():
    sources = [*(ROOT / "src").rglob("*.py"), ROOT / "native" / "cpu.cpp"]
    read = r"""(?:envvar=|environ(?:\.get)?[([]|getenv\(|ENVIRONMENT = |VARIABLE = )"(WEFT_\w+)"""
    names = {name for path in sources for name in re.findall(read, path.read_text(encoding="utf-8"))}
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    assert {"WEFT_CACHE", "WEFT_SIMD", "WEFT_KEYS"} <= names
    assert sorted(name for name in names if f"`{name}`" not in page) == []


def test_every_room_is_in_the_api_reference():
    packages = {path.parent.name for path in (ROOT / "src" / "weft").glob("*/__init__.py")}
    modules = {path.stem for path in (ROOT / "src" / "weft").glob("*.py") if not path.stem.startswith("_")}
    described = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference" / "api").glob("*.md")
    )
    rooms = set(re.findall(r"^::: weft\.(\w+)", described, re.MULTILINE))
    assert sorted((packages | modules) - rooms - NO_API) == []


def test_every_page_of_the_site_is_in_its_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert (
        sorted(page for page in pages | {"reference/cli.md", "reference/http.md"} if f" {page}\n" not in navigation)
        == []
    )


VERDICTS = ("agrees", "does not agree", "not testable here")


def test_every_claim_of_the_papers_has_one_of_three_verdicts():
    notes = ROOT / "docs" / "notes"
    counted = re.findall(
        r"^\| \[.*\]\((reproduction-\w+\.md)\) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$",
        (notes / "reproduction.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(counted) == 3
    for page, *counts in counted:
        head, _, rest = (notes / page).read_text(encoding="utf-8").partition("| verdict |\n")
        assert head.count("\n\n") == 2, f"the table stands at the top of {page}"
        verdicts = [row.split("|")[-2].strip() for row in rest.partition("\n\n")[0].splitlines()[1:]]
        assert sorted(set(verdicts) - set(VERDICTS)) == []
        assert [int(count) for count in counts] == [len(verdicts), *(verdicts.count(verdict) for verdict in VERDICTS)]


def completed(line):
    """What completion offers at the end of a line, one a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_WEFT_COMPLETE": "complete_bash"}
    done = subprocess.run([sys.executable, "-m", "weft"], env={**os.environ, **words}, capture_output=True, text=True)
    return done.stdout.split()


def test_completion_offers_verbs_and_options():
    assert completed("weft ") == VERBS
    assert completed("weft sea") == ["search"]
    assert "--alignment" in completed("weft search --al")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_completion_in_bash(tmp_path):
    (tmp_path / "weft").write_text(f'#!/bin/sh\nexec {sys.executable} -m weft "$@"\n')
    (tmp_path / "weft").chmod(0o755)
    script = """
        eval "$(weft --show-completion)"
        COMP_WORDS=(weft exp); COMP_CWORD=1; _weft_completion weft exp weft  # as bash calls it
        echo "${COMPREPLY[@]}"
        weft --install-completion >/dev/null && grep -l weft "$HOME/.bashrc"
    """
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == [verb for verb in VERBS if verb.startswith("exp")] + [f"{tmp_path}/.bashrc"], done
