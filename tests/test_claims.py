"""What README and docs promise exists: files, headings, commands, options, extras; figures are of shipped models."""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer

from weft.cli.main import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
        *DOCS.rglob("*.md"),
        *(ROOT / "benchmarks").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "src" / "weft" / "models").rglob("*.md"),
        *(ROOT / "packages").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
    ]
)
COMMANDS = typer.main.get_command(app)
GENERATED = {DOCS / "reference" / name for name in ("cli.md", "http.md")}  # hooks in tools/ write them with the site


def name(path):
    return path.relative_to(ROOT).as_posix()


def text(path):
    return path.read_text(encoding="utf-8")


def prose(path):
    """A page without its code blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", text(path), flags=re.MULTILINE | re.DOTALL)


def code(path):
    """The code of a page: spans in a line, lines of indented blocks, commands of fenced ones."""
    page = text(path)
    for kind, block in re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if kind == "console":
            yield from re.findall(r"^\$ (.*)$", block, re.MULTILINE)
        elif kind in ("", "sh", "bash", "shell"):
            yield from block.splitlines()
    yield from re.findall(r"^ {4,}(\S.*)$", prose(path), re.MULTILINE)
    yield from (span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", prose(path)))


def anchors(path):
    """The ids that headings get on the site and on GitHub."""
    for heading in re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE):
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        plain = re.sub(r"[^\w\s-]", "", plain)
        yield re.sub(r"\s", "-", plain)
        yield re.sub(r"[-\s]+", "-", re.sub(r"[^\x00-\x7f]", "", plain)).strip("-")
    yield from re.findall(r'<a (?:id|name)="([^"]+)"', text(path))
    yield from re.findall(r"\{ ?#([\w-]+) ?\}", text(path))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        file, _, anchor = target.partition("#")
        if "://" in file or file.startswith("mailto:"):
            continue
        path = (page.parent / file).resolve() if file else page
        if path in GENERATED:
            continue
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in set(anchors(path))):
            dead.append(target)
    assert dead == []


def unrendered(page):
    """Rows of a table without a head, headings, rows and lists that follow a line of prose: they come out as text."""
    lines = ["", *re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL).splitlines(), ""]
    for before, line, after in zip(lines, lines[1:], lines[2:], strict=False):
        wrong = {
            "row": line.startswith("|")
            and not before.startswith("|")
            and (before.strip() or not re.match(r"\|[ :|-]+$", after)),
            "heading": re.match(r"#+ ", line) and before.strip(),
            "list": re.match(r"[-*] |1\. ", line) and before.strip() and not re.match(r"[-*] |\d+\. |\s", before),
            "list in a line": re.search(r"[.:)] \d\. \*\*\w", line),
        }
        if any(wrong.values()):
            yield line


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_tables_headings_and_lists_are_rendered(page):
    assert list(unrendered(prose(page))) == []


def test_what_comes_out_as_text_is_found():
    table = "| a |\n| --- |\n| b |\n\n| c |\n\nwords:\n- one\n"
    assert list(unrendered(table)) == ["| c |", "- one"]
    steps = "1. **One** thing. 2. **Two**"
    assert list(unrendered(f"words\n## Heading\n\n{steps}\n")) == ["## Heading", steps]


def command_of(words):
    """The command that words after ``weft`` name, and the words after it; None where they name none."""
    command, rest = COMMANDS, list(words)
    while rest and hasattr(command, "commands"):
        while rest and rest[0].startswith("-"):
            rest.pop(0)
        if not rest or not re.fullmatch(r"[a-z][a-z-]*", rest[0]):
            return command, rest
        command = command.commands.get(rest.pop(0))
    return command, rest


def wrong_options(line):
    """What a line of a shell asks of weft that it does not have."""
    try:
        words = shlex.split(line.replace("…", "X").replace("'\\''", ""), comments=True)
    except ValueError:  # half a line
        words = line.split()
    starts = [
        at
        for at, word in enumerate(words)
        if word == "weft" and (at == 0 or words[at - 1] in ("|", "--", "&&", "time", "$"))
    ]
    for start in starts:
        end = next(
            (at for at in range(start + 1, len(words)) if words[at] in ("|", "&&", ">", ";", "2>", "&")), len(words)
        )
        command, rest = command_of(words[start + 1 : end])
        if command is None:
            yield line
            continue
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        known |= {option for parameter in COMMANDS.params for option in parameter.opts} | {"--help"}
        for word in rest:
            option = word.partition("=")[0]
            if re.fullmatch(r"--[a-z][a-z-]*|-[a-zA-Z]", option) and option not in known:
                yield f"{option}: {line}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name)
def test_commands_and_their_options_exist(page):
    assert [wrong for line in code(page) for wrong in wrong_options(line.strip())] == []


def test_a_promise_that_is_not_kept_is_found():
    assert list(wrong_options("weft forget notes.weft")) == ["weft forget notes.weft"]
    assert list(wrong_options("cat q | weft search notes.weft 'a b' --colour red")) == [
        "--colour: cat q | weft search notes.weft 'a b' --colour red"
    ]
    assert list(wrong_options("weft generative search squad.gr 'who' -k 3 | head")) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name)
def test_targets_files_and_recipes_exist(page):
    targets = set(re.findall(r"^([a-z][\w-]*):", text(ROOT / "Makefile"), re.MULTILINE))
    recipes = {
        path.relative_to(ROOT / "recipes").with_suffix("").as_posix() for path in (ROOT / "recipes").rglob("*.toml")
    }
    missing = []
    for line in code(page):
        missing += [f"make {target}" for target in re.findall(r"^make ([a-z][\w-]*)", line) if target not in targets]
        # Names with a … or in capitals stand for the reader's own.
        for path in re.findall(
            r"(?<![\w/.-])((?:benchmarks|tools|recipes|examples|tests|src|docs)/[\w./-]*\w\.(?:py|toml|md|tsv))\b", line
        ):
            if not (ROOT / path).exists():
                missing.append(path)
        for recipe in re.findall(r"weft train (?!recipes/)([a-z][\w-]*(?:/[\w-]+)*)(?![\w./])", line):
            if recipe not in recipes:
                missing.append(f"weft train {recipe}")
    assert missing == []


def test_experiments_exist():
    listed = pytest.importorskip("weft.analysis.experiments", reason="experiments").EXPERIMENTS
    known = {"all", *listed}
    named = {
        found for page in PAGES for line in code(page) for found in re.findall(r"weft experiment ([a-z][\w-]*)", line)
    }
    assert sorted(named - known) == []


def test_extras_exist():
    project = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]
    extras = set(project["optional-dependencies"])
    sources = [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "examples").rglob("*.py"), ROOT / "pyproject.toml"]
    named = [found for path in sources for found in re.findall(r"weft-search\[([\w,-]+)\]", text(path))]
    named += [
        found
        for path in (ROOT / "src").rglob("*.py")
        for found in re.findall(r'missing_extra\([^,\n]+, "([\w-]+)"', text(path))
    ]
    assert len(named) > 20
    assert sorted({extra for group in named for extra in group.split(",")} - extras) == []
    dotted = {
        extra
        for page in PAGES
        for found in re.findall(r"pip install '?\.\[([\w,-]+)\]", text(page))
        for extra in found.split(",")
    }
    assert sorted(dotted - extras) == []


# Figures


def shipped():
    """The first eight digits of each shipped model's fingerprint."""
    settings = [
        *(ROOT / "src" / "weft" / "models").glob("*/weft_encoder.json"),
        *(ROOT / "packages").rglob("weft_encoder.json"),
    ]
    return {json.loads(text(path))["fingerprint"][:8] for path in settings}


