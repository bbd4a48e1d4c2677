"""``weft index``: what comes in, what is done again, what goes, and what an interruption leaves."""

import dataclasses
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from encoders import light_models
from weft import Encoder, Index
from weft.sources.find import Skipped

SIDES = ("query", "document")


def contents(path):
    """Everything that a search could see: texts, metadata and vectors by id."""
    with Index.open(path) as index:
        assert index.check().sound
        return {name: (index.get(name), index.vectors(name).values.tobytes()) for name in index.matching('@id != ""')}


def counts(out):
    names = ("added", "updated", "unchanged", "removed", "passages")
    found = json.loads(out)
    return tuple(found[name] for name in names)


@pytest.fixture
def index(run):
    def index(*arguments, code=0):
        got, out, err = run("index", "notes", "-o", "n.weft", "--json", *arguments)
        assert got == code, err
        return counts(out)

    return index


@pytest.fixture
def never_encodes(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nothing changed, so nothing is to be encoded")

    return lambda: monkeypatch.setattr(Encoder, "encode_document", refuse)


class TestFirstTime:
    def test_summary(self, notes, model, run):
        (notes / "empty.txt").touch()
        (notes / "photo.jpg").write_bytes(b"\xff\xd8")
        code, out, err = run("index", "notes", "-o", "n.weft", "-m", model)
        assert code == 0
        assert out == "n.weft: 3 added, 0 updated, 0 unchanged, 0 removed, 2 skipped (5 passages written)\n"
        assert err.splitlines() == [
            "weft: skipped notes/empty.txt: empty",
            "weft: skipped 1 file of no known kind (1 .jpg)",
        ]

    def test_passages_are_ranges_of_the_file(self, indexed, notes):
        text = (notes / "mars.txt").read_text()
        found = [d for d, _ in contents(indexed).values() if d.metadata.get("parent") == "notes/mars.txt"]
        covered = set()
        for passage in found:
            start, stop = passage.metadata["start"], passage.metadata["stop"]
            assert passage.text == text[start:stop]
            assert len(light_models.TOKENIZER.encode(passage.text).ids) <= light_models.SETTINGS.document.length
            covered |= set(range(start, stop))
        assert covered == set(range(len(text)))
        assert sorted(passage.id for passage in found) == [f"notes/mars.txt##{n}" for n in range(len(found))]
        assert len(found) > 1

    def test_a_very_long_file(self, notes, model, run, monkeypatch):
        monkeypatch.setattr("weft.ingest.passages.SECTION", 100)
        text = "the quick fox jumps.\n\n" * 40 + "x" * 250
        (notes / "long.txt").write_text(text)
        assert run("index", "notes/long.txt", "-o", "n.weft", "-m", model)[0] == 0
        found = sorted((d.metadata["start"], d.metadata["stop"], d.text) for d, _ in contents("n.weft").values())
        reached = 0
        for start, stop, passage in found:
            assert start <= reached
            assert passage == text[start:stop]
            reached = max(reached, stop)
        assert reached == len(text)
        assert {f"notes/long.txt##{n}" for n in range(len(found))} == set(contents("n.weft"))

    def test_short_files_keep_their_path_as_id(self, indexed):
        document, vectors = contents(indexed)["notes/sub/sky.md"]
        assert document.metadata["title"] == "Sky"
        assert document.metadata["path"] == "notes/sub/sky.md"
        want = light_models.answer(document.text, "document")["values"]
        np.testing.assert_allclose(np.frombuffer(vectors, np.float16).reshape(want.shape), want, atol=2e-3)

    def test_settings(self, notes, model, run):
        assert run("index", "notes", "-o", "n.weft", "-m", model, "--bits", 4, "--beta-d", 0.5)[0] == 0
        info = json.loads(run("info", "n.weft", "--json")[1])
        assert (info["bits"], info["beta_d"], info["model"]) == (4, 0.5, model)
        assert info["encoder_fingerprint"] == light_models.SETTINGS.fingerprint

    def test_keep_is_a_setting_for_good(self, notes, model, run):
        assert run("index", "notes", "-o", "n.weft", "-m", model, "--keep", 0.5)[0] == 0
        info = json.loads(run("info", "n.weft", "--json")[1])
        assert (info["keep"], info["beta_d"]) == (0.5, None)
        assert "keep 0.5" in run("info", "n.weft")[1]
        whole = run("index", "notes", "-o", "w.weft", "-m", model)
        assert whole[0] == 0
        assert info["tokens"] < json.loads(run("info", "w.weft", "--json")[1])["tokens"]
        (notes / "more.txt").write_text("the quick brown fox jumps over the lazy dog and the red planet")
        assert run("index", "notes", "-o", "n.weft")[0] == 0
        code, _, said = run("index", "notes", "-o", "n.weft", "--keep", 0.2)
        assert (code, said) == (1, "weft: n.weft was made with --keep 0.5, not 0.2: that cannot be changed\n")
        code, _, said = run("index", "notes", "-o", "w.weft", "--keep", 0.2)
        assert (code, said) == (1, "weft: w.weft was made without --keep, not with 0.2: that cannot be changed\n")

    @pytest.mark.parametrize("keep", [0, -0.2, 1.5, "nan"])
    def test_keep_out_of_range(self, notes, model, run, keep):
        code, out, said = run("index", "notes", "-o", "n.weft", "-m", model, "--keep", keep)
        assert (code, out) == (1, "")
        assert "keep" in said
        assert "a number in (0, 1]" in said
        assert said.count("\n") == 1
        assert not Path("n.weft").exists()

    def test_pages_of_a_pdf(self, notes, model, run):
        pytest.importorskip("pypdf", reason="writes the file")
        pytest.importorskip("pypdfium2", reason="needs the files extra: pip install 'weft-search[files]'")
        from sources.made_files import pdf

        first, second = "the quick brown fox", "the sky is blue. " * 4
        (notes / "a.pdf").write_bytes(pdf(first, second))
        assert run("index", "notes/a.pdf", "-o", "n.weft", "-m", model)[0] == 0
        found = [d.metadata for d, _ in contents("n.weft").values()]
        assert [m["page"] for m in found] == [1 if m["start"] < len(first) else 2 for m in found]
        assert {m["page"] for m in found} == {1, 2}

    def test_test_collections_stay_whole(self, beir_folder, model, run, tmp_path):
        out = tmp_path / "b.weft"
        code, _, err = run("index", beir_folder, "-o", out, "-m", model)
        assert code == 0
        assert "63 documents cut to the model's length; --split keeps all" in err
        assert set(contents(out)) == {f"d{i}" for i in range(63)}
        assert counts(run("index", beir_folder, "-o", out, "--split", "--json")[1])[1] == 63
        assert "d0##0" in contents(out)

    def test_rows_and_fields(self, notes, model, run):
        (notes / "rows.csv").write_text("key,words,year\nk1,the blue sky,2020\nk2,the red fox,2021\n")
        options = ["--id-field", "key", "--text-field", "words", "--metadata-fields", "year"]
        assert run("index", "notes/rows.csv", "-o", "r.weft", "-m", model, *options)[0] == 0
        document, _ = contents("r.weft")["notes/rows.csv:k1"]
        assert document.metadata["year"] == 2020
        code, _, err = run("index", "notes/rows.csv", "-o", "s.weft", "-m", model)
        assert code == 1
        assert "no text field among key, words, year: name it with --text-field" in err

    def test_stdin(self, notes, model, run, monkeypatch):
        def typed(data):
            stream = io.TextIOWrapper(io.BytesIO(data))
            monkeypatch.setattr(sys, "stdin", stream)
            return run("index", "-", "-o", "s.weft", "-m", model, "--json", "--sync")

        assert counts(typed(b"the sky\nthe dog\n")[1]) == (2, 0, 0, 0, 2)
        assert counts(typed(b"the dog\nthe fox\n")[1]) == (1, 0, 1, 1, 1)
        assert {d.text for d, _ in contents("s.weft").values()} == {"the dog", "the fox"}
        assert typed(b"\n")[0] == 1
        assert len(contents("s.weft")) == 2  # an empty pipe does not empty the index


def test_the_model_of_the_package_is_the_default(notes, model, run, monkeypatch):
    monkeypatch.setattr("weft.encoders.loading.BUNDLED", Path(model))
    assert run("index", "notes", "-o", "n.weft")[0] == 0
    for arguments in (["search", "n.weft", "sky"], ["explain", "n.weft", "sky"], ["add", "n.weft", "a fox"]):
        code, _, err = run(*arguments)
        assert code == 0, err
    assert json.loads(run("info", "n.weft", "--json")[1])["model"] == ""


class TestAgain:
    def test_nothing_changed(self, indexed, index, never_encodes):
        before = contents(indexed)
        never_encodes()
        assert index() == (0, 0, 3, 0, 0)
        assert index("--sync") == (0, 0, 3, 0, 0)
        assert contents(indexed) == before

    def test_changed_and_new(self, indexed, notes, index):
        before = contents(indexed)
        (notes / "mars.txt").write_text("why does rain fall")  # from several passages to one
        (notes / "new.txt").write_text("the brown dog")
        assert index() == (1, 1, 2, 0, 2)
        after = contents(indexed)
        assert after["notes/mars.txt"][0].text == "why does rain fall"
        assert not [name for name in after if name.startswith("notes/mars.txt#")]
        for name in ("notes/dog.txt", "notes/sub/sky.md"):
            assert after[name] == before[name]
        (notes / "mars.txt").write_text("the sky is blue. " * 4)  # and back to several
        assert index()[1] == 1
        assert "notes/mars.txt" not in contents(indexed)
        assert "notes/mars.txt##1" in contents(indexed)

    def test_gone(self, indexed, notes, index):
        (notes / "mars.txt").unlink()
        assert index() == (0, 0, 2, 0, 0)
        assert "notes/mars.txt##0" in contents(indexed)
        assert index("--sync") == (0, 0, 2, 1, 0)
        assert set(contents(indexed)) == {"notes/dog.txt", "notes/sub/sky.md"}

    def test_sync_keeps_to_the_paths_given(self, indexed, notes, run):
        assert run("index", "notes/sub", "-o", "n.weft", "--sync")[0] == 0
        assert "notes/dog.txt" in contents(indexed)
        assert run("index", "notes", "-o", "n.weft", "--sync", "--exclude", "sub")[0] == 0
        assert "notes/sub/sky.md" not in contents(indexed)

    def test_sync_keeps_what_it_could_not_read(self, indexed, notes, index):
        (notes / "dog.txt").write_bytes(bytes(256))
        assert index("--sync") == (0, 0, 2, 0, 0)
        assert "notes/dog.txt" in contents(indexed)

    def test_sync_is_not_misled_by_fields_of_the_user(self, notes, model, index):
        (notes / "rows.jsonl").write_text('{"id": "a", "text": "the sky", "parent": "b", "weft": 1, "path": "x"}\n')
        index("-m", model)
        assert index("--sync") == (0, 0, 4, 0, 0)
        assert contents("n.weft")["notes/rows.jsonl:a"][0].metadata["parent"] == "b"

    def test_a_deleted_passage_comes_again(self, indexed, run, index):
        before = contents(indexed)
        assert run("delete", "n.weft", "notes/mars.txt##1")[0] == 0
        assert index() == (0, 1, 2, 0, 1)
        assert contents(indexed) == before

    def test_another_length_splits_anew(self, indexed, index):
        before = set(contents(indexed))
        assert index("--length", 8)[1] == 3
        assert len(contents(indexed)) > len(before)

    def test_a_moved_model(self, indexed, notes, run, model, tmp_path):
        with Index.open(indexed) as opened:
            opened.remember_model(str(tmp_path / "gone"))
        code, _, err = run("index", "notes", "-o", "n.weft")
        assert code == 1
        assert "gone" in err
        assert "--model" in err
        assert run("index", "notes", "-o", "n.weft", "-m", model)[0] == 0
        assert run("index", "notes", "-o", "n.weft")[0] == 0

    def test_many_small_updates_do_not_pile_up(self, indexed, notes, index, run):
        for n in range(12):
            (notes / "dog.txt").write_text("the lazy dog " * (n + 1))
            index()
        assert json.loads(run("info", "n.weft", "--json")[1])["segments"] <= 8


class TestInterrupted:
    @pytest.fixture
    def many(self, notes):
        for n in range(100):
            (notes / f"f{n:03}.txt").write_text(f"fox {n} jumps over the dog")

    def test_ctrl_c_between_batches(self, notes, many, model, run, monkeypatch):
        run("index", "notes", "-o", "whole.weft", "-m", model)
        with monkeypatch.context() as patch:
            real, calls = Encoder.encode_document, []

            def encode(self, *args, **options):
                calls.append(args)
                if len(calls) == 3:
                    raise KeyboardInterrupt
                return real(self, *args, **options)

            patch.setattr(Encoder, "encode_document", encode)
            code, out, err = run("index", "notes", "-o", "n.weft", "-m", model)
        assert (code, out) == (130, "")
        kept = len(contents("n.weft"))
        assert err.splitlines() == [
            f"weft: interrupted: n.weft is sound and holds {kept} passages; the same command continues from there"
        ]
        assert 0 < kept < len(contents("whole.weft"))
        code, out, _ = run("index", "notes", "-o", "n.weft", "--json")
        assert code == 0
        added, _, unchanged, _, _ = counts(out)
        assert added
        assert unchanged
        assert contents("n.weft") == contents("whole.weft")

    def test_in_the_middle_of_a_long_document(self, notes, model, run, monkeypatch):
        monkeypatch.setattr("weft.ingest.updating.MOST_PASSAGES", 8)
        (notes / "mars.txt").write_text(" ".join(f"fox {n} jumps over the dog." for n in range(60)))
        run("index", "notes", "-o", "whole.weft", "-m", model)
        with monkeypatch.context() as patch:
            real, calls = Index.add, []

            def add(self, *args, **options):
                calls.append(args)
                if len(calls) == 3:
                    raise KeyboardInterrupt
                return real(self, *args, **options)

            patch.setattr(Index, "add", add)
            assert run("index", "notes", "-o", "n.weft", "-m", model)[0] == 130
        kept = len(contents("n.weft"))
        assert kept == 16
        passages = counts(run("index", "notes", "-o", "n.weft", "--json")[1])[4]
        assert kept + passages == len(contents("whole.weft"))
        assert contents("n.weft") == contents("whole.weft")

    def test_between_the_new_passages_and_the_old(self, indexed, notes, index, run, monkeypatch, never_encodes):
        (notes / "mars.txt").write_text("why does rain fall")
        with monkeypatch.context() as patch:

            def stop(*_):
                raise KeyboardInterrupt

            patch.setattr(Index, "delete", stop)
            assert run("index", "notes", "-o", "n.weft")[0] == 130
        assert {"notes/mars.txt", "notes/mars.txt##0"} <= set(contents(indexed))
        never_encodes()
        index()
        assert set(contents(indexed)) == {"notes/mars.txt", "notes/dog.txt", "notes/sub/sky.md"}


class TestMistakes:
    @pytest.fixture
    def fails(self, run):
        def fails(*arguments):
            code, out, err = run("index", *arguments)
            assert (code, out) == (1, "")
            assert err.startswith("weft: ")
            assert err.count("\n") == 1
            return err

        return fails

    def test_nothing_to_index(self, notes, model, fails, tmp_path):
        assert "no such file or folder: 'nowhere'" in fails("nowhere", "-o", "x.weft", "-m", model)
        (tmp_path / "void").mkdir()
        assert "nothing to index in void: there is no text" in fails("void", "-o", "x.weft", "-m", model)
        (tmp_path / "void" / "a.txt").write_bytes(bytes(9))
        (tmp_path / "void" / "b.jpg").write_bytes(bytes(9))
        said = fails("void", "-o", "x.weft", "-m", model)
        assert "1 file of no known kind (1 .jpg)" in said
        assert "void/a.txt: binary, not text" in said
        assert not (tmp_path / "x.weft").exists()

    def test_not_an_index(self, notes, model, fails, tmp_path):
        (tmp_path / "file.weft").write_text("x")
        assert "is not an index: an index is a folder" in fails("notes", "-o", "file.weft", "-m", model)
        assert "no index at notes" in fails("notes", "-o", "notes", "-m", model)

    def test_no_model(self, notes, fails, tmp_path):
        assert "there is no folder" in fails("notes", "-o", "x.weft", "-m", "./nothing")
        assert not (tmp_path / "x.weft").exists()

    def test_no_model_in_the_package(self, indexed, notes, fails, run, tmp_path, monkeypatch):
        monkeypatch.setattr("weft.encoders.loading.BUNDLED", tmp_path / "none")
        said = "this installation of weft comes without a model: name one, a folder or a checkpoint (--model)"
        assert fails("notes", "-o", "x.weft") == f"weft: {said}\n"
        assert not (tmp_path / "x.weft").exists()
        with Index.open(indexed) as opened:
            opened.remember_model("")
        code, out, err = run("search", "n.weft", "x")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert said in err

    def test_locked(self, indexed, fails):
        with Index.open(indexed) as other:
            other.lock()
            assert "is being written by another writer" in fails("notes", "-o", "n.weft")

    def test_another_model(self, indexed, fails, tmp_path):
        settings = dataclasses.replace(light_models.SETTINGS, name="other", fingerprint="of another")
        other = light_models.write(tmp_path / "other", settings)
        assert "was made with the model" in fails("notes", "-o", "n.weft", "-m", other)

    def test_another_dimension(self, notes, model, fails, tmp_path):
        Index.create(tmp_path / "d.weft", dim=5).close()
        assert "tiny has 6 dimensions, not 5" in fails("notes", "-o", "d.weft", "-m", model)

    def test_settings_that_cannot_change(self, indexed, fails):
        assert "was made with --bits 8, not 4" in fails("notes", "-o", "n.weft", "--bits", "4")

    def test_find_by_is_a_setting_for_good(self, notes, model, run):
        assert run("index", "notes", "-o", "f.weft", "-m", model, "--find-by", 0.4)[0] == 0
        assert run("index", "notes", "-o", "w.weft", "-m", model)[0] == 0
        found, whole = (json.loads(run("info", name, "--json")[1]) for name in ("f.weft", "w.weft"))
        assert (found["find_by"], whole["find_by"]) == (0.4, None)
        assert found["tokens"] == whole["tokens"]  # all of them rank
        assert "find_by 0.4" in run("info", "f.weft")[1]
        code, _, said = run("index", "notes", "-o", "f.weft", "--find-by", 0.2)
        assert (code, said) == (1, "weft: f.weft was made with --find-by 0.4, not 0.2: that cannot be changed\n")

    def test_bad_bits(self, notes, model, fails, tmp_path):
        assert "8, 4 or 2" in fails("notes", "-o", "x.weft", "-m", model, "--bits", "3")
        assert not (tmp_path / "x.weft").exists()

    def test_a_length_that_the_model_cannot_read(self, notes, model, fails):
        assert "'length'" in fails("notes", "-o", "x.weft", "-m", model, "--length", "13")

    def test_pruning_without_saliences(self, notes, fails, tmp_path):
        sides = {name: dataclasses.replace(getattr(light_models.SETTINGS, name), gate=None) for name in SIDES}
        plain = light_models.write(tmp_path / "plain", dataclasses.replace(light_models.SETTINGS, **sides))
        assert "tiny has no saliences" in fails("notes", "-o", "x.weft", "-m", plain, "--beta-d", "0.5")
        assert "find_by must be left out: tiny has no saliences" in fails(
            "notes", "-o", "x.weft", "-m", plain, "--find-by", "0.5"
        )
        assert not (tmp_path / "x.weft").exists()

    def test_a_named_file_that_cannot_be_read(self, notes, model, run):
        (notes / "bad.txt").write_bytes(bytes(9))
        code, out, err = run("index", "notes/bad.txt", "notes/dog.txt", "-o", "n.weft", "-m", model)
        assert code == 1
        assert "1 added" in out
        assert err == "weft: skipped notes/bad.txt: binary, not text\n"

    def test_one_id_twice(self, notes, model, run):
        (notes / "rows.jsonl").write_text('{"id": "a", "text": "the sky"}\n{"id": "a", "text": "the dog"}\n')
        code, _, err = run("index", "notes", "-o", "n.weft", "-m", model)
        assert code == 1
        reason = "the id 'notes/rows.jsonl:a' is that of notes/rows.jsonl, line 1 too"
        assert str(Skipped("notes/rows.jsonl", reason, line=2)) in err
        assert contents("n.weft")["notes/rows.jsonl:a"][0].text == "the sky"
