"""``weft add, delete, get, info, check, compact``, and what each says when it cannot."""

import io
import json
import sys

import pytest

from weft import Encoder, Index


def texts(run, *ids):
    code, out, err = run("get", "n.weft", *ids, "--json")
    assert code == 0, err
    return {row["id"]: row["text"] for row in map(json.loads, out.splitlines())}


class TestAdd:
    def test_a_text(self, indexed, run):
        code, out, err = run("add", "n.weft", "the brown fox", "--id", "fox", "--metadata", '{"year": 2020}')
        assert (code, out) == (0, "fox\n")
        assert err.startswith("n.weft: 1 added")
        (row,) = map(json.loads, run("get", "n.weft", "fox", "--json")[1].splitlines())
        assert (row["text"], row["metadata"]["year"]) == ("the brown fox", 2020)
        again = json.loads(run("add", "n.weft", "the red fox", "--id", "fox", "--json")[1])
        assert (again["added"], again["updated"], again["ids"]) == (0, 1, ["fox"])
        assert texts(run, "fox") == {"fox": "the red fox"}
        unchanged = json.loads(run("add", "n.weft", "the red fox", "--id", "fox", "--json")[1])
        assert (unchanged["updated"], unchanged["unchanged"]) == (0, 1)

    def test_an_id_is_made_from_the_text(self, indexed, run):
        (first, second, third) = (run("add", "n.weft", text)[1] for text in ("a fox", "a dog", "a fox"))
        assert first.startswith("text:")
        assert first != second
        assert third == ""  # it is there already

    def test_sync_leaves_added_texts_alone(self, indexed, run):
        run("add", "n.weft", "a fox", "--id", "fox")
        assert run("index", "notes", ".", "-o", "n.weft", "--sync")[0] == 0
        assert texts(run, "fox") == {"fox": "a fox"}

    def test_stdin(self, indexed, run, monkeypatch):
        rows = b'{"id": "x", "text": "the sky"}\nnot json\n{"id": "y", "text": "the dog"}\n'
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rows)))
        code, out, err = run("add", "n.weft")
        assert (code, out) == (0, "x\ny\n")
        assert "skipped -, line 2: not JSON" in err

    def test_long_texts_are_split(self, indexed, run):
        assert run("add", "n.weft", "the sky is blue. " * 6, "--id", "long")[0] == 0
        assert list(texts(run, "long"))[:2] == ["long##0", "long##1"]

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["x", "--metadata", "[1]"], "a JSON object"),
            (["x", "--metadata", "{"], "a JSON object"),
            (["x", "--metadata", '{"a":' * 990 + "1" + "}" * 990], "a JSON object"),
            ([" "], "the text is empty"),
            (["--id", "a"], "given with a TEXT"),
        ],
    )
    def test_mistakes(self, indexed, run, arguments, said):
        code, _, err = run("add", "n.weft", *arguments)
        assert code == 1
        assert said in err
        assert err.count("\n") == 1


class TestGetAndDelete:
    def test_get(self, indexed, run):
        code, out, _ = run("get", "n.weft", "notes/sub/sky.md")
        assert code == 0
        assert out == ("notes/sub/sky.md\n  path: notes/sub/sky.md\n  title: Sky\n\n# Sky\n\nthe sky is blue.\n\n")
        assert list(texts(run, "notes/mars.txt")) == [f"notes/mars.txt##{n}" for n in range(3)]

    def test_get_says_what_is_not_there(self, indexed, run):
        code, out, err = run("get", "n.weft", "notes/dog.txt", "nothing")
        assert code == 1
        assert "the lazy dog" in out
        assert err == "weft: no document 'nothing' in n.weft\n"

    def test_any_path_to_a_file_names_its_document(self, indexed, run):
        for name in ("./notes/dog.txt", "notes/sub/../dog.txt", str(indexed.parent / "notes" / "dog.txt")):
            assert run("get", "n.weft", name)[1].startswith("notes/dog.txt\n"), name
        assert run("explain", "n.weft", "dog", "--doc", "./notes/dog.txt", "--json")[0] == 0
        assert run("delete", "n.weft", "./notes/mars.txt")[1] == "n.weft: 3 deleted\n"

    def test_names_that_are_near_are_suggested(self, indexed, run):
        said = "weft: no document 'sky.md' in n.weft: did you mean 'notes/sub/sky.md'?\n"
        assert run("get", "n.weft", "sky.md")[2] == said
        assert "did you mean 'notes/dog.txt'?" in run("delete", "n.weft", "notes/dgo.txt")[2]
        assert "did you mean 'notes/mars.txt'?" in run("explain", "n.weft", "dog", "--doc", "notes/mras.txt")[2]

    def test_delete_takes_all_passages(self, indexed, run):
        code, out, _ = run("delete", "n.weft", "notes/mars.txt")
        assert (code, out) == (0, "n.weft: 3 deleted\n")
        assert run("get", "n.weft", "notes/mars.txt##1")[0] == 1

    def test_delete_is_all_or_nothing(self, indexed, run):
        code, _, err = run("delete", "n.weft", "notes/dog.txt", "nothing")
        assert code == 1
        assert err == "weft: nothing was deleted: no document 'nothing' in n.weft\n"
        assert run("get", "n.weft", "notes/dog.txt")[0] == 0

    def test_delete_by_filter(self, indexed, run):
        where = 'path startswith "notes/sub"'
        code, out, err = run("delete", "n.weft", "--filter", where, "--dry-run")
        assert (code, out, err) == (0, "notes/sub/sky.md\n", "n.weft: 1 would be deleted\n")
        assert json.loads(run("delete", "n.weft", "--filter", where, "--json")[1])["deleted"] == 1
        assert run("get", "n.weft", "notes/sub/sky.md")[0] == 1
        assert run("delete", "n.weft", "--filter", "year >")[0] == 1
        assert run("delete", "n.weft")[0] == 1


