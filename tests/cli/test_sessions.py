"""Every verb, and every mistake of the manual, in a real terminal (search and its prompt: test_search.py)."""

import json
from importlib.resources import files
from pathlib import Path

import pytest

from weft import Index

pexpect = pytest.importorskip("pexpect")


@pytest.fixture
def terminal(session):
    return session


def finish(child):
    child.expect(pexpect.EOF)
    said = child.before
    child.close()
    return said


def reads(child):
    """Wait until `child` is inside a read of its terminal.

    Python looks for signals before it calls read: one that comes between the two is seen only after the next line.
    """
    calls = Path(f"/proc/{child.pid}/syscall")
    while calls.read_text().split()[:2] not in (["0", "0x0"], ["63", "0x0"]):  # read(0, …) on x86-64 and on ARM
        assert child.isalive()


def test_index_shows_a_bar_and_a_summary(notes, model, terminal):
    child = terminal("index", "notes", "-o", "n.weft", "--model", model)
    child.expect("indexing: ")
    child.expect("5 passages")
    child.expect(r"n\.weft: 3 added, 0 updated, 0 unchanged, 0 removed, 0 skipped \(5 passages written\)\r\n")
    assert finish(child) == ""
    assert child.exitstatus == 0


def test_ctrl_c_and_again(model, terminal, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    child = terminal("index", "-", "-o", "n.weft", "--model", model)
    child.expect("weft: reading texts from the terminal, one a line; Ctrl-D ends")
    for n in range(40):
        child.sendline(f"fox {n}")
    child.expect("32 passages")  # the first batch is committed, and the next waits for more lines
    reads(child)
    child.sendintr()
    child.expect(
        r"weft: interrupted: n\.weft is sound and holds 32 passages; the same command continues from there\r\n"
    )
    finish(child)
    assert child.exitstatus == 130
    assert run("check", "n.weft") == (0, "n.weft: sound, 32 passages\n", "")

    child = terminal("index", "-", "-o", "n.weft")
    for n in range(40):
        child.sendline(f"fox {n}")
    child.sendeof()
    child.expect("8 added, 0 updated, 32 unchanged")
    finish(child)
    assert child.exitstatus == 0
    assert run("check", "n.weft") == (0, "n.weft: sound, 40 passages\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "n.weft", "the red fox", "--id", "fox"], "fox\r\nn.weft: 1 added"),
        (["delete", "n.weft", "notes/mars.txt"], "n.weft: 3 deleted\r\n"),
        (["info", "n.weft"], "\x1b[2m passages\x1b[0m  5\r\n"),
        (["check", "n.weft"], "n.weft: sound, 5 passages\r\n"),
        (["compact", "n.weft"], "n.weft: 1 → 1 segments, "),
    ],
)
def test_the_other_verbs(indexed, terminal, arguments, said):
    child = terminal(*arguments)
    child.expect_exact(said)
    finish(child)
    assert child.exitstatus == 0


def test_get_is_coloured_for_people(notes, model, terminal, run):
    run("index", "notes", "-o", "n.weft", "--model", model)
    child = terminal("get", "n.weft", "notes/dog.txt")
    child.expect_exact("\x1b[1mnotes/dog.txt\x1b[0m")
    child.expect_exact("the lazy dog")
    finish(child)
    assert child.exitstatus == 0


def test_explain(indexed, terminal):
    child = terminal("explain", "n.weft", "red planet", TERM="xterm-256color")
    child.expect_exact("\x1b[1mnotes/")
    child.expect_exact("query")
    child.expect(r"adds.*similarity.*weight")
    child.expect_exact("the score")
    finish(child)
    assert child.exitstatus == 0


def test_demo(model, terminal, run, tmp_path, monkeypatch):
    child = terminal("demo", "d.weft", "--model", model, TERM="xterm-256color")
    child.expect_exact("255 passages indexed in ")
    child.expect_exact("Why do aeroplane windows have round corners?")
    child.expect_exact("\x1b[1;30;46m")  # the strongest word
    child.expect_exact("Why the first one was found")
    child.expect_exact("the score")
    child.expect_exact("All 100 judged queries")
    child.expect(r"token vectors +[\d.]+ ")
    child.expect(r"BM25 \(FTS5\) +([\d.]+) ")
    lexical = float(child.match.group(1))
    child.expect("hybrid")
    child.expect_exact('weft explain d.weft "Why do aeroplane windows have round corners?" --html why.html')
    finish(child)
    assert child.exitstatus == 0
    assert 0.6 < lexical < 0.7  # bm25s, with stop words and another stemmer, has 0.65: collections/demo/README.md
    monkeypatch.chdir(tmp_path)
    assert run("check", "d.weft") == (0, "d.weft: sound, 255 passages\n", "")


