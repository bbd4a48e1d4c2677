"""``weft grep``: a folder searched by meaning, its index kept aside and up to date."""

import json
import os
import subprocess
import sys

import pytest

from weft.cli.main import main

CODE = '''import re


def strip_colours(text):
    """Remove what colours a terminal."""
    return re.sub("x", "", text)


class Reader:
    def read(self, path):
        with open(path) as file:
            return file.read()
'''


@pytest.fixture
def tree(tmp_path, monkeypatch, model):
    (tmp_path / "src" / "sub").mkdir(parents=True)
    (tmp_path / "src" / "strip.py").write_text(CODE)
    (tmp_path / "src" / "sub" / "dog.txt").write_text("the lazy dog\nthe quick fox\n")
    (tmp_path / "src" / "sky.md").write_text("---\ntitle: Sky\n---\n\n# Blue\n\n" + "the sky is blue.\n" * 9)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "src"


@pytest.fixture
def grep(run, model):
    def grep(*arguments):
        return run("grep", "--model", model, *arguments)

    return grep


def test_the_form_of_grep(tree, grep):
    code, out, err = grep("quick fox", "src", "-m", 50)
    assert (code, err) == (0, "")
    for line in out.splitlines():
        name, number, text = line.split(":", 2)
        assert (tree.parent / name).read_text().split("\n")[int(number) - 1].rstrip() == text
    assert {line.split(":")[0] for line in out.splitlines()} == {"src/sky.md", "src/strip.py", "src/sub/dog.txt"}


def test_json_and_names_and_context(tree, grep):
    _, out, _ = grep("fox", "src", "--json", "-C", 1, "-m", 50)
    for row in map(json.loads, out.splitlines()):
        lines = (tree.parent / row["path"]).read_text().split("\n")
        assert lines[row["line"] - 1].strip() == row["text"]
        assert lines[row["first"] - 1 : row["first"] - 1 + len(row["context"])] == row["context"]
    assert sorted(grep("fox", "src", "-l", "-m", 50)[1].split()) == ["src/sky.md", "src/strip.py", "src/sub/dog.txt"]
    assert "-" in grep("fox", "src", "-C", 1)[1]


def test_unchanged_files_are_not_even_read(tree, grep, monkeypatch):
    first = grep("fox", "src")

    def refuse(*_, **__):
        raise AssertionError("nothing changed")

    monkeypatch.setattr("weft.text_index.writing.read_sources", refuse)
    assert grep("fox", "src") == first
    assert grep("fox", tree)[1].replace(f"{tree}/", "src/") == first[1]


def test_it_follows_the_files(tree, grep):
    grep("fox", "src")
    (tree / "new.txt").write_text("a blue sky")
    (tree / "sub" / "dog.txt").unlink()
    status = (tree / "strip.py").stat()
    (tree / "strip.py").write_text(CODE.replace("Reader", "Writer"))
    os.utime(tree / "strip.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    _, out, _ = grep("fox", "src", "-m", 50, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert {row["path"] for row in rows} == {"src/new.txt", "src/sky.md", "src/strip.py"}
    assert not any("Reader" in "".join(row["context"]) for row in rows)


def test_paths_are_those_of_the_caller(tree, grep, monkeypatch):
    grep("fox", "src")
    monkeypatch.chdir(tree / "sub")
    assert grep("lazy dog", "..", "-l", "-m", 50)[1].split()[0].startswith("../")
    assert grep("lazy dog", "-m", 1)[1].startswith("dog.txt:")
    assert grep("lazy dog", "dog.txt", "-m", 1)[1].startswith("dog.txt:")


def test_rows_have_the_lines_that_they_stand_on(tree, grep):
    tables = tree.parent / "tables"
    tables.mkdir()
    (tables / "a.csv").write_text("id,text\n1,the quick fox\n2,the lazy dog\n")
    (tables / "b.jsonl").write_text('\n{"text": "a blue sky"}\n{"title": "Red", "text": "the red planet"}\n')

    def lines():
        _, out, _ = grep("dog", "tables", "-m", 50, "-C", 1)
        found = (line.split(":", 2) for line in out.splitlines() if line != "--")
        return {(name, int(number)): text for name, number, text in found}

    rows = {
        "tables/a.csv": ["", "the quick fox", "the lazy dog"],
        "tables/b.jsonl": ["", "a blue sky", "the red planet"],
    }
    found = lines()
    assert len(found) == 4
    assert all(rows[name][number - 1] == text or text == "Red" for (name, number), text in found.items())
    (tables / "a.csv").write_text("id,text\n3,the red planet\n1,the quick fox\n2,the lazy dog\n")
    assert lines()["tables/a.csv", 4] == "the lazy dog"


def test_functions_are_headings(tree, grep):
    pytest.importorskip("tree_sitter", reason="needs the code extra: pip install 'weft-search[code]'")
    (tree / "long.py").write_text("".join(f"def f{n}(x):\n    return {'x + 1 + ' * 40}{n}\n\n\n" for n in range(4)))
    _, out, _ = grep("return", "src", "--json", "-m", 60, "--include", "long.py")
    found = {row["heading"]: row["line"] for row in map(json.loads, out.splitlines())}
    assert set(found) == {"f0", "f1", "f2", "f3"}


def test_exit_codes(tree, grep, tmp_path, capsys):
    (tmp_path / "void").mkdir()
    assert grep("fox", "void")[:2] == (1, "")
    code, out, err = grep("fox", "nowhere")
    assert (code, out) == (2, "")
    assert err.startswith("weft: no such file or folder")
    assert grep(" ", "src")[0] == 2
    assert main(["grep"]) == 2


def test_a_cache_that_cannot_be_made_is_an_error_that_says_what_to_do(tree, grep, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "file"))
    code, out, err = grep("fox", "src")
    assert (code, out) == (2, "")
    assert err.startswith(f"weft: no index can be kept in {tmp_path}/file/grep: Not a directory; --cache FOLDER")


def test_files_that_cannot_be_read_are_reported(tree, grep):
    pytest.importorskip("pypdfium2", reason="needs the files extra: pip install 'weft-search[files]'")
    (tree / "broken.pdf").write_bytes(b"%PDF-1.4 nonsense")
    (tree / "empty.txt").write_text("")
    code, out, err = grep("fox", "src")
    assert code == 0
    assert "src/strip.py:" in out
    assert [line.partition(":")[2].split(":")[0] for line in err.splitlines()] == [" skipped src/broken.pdf"]


def test_a_cache_of_another_model_is_made_anew(tree, grep, tmp_path):
    from weft import Index

    first = grep("fox", "src")
    (place,) = (tmp_path / "cache" / "grep").glob("*.weft")
    with Index.open(place) as index, index.committing() as catalogue:
        catalogue.set("encoder", "of another")
    assert grep("fox", "src")[0] == 0
    assert grep("fox", "src", "--rebuild") == first


def test_starting_imports_little():
    """Before a query is encoded neither a model's libraries nor others that are slow to load are needed."""
    slow = (
        "asyncio",
        "email",
        "huggingface_hub",
        "importlib.metadata",
        "onnxruntime",
        "rich",
        "ssl",
        "tokenizers",
        "torch",
    )
    code = f"import sys, weft.cli.main, weft.sources.find; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
