"""``weft index`` on real folders: rows of two files, files with several names, links, ignored files, odd names."""

import json
import os

import pytest

from weft import TextIndex


def ids(path):
    with TextIndex.open(path) as index:
        return sorted({document.metadata.get("parent", name) for name in index for document in [index.get(name)]})


@pytest.fixture
def index(run, model):
    """Index some paths into n.weft; return the exit code, the counts and what stands on stderr."""

    def index(*arguments):
        code, out, err = run("index", *arguments, "-o", "n.weft", "-m", model, "--json")
        return code, json.loads(out) if out else {}, err

    return index


@pytest.fixture
def tables(notes):
    for name, animal in (("a.csv", "fox"), ("b.csv", "dog")):
        (notes / name).write_text(f"id,text\n1,the {animal}\n2,the lazy {animal}\n")
    return notes


class TestRows:
    SCOPED = ("notes/a.csv:1", "notes/a.csv:2", "notes/b.csv:1", "notes/b.csv:2")

    def test_two_tables_in_one_folder(self, tables, index):
        code, counts, _ = index("notes/a.csv", "notes/b.csv")
        assert (code, counts["added"], counts["clashes"]) == (0, 4, 0)
        assert ids("n.weft") == sorted(self.SCOPED)

    def test_two_tables_in_two_runs(self, tables, index):
        index("notes/a.csv")
        assert index("notes/b.csv")[1]["added"] == 2
        assert ids("n.weft") == sorted(self.SCOPED)

    def test_global_ids_that_clash_are_an_error_that_names_both(self, tables, index):
        code, counts, err = index("notes/a.csv", "notes/b.csv", "--id-scope", "global")
        assert (code, counts["added"], counts["clashes"]) == (1, 2, 2)
        said = "weft: skipped notes/b.csv, line 2: the id '1' is that of notes/a.csv, line 2 too"
        assert f"{said} (--id-scope file keeps both)" in err

    def test_global_ids_that_clash_in_two_runs(self, tables, index):
        index("notes/a.csv", "--id-scope", "global")
        code, _, err = index("notes/b.csv", "--id-scope", "global")
        assert code == 1
        assert "the id '1' is that of notes/a.csv too" in err
        with TextIndex.open("n.weft") as opened:
            assert opened.get("1").text == "the fox"

    def test_a_renamed_table_takes_its_ids_along(self, tables, index):
        index("notes/a.csv", "--id-scope", "global")
        os.rename(tables / "a.csv", tables / "z.csv")
        code, counts, _ = index("notes/z.csv", "--id-scope", "global")
        assert (code, counts["updated"]) == (0, 2)

    def test_another_scope_replaces_the_rows(self, tables, index):
        index("notes/a.csv", "--id-scope", "global")
        assert index("notes/a.csv")[1]["updated"] == 2
        assert ids("n.weft") == ["notes/a.csv:1", "notes/a.csv:2"]


class TestNames:
    def test_three_spellings(self, notes, index, monkeypatch):
        code, counts, _ = index("notes/dog.txt", "./notes/../notes/dog.txt", notes / "dog.txt")
        assert (code, counts["added"]) == (0, 1)
        assert index(notes / "dog.txt")[1]["unchanged"] == 1
        monkeypatch.chdir(notes)
        (notes / "dog.txt").write_text("the quick dog")
        from weft.cli.main import main

        assert main(["index", "dog.txt", "-o", "../n.weft"]) == 0
        assert ids("../n.weft") == ["notes/dog.txt"]

    def test_links_inside_the_folder(self, notes, index):
        (notes / "a_link.txt").symlink_to(notes / "dog.txt")
        (notes / "linked").symlink_to(notes / "sub")
        assert index("notes")[1]["added"] == 3
        assert ids("n.weft") == ["notes/dog.txt", "notes/mars.txt", "notes/sub/sky.md"]

    def test_links_out_of_the_folder(self, notes, index, tmp_path):
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "secret.txt").write_text("the secret fox")
        (notes / "out").symlink_to(tmp_path / "elsewhere")
        (notes / "out.txt").symlink_to(tmp_path / "elsewhere" / "secret.txt")
        _, counts, err = index("notes")
        assert counts["added"] == 3
        assert "weft: skipped notes/out: a link out of the folder (--follow-links takes it)" in err
        assert "weft: skipped notes/out.txt: a link out of the folder" in err
        assert index("notes", "--follow-links")[1]["added"] == 1

    def test_sync_under_another_spelling(self, notes, index):
        index("notes")
        (notes / "dog.txt").unlink()
        assert index(notes, "--sync")[1]["removed"] == 1

    def test_another_file_of_the_same_name(self, notes, index, tmp_path, monkeypatch):
        index("notes/dog.txt")
        (tmp_path / "other" / "notes").mkdir(parents=True)
        (tmp_path / "other" / "notes" / "dog.txt").write_text("another dog")
        monkeypatch.chdir(tmp_path / "other")
        from weft.cli.main import main

        assert main(["index", "notes/dog.txt", "-o", "../n.weft"]) == 1
        with TextIndex.open("../n.weft") as opened:
            assert opened.get("notes/dog.txt").text == "the lazy dog"