FINGERPRINT = re.compile(r"(?<![\w/])([0-9a-f]{8})(?:[0-9a-f]{24})?\b")
FIGURE = re.compile(r"(?<![\w.,/-])0?\.\d{3}\b(?!\.)")


def stale(page, current):
    """Fingerprints of models that do not ship.

    Notes and results may keep figures of a model that is gone, where a page beside it calls it an earlier model.
    """
    told = set()
    if "notes" in page.parts or "benchmarks" in page.parts:
        lines = [line for beside in page.parent.glob("*.md") for line in prose(beside).splitlines()]
        told = {found for line in lines if "earlier model" in line for found in FINGERPRINT.findall(line)}
    for line in prose(page).splitlines():
        for found in FINGERPRINT.findall(line):
            if re.search("[a-f]", found) and re.search("[0-9]", found) and found not in current | told:
                yield f"{found}: {line[:100]}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_figures_are_of_models_that_ship(page):
    assert list(stale(page, shipped())) == []


def test_a_stale_fingerprint_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("weft-small (`00c0ffee`): .812\nan earlier model, 00c0ffee\nweft-small, `0123abcd`\n")
    assert len(list(stale(page, {"0123abcd"}))) == 2
    (tmp_path / "notes").mkdir()
    assert list(stale(page.rename(tmp_path / "notes" / "page.md"), {"0123abcd"})) == []