class TestLookingAfter:
    def test_info(self, indexed, run, model):
        code, out, _ = run("info", "n.weft")
        assert code == 0
        assert " passages  5\n" in out
        assert f"    model  {model}\n" in out
        found = json.loads(run("info", "n.weft", "--json")[1])
        with Index.open(indexed) as index:
            assert found == {**index.info(), "path": "n.weft", "bytes": found["bytes"], "other_languages": {}}

    def test_check(self, indexed, run):
        assert run("check", "n.weft") == (0, "n.weft: sound, 5 passages\n", "")
        assert json.loads(run("check", "n.weft", "--json")[1])["sound"] is True
        (segment,) = (indexed / "segments").iterdir()
        data = bytearray(segment.read_bytes())
        data[-40] ^= 1
        segment.write_bytes(data)
        code, out, err = run("check", "n.weft")
        assert (code, out) == (1, "")
        assert segment.name in err
        assert "weft check" not in err
        assert err.endswith("weft: weft repair n.weft keeps what is sound, and names what is gone\n")
        code, out, _ = run("check", "n.weft", "--json")
        assert code == 1
        assert segment.name in json.loads(out)["problems"][0]

    def test_compact(self, indexed, run):
        run("add", "n.weft", "a fox", "--id", "fox")
        run("delete", "n.weft", "notes/dog.txt")
        code, out, _ = run("compact", "n.weft", "--json")
        after = json.loads(out)["after"]
        assert code == 0
        assert (after["documents"], after["segments"], after["deleted"]) == (5, 1, 0)
        assert run("compact", "n.weft")[1].startswith("n.weft: 1 → 1 segments, ")

    @pytest.mark.parametrize(
        "arguments",
        [["info"], ["check"], ["compact"], ["get", "notes/dog.txt"], ["delete", "notes/dog.txt"], ["adapt", "--reset"]],
    )
    def test_without_the_model(self, indexed, run, monkeypatch, arguments):
        def refuse(*_, **__):
            raise AssertionError("no text is to be encoded, so no model is to be loaded")

        monkeypatch.setattr(Encoder, "load", refuse)
        verb, *rest = arguments
        assert run(verb, "n.weft", *rest)[0] == 0


VERBS = [["add", "x"], ["delete", "x"], ["get", "x"], ["info"], ["check"], ["compact"]]


class TestMistakes:
    @pytest.mark.parametrize(("verb", "rest"), [(verb, rest) for verb, *rest in VERBS])
    def test_no_index(self, run, verb, rest, tmp_path):
        (tmp_path / "folder").mkdir()
        (tmp_path / "file").write_text("x")
        for name, said in (
            ("nothing", "no such index: "),
            ("folder", "there is no catalogue.sqlite in it"),
            ("file", "is not an index: an index is a folder, this is a file"),
        ):
            code, out, err = run(verb, tmp_path / name, *rest)
            assert (code, out) == (1, "")
            assert said in err
            assert err.startswith("weft: ")
            assert err.count("\n") == 1

    @pytest.mark.parametrize(
        "arguments", [["add", "n.weft", "x"], ["delete", "n.weft", "notes/dog.txt"], ["compact", "n.weft"]]
    )
    def test_locked(self, indexed, run, arguments):
        with Index.open(indexed) as other:
            other.lock()
            code, _, err = run(*arguments)
        assert code == 1
        assert "is being written by another writer" in err
        assert err.count("\n") == 1
        assert run("check", "n.weft")[0] == 0