def test_gitignore(notes, index, run, model):
    (notes / ".git").mkdir()
    (notes / ".gitignore").write_text("build/\n*.log.txt\n!keep.log.txt\n")
    for name in ("build/a.txt", "x.log.txt", "keep.log.txt", "sub/y.log.txt", "sub/z.tmp.txt"):
        (notes / name).parent.mkdir(exist_ok=True)
        (notes / name).write_text("the fox")
    (notes / "sub" / ".gitignore").write_text("*.tmp.txt\n")
    _, counts, err = index("notes")
    assert counts["added"] == 4
    assert "weft: skipped 4 files and folders left out by .gitignore (--no-ignore takes them)" in err
    assert counts["skipped_by_reason"] == {"left out by .gitignore": 4}
    assert index("notes", "--no-ignore")[1]["added"] == 4
    assert run("index", "notes/build", "-o", "b.weft", "-m", model)[0] == 0  # asked for, so taken
    assert ids("b.weft") == ["notes/build/a.txt"]


def test_what_was_skipped_is_counted_by_kind(notes, index):
    for number in range(5):
        (notes / f"{number}.jpg").write_bytes(b"\xff")
        (notes / f"{number}.txt").touch()
    (notes / "x.bin").write_bytes(b"\0")
    _, counts, err = index("notes")
    assert "weft: skipped 6 files of no known kind (5 .jpg, 1 .bin)" in err
    assert "weft: skipped 5 files: empty (notes/0.txt, …)" in err
    assert counts["skipped_by_reason"] == {"of no known kind": 6, "empty": 5}


ESCAPE = "\x1b]0;owned\x07\x1b[31m\x9b31m\u202e"


def test_no_escape_reaches_the_terminal(notes, run, model, tmp_path):
    (notes / f"a{ESCAPE}.txt").write_text(f"the fox {ESCAPE}")
    (notes / f"b{ESCAPE}.txt").touch()
    (notes / "r.jsonl").write_text(json.dumps({"id": f"r{ESCAPE}", "text": "the fox"}) + "\n")
    (tmp_path / "q.tsv").write_text(f"1{ESCAPE}\tthe fox {ESCAPE}\n")
    said = [
        run("index", "notes", "-o", "n.weft", "-m", model),
        run("search", "n.weft", "the fox", "--tsv"),
        run("search", "n.weft", "--queries", "q.tsv", "--trec"),
        run("search", "n.weft", "--queries", "q.tsv"),
        run("search", "n.weft", "the fox", "--json"),
        run("explain", "n.weft", "the fox", "--json"),
        run("get", "n.weft", f"notes/r.jsonl:r{ESCAPE}", "--json"),
        run("get", "n.weft", f"nothing{ESCAPE}"),
        run("search", "n.weft", "x", "--filter", f"a == {ESCAPE}"),
        run("index", f"nowhere{ESCAPE}", "-o", "n.weft"),
    ]
    for code, out, err in said:
        assert not set("\x1b\x07\x9b\u202e") & set(out + err), (code, out, err)
    assert ESCAPE in json.loads(said[6][1])["id"]
    assert "�]0;owned" in said[0][2]
    assert "�]0;owned" in said[1][1]


def test_get_is_exact_for_pipes_and_harmless_for_terminals(notes, run, model, session):
    (notes / "a.txt").write_text(f"the fox {ESCAPE}" + " and the dog" * 20)
    run("index", "notes/a.txt", "-o", "n.weft", "-m", model)
    assert ESCAPE[:6] in run("get", "n.weft", "notes/a.txt")[1]
    child = session("get", "n.weft", "notes/a.txt")
    child.expect("the fox ")
    child.expect_exact("�]0;owned")