def test_demo_again_and_elsewhere(indexed, model, run, monkeypatch, tmp_path):
    assert run("demo", "d.weft", "--model", model)[0] == 0
    code, out, _ = run("demo", "d.weft", "--model", model)
    assert (code, out.splitlines()[0]) == (0, "255 passages already indexed with tiny: d.weft")
    code, out, err = run("demo", "n.weft", "--model", model)
    assert (code, out, err) == (1, "", "weft: n.weft holds other documents: name another folder for the demo's index\n")
    with Index.open("d.weft") as index:  # made with a model that is gone: it is made anew
        index.remember_model(str(tmp_path / "gone"))
    monkeypatch.setattr("weft.encoders.loading.BUNDLED", files("weft") / "nothing")
    code, _, err = run("demo", "d.weft")
    assert (code, err.count("\n")) == (1, 1)
    assert "comes without a model" in err


@pytest.mark.torch
def test_export(tiny_bert, terminal):
    child = terminal("export", tiny_bert, "light", "--no-compare")
    child.expect(r"light: .*, int8, 16 dimensions, [\d.]+ MB\r\n")
    finish(child)
    assert child.exitstatus == 0


MISTAKES = {
    "no such index": (["search", "none.weft", "x"], "no such index: none.weft; weft index PATH -o none.weft makes one"),
    "not an index": (["search", "notes", "x"], "no index at notes: there is no catalogue.sqlite in it"),
    "a file": (["info", "notes/dog.txt"], "notes/dog.txt is not an index: an index is a folder, this is a file"),
    "empty folder": (["index", "void", "-o", "n.weft"], "nothing to index in void: there is no text"),
    "bad filter": (["search", "n.weft", "x", "--filter", "year >="], "bad filter"),
    "unknown alignment": (["search", "n.weft", "x", "--alignment", "maxx"], "'maxx'"),
    "locked": (["index", "notes", "-o", "n.weft"], "is being written by another writer"),
}


@pytest.mark.parametrize(("arguments", "said"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_line_and_leaves_the_index_sound(indexed, run, terminal, tmp_path, arguments, said):
    (tmp_path / "void").mkdir()
    before = run("search", "n.weft", "red planet", "--json")
    with Index.open(indexed) as other:
        if "is being written" in said:
            other.lock()
        child = terminal(*arguments)
        line = finish(child)
    assert child.exitstatus == 1
    assert said in line
    assert line.startswith("weft: ")
    assert line.count("\n") == 1
    assert run("check", "n.weft") == (0, "n.weft: sound, 5 passages\n", "")
    assert run("search", "n.weft", "red planet", "--json") == before
    assert json.loads(before[1])["results"]


def test_evaluate_adapt_and_experiment(indexed, terminal):
    pytest.importorskip("ir_measures")
    folder = indexed.parent
    (folder / "run.trec").write_text("q Q0 b 1 2.0 x\nq Q0 a 2 1.0 x\n")
    (folder / "qrels.txt").write_text("q 0 a 1\n")
    child = terminal("evaluate", "--run", "run.trec", "--qrels", "qrels.txt", "--measures", "MRR@10")
    child.expect_exact("MRR@10")
    child.expect_exact("0.5")
    finish(child)
    assert child.exitstatus == 0

    (folder / "examples.tsv").write_text("the lazy dog\tnotes/dog.txt\n")
    child = terminal("adapt", "n.weft", "examples.tsv")
    child.expect("sum-of-max")  # one query is no evidence: what was there stays
    finish(child)
    assert child.exitstatus == 0

    child = terminal("experiment", "--list")
    child.expect_exact("k-prime")
    finish(child)
    assert child.exitstatus == 0
