"""Results by document, with page, line and heading; passages one by one; whole passages."""

import json

import pytest

TEXT = "# Foxes\n\nthe quick fox jumps.\n\n# Dogs\n\nthe lazy dog sleeps. the lazy dog sleeps.\n\nthe dog is lazy.\n"


@pytest.fixture
def animals(notes, model, run):
    (notes / "animals.md").write_text(TEXT)
    assert run("index", "notes", "-o", "n.weft", "-m", model)[0] == 0
    return notes.parent / "n.weft"


def ranks(out):
    return [line.split()[1] for line in out.splitlines() if line[:3].strip().rstrip(".").isdigit()]


def test_each_document_once(animals, run):
    _, flat, _ = run("search", "n.weft", "lazy dog", "--passages")
    _, out, _ = run("search", "n.weft", "lazy dog")
    assert len(ranks(flat)) > len(ranks(out))
    assert sorted(ranks(out)) == ["notes/animals.md", "notes/dog.txt", "notes/mars.txt", "notes/sub/sky.md"]
    best = dict.fromkeys(name.partition("##")[0] for name in ranks(flat))
    assert ranks(out) == list(best)


def test_k_counts_documents(animals, run):
    assert len(ranks(run("search", "n.weft", "lazy dog", "-k", "3")[1])) == 3
    assert len(ranks(run("search", "n.weft", "lazy dog", "-k", "3", "--passages")[1])) == 3


def test_places_are_shown(animals, run):
    _, out, _ = run("search", "n.weft", "lazy dog", "-k", "4")
    assert "line 7, Dogs" in out
    _, out, _ = run("search", "n.weft", "lazy dog", "--json", "-k", "30")
    places = {
        (row["metadata"]["line"], row["metadata"].get("heading"))
        for row in json.loads(out)["results"]
        if row["metadata"].get("parent") == "notes/animals.md"
    }
    assert (7, "Dogs") in places
    assert all(heading == "Dogs" for line, heading in places if line > 5)


def test_context_and_full(notes, model, run):
    long = "the quick fox jumps over it.\n" * 3 + "  the lazy dog."
    (notes / "long.txt").write_text(long)
    assert run("index", "notes/long.txt", "-o", "l.weft", "-m", model, "--no-split")[0] == 0
    assert "…" in run("search", "l.weft", "lazy dog", "--context", "30")[1]
    _, out, _ = run("search", "l.weft", "lazy dog", "--full")
    assert [line[4:].rstrip() for line in out.splitlines()[1:]] == long.split("\n")


def test_a_filter_on_a_field_that_no_document_has(animals, run):
    code, _, err = run("search", "n.weft", "dog", "--filter", 'pth == "x" and title exists')
    assert (code, err) == (0, "weft: no document has the field pth: did you mean path?\n")
    assert run("search", "n.weft", "dog", "--filter", 'path == "x"')[2] == ""
    run("add", "n.weft", "a fox", "--id", "fox", "--metadata", '{"tags": ["a"]}')
    assert run("search", "n.weft", "dog", "--filter", "tag exists")[2].endswith(": did you mean tags?\n")
    assert run("search", "n.weft", "dog", "--filter", "not yeer exists")[2] == ""  # it finds all there is
    assert "no document has the field a.b\n" in run("delete", "n.weft", "--filter", "a.b == 1")[2]


CODE = (
    '''import os


def first(x):
    """The lazy dog."""
    return x


'''
    + "# the sky is blue\n" * 30
)


def test_code_keeps_its_lines_and_says_which(notes, model, run):
    (notes / "a.py").write_text(CODE)
    lines = CODE.split("\n")
    assert run("index", "notes/a.py", "-o", "whole.weft", "-m", model, "--no-split")[0] == 0
    _, out, _ = run("search", "whole.weft", "lazy dog", "--context", "40")
    _, place, *shown = [line[4:] for line in out.splitlines()]
    first = int(place.removeprefix("notes/a.py:"))
    assert 1 < len(shown) < 8
    assert shown == lines[first - 1 : first - 1 + len(shown)]
    _, out, _ = run("search", "whole.weft", "lazy dog", "--full")
    assert [line[4:] for line in out.splitlines()[1:]] == ["notes/a.py:1", *lines[:-1]]
    (found,) = json.loads(run("search", "whole.weft", "lazy dog", "--json")[1])["results"]
    assert "\n" not in found["snippet"]
    assert run("index", "notes/a.py", "-o", "parts.weft", "-m", model)[0] == 0
    shown = run("search", "parts.weft", "lazy dog", "--passages")[1].splitlines()
    places = [at for at, line in enumerate(shown) if line.startswith("    notes/a.py:")]
    assert len(places) > 3
    for at in places:
        assert shown[at + 1].strip() in lines[int(shown[at].split(":")[1]) - 1]