# Words of a row of the README's table, the sections of the results that it quotes, and what the lines there contain.
QUOTED = {
    "SciFact, all": (
        ("The default alignment", "| test | scifact |"),
        ("SciFact, by an", "| BM25 |", "| gte-small, one vector |"),
    ),
    "10,000 synthetic documents": (
        ("s10k:", "| weft | n_probe", "| FAISS IVF-PQ", "| Qdrant Edge, mean vector + MaxSim, int8 |"),
    ),
    "over HTTP": (("Serving", "| text | 16 |"),),
    "`kill -9`": (("Reliability", "`kill -9`"),),
}
QUOTABLE = re.compile(r"(?<![\w.,])0?(\.\d{3}|\d+\.\d\d|\d,\d{3}|\d{3})\b(?![.,]\d)")


def lines_of(results, heading, *starts):
    """The lines that contain one of `starts` in the first section whose heading begins so."""
    _, _, section = re.split(rf"^(#+) {re.escape(heading)}.*$", results, maxsplit=1, flags=re.MULTILINE)
    section = re.split(r"^#+ ", section, maxsplit=1, flags=re.MULTILINE)[0]
    return [line for line in section.splitlines() if any(start in line for start in starts)]


def unquoted(table, results, quoted=QUOTED):
    """Figures of the README's table that the lines of the results which they are quoted from do not have."""
    for row in table.splitlines():
        places = next((places for words, places in quoted.items() if words in row), None)
        cells = row.split("|")
        if places is None or len(cells) < 5:
            continue
        lines = " ".join(line for place in places for line in lines_of(results, *place))
        for figure in QUOTABLE.findall("|".join(cells[2:4])):
            if not re.search(rf"(?<![\d.,])0?{re.escape(figure)}\b", lines):
                yield f"{figure}: {row[:60]}"


def test_figures_of_the_readme_are_in_the_results():
    table = text(ROOT / "README.md").partition("## Figures")[2].partition("## ")[0]
    assert [words for words in QUOTED if words not in table] == []
    assert len(QUOTABLE.findall(table)) > 8
    assert list(unquoted(table, text(ROOT / "benchmarks" / "RESULTS.md"))) == []


def test_a_figure_that_is_not_in_the_results_is_found():
    results = "## Models\n\n| test | scifact | 300 | 0.765 | 0.767 |\n| BM25 | 0.676 |\n| other | 0.768 |\n\n"
    results += "## More\n\n| BM25 | 0.769 |\n"
    quoted = {"SciFact": (("Models", "| test | scifact |", "| BM25 |"),)}
    row = "| nDCG@10 on SciFact | {} | BM25 .676 | `python benchmarks/quality.py` |"
    assert list(unquoted(row.format(".767"), results, quoted)) == []
    assert len(list(unquoted(row.format(".768"), results, quoted))) == 1
    assert len(list(unquoted(row.format(".769"), results, quoted))) == 1


def test_the_results_begin_with_a_list_of_their_sections():
    results = text(ROOT / "benchmarks" / "RESULTS.md")
    listed = re.findall(r"^- \[(.*)\]\(#", results.partition("<!-- contents:end -->")[0], re.MULTILINE)
    assert listed == re.findall(r"^## (.*)$", results, re.MULTILINE)


def without_source(page):
    """Headings of the sections with quality figures that name no command, or no model."""
    for section in re.split(r"^(?=#{1,3} )", prose(page), flags=re.MULTILINE):
        spans = re.sub(r"`[^`]*`", "", section)
        if not FIGURE.search(spans):
            continue
        command = re.search(r"`(?:python (?:benchmarks|tools)/|make |weft )[^`]*`", section)
        if not command or not FINGERPRINT.search(section):
            yield section.partition("\n")[0]


FOR_USERS = [
    ROOT / "README.md",
    DOCS / "index.md",
    *(page for part in ("start", "guides", "reference") for page in DOCS.glob(f"{part}/**/*.md")),
]


@pytest.mark.parametrize("page", FOR_USERS, ids=name)
def test_figures_name_their_command_and_their_model(page):
    assert list(without_source(page)) == []


def test_pages_are_tracked():
    """A page that only this checkout has is seen by nobody else."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode != 0:
        pytest.skip("needs a git checkout")
    assert sorted({name(page) for page in PAGES} - set(listed.stdout.split("\0"))) == []
