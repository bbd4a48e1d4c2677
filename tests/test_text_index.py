"""`TextIndex`: texts in, answers and reasons out, by a tiny light model; no torch."""

import dataclasses

import pytest

import weft
from encoders import light_models
from weft.errors import CheckpointError, DataError, IndexFormatError, InvalidParameterError, NotAnIndexError
from weft.search.lexical import search_lexical
from weft.sources.find import Selection

NOTES = {
    "mars": "the red planet mars is known as the red planet. why does rain fall? the quick fox jumps over it.",
    "sky": "the sky is blue.",
    "dog": "the lazy dog",
}
QUERY = "red planet"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return light_models.write(tmp_path_factory.mktemp("light") / "tiny")


@pytest.fixture
def notes(tmp_path, model):
    with weft.TextIndex.open(tmp_path / "n.weft", create=True, model=model) as index:
        assert index.add(NOTES).added == 3
        yield index


def test_search_is_what_index_finds(notes, model):
    tokens = weft.Encoder.load(model).encode_query([QUERY])
    (expected,) = notes.index.search(tokens, 3, alignment="top-k:2")
    found = notes.search(QUERY, 3, alignment="top-k:2")
    assert [match.id for match in found] == list(expected.ids)
    assert [match.score for match in found] == pytest.approx(expected.scores.tolist())
    assert all(match.text == notes.index.get(match.id).text for match in found)
    assert not any("weft" in match.metadata for match in found)  # our own notes
    assert notes.search_many([QUERY, "dog"], 3, alignment="top-k:2")[0] == found
    assert notes.search_many([]) == []


def test_filter_and_hybrid(notes):
    notes.add([weft.Document("fox", "the quick brown fox", {"year": 2020})])
    assert [match.id for match in notes.search(QUERY, filter="year == 2020")] == ["fox"]
    lexical = search_lexical(notes.index, "brown")
    assert lexical.ids == ("fox",)
    assert "fox" in [match.id for match in notes.search("brown", hybrid="rrf")]


def test_add_replaces_what_differs_and_leaves_the_rest(notes, monkeypatch):
    summary = notes.add({"sky": "the sky is red", "new": "the brown dog"})
    assert (summary.added, summary.updated, summary.ids) == (1, 1, ["sky", "new"])

    def refuse(*_, **__):
        raise AssertionError("nothing changed, so nothing is to be encoded")

    monkeypatch.setattr(weft.Encoder, "encode_document", refuse)
    assert notes.add({"sky": "the sky is red"}).unchanged == 1


def test_texts_alone_are_named_by_their_content(notes):
    (name,) = notes.add(["a fox"]).ids
    assert notes.add(iter(["a fox", "a dog"])).added == 1
    assert notes.index.get(name).text == "a fox"


def test_long_texts_are_split_and_deleted_together(notes):
    passages = [match for match in notes.search(QUERY) if match.id.startswith("mars#")]
    assert len(passages) > 1
    assert passages[0].metadata["parent"] == "mars"
    before = len(notes)
    assert notes.delete("mars") == len(passages) == before - len(notes)
    assert notes.delete(["mars", "nothing"]) == 0
    notes.add({"mars": NOTES["mars"]}, split=False)
    assert "mars" in notes.index


def test_passages_have_names_that_no_document_can_have(notes):
    # ``page#0`` is a fine id, of a URL's fragment say: a long ``page`` must not write its passages over it.
    notes.add({"page#0": "the lazy dog", "page#1": "the sky"})
    notes.add([weft.Document("page", NOTES["mars"]), weft.Document("page#2", "a fox", {"parent": "page"})])
    assert [notes.get(f"page#{n}").text for n in range(3)] == ["the lazy dog", "the sky", "a fox"]
    assert [passage.id for passage in notes.family("page")] == ["page##0", "page##1", "page##2"]
    assert notes.delete("page") == 3
    assert all(f"page#{n}" in notes for n in range(3))
    with pytest.raises(InvalidParameterError, match=r"how passages are named\. Got 'page##0' instead"):
        notes.add({"page##0": "the lazy dog"})


def test_many_documents_of_which_one_is_refused_change_nothing(notes):
    before = list(notes)
    many = [weft.Document(f"n{number}", "a fox") for number in range(100)]
    with pytest.raises(InvalidParameterError, match="how passages are named"):
        notes.add([*many, weft.Document("page##0", "a fox")])
    assert list(notes) == before


def test_passages_of_older_indexes_are_kept_and_replaced(notes):
    def note(name, of):
        return {"weft": {"source": "", "id": name, "hash": "old", "of": of}}

    older = [weft.Document(f"page#{n}", "a fox", {"parent": "page", **note("page", 2)}) for n in range(2)]
    notes.index.add(older, notes.encoder.encode_document([d.text for d in older]))
    assert [passage.id for passage in notes.family("page")] == ["page#0", "page#1"]
    refused = notes.add({"page#0": "the lazy dog"})
    assert (refused.added, refused.updated) == (0, 0)
    assert "is that of a passage of 'page'" in refused.skipped[0].reason
    assert notes.get("page#0").text == "a fox"
    assert notes.add({"page": NOTES["mars"]}).updated == 1
    assert [passage.id for passage in notes.family("page")] == ["page##0", "page##1", "page##2"]
    assert notes.add({"page#0": "the lazy dog"}).added == 1


def test_files(notes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("the quick fox")
    (folder / "b.md").write_text("# Dog\n\nthe lazy dog")
    (folder / "c.jpg").write_bytes(b"\xff\xd8")
    summary = notes.add_files("folder", selection=Selection(exclude=("*.txt",)))
    assert (summary.added, [skipped.path for skipped in summary.skipped]) == (1, ["folder/c.jpg"])
    assert notes.add_files(["folder"]).added == 1
    (folder / "a.txt").unlink()
    assert notes.add_files("folder", sync=True).removed == 1
    assert "sky" in notes.index  # of no file


def test_answers_and_what_to_show_of_them(notes):
    with notes.view():
        (answer,) = notes.answers([QUERY, "dog"][:1], 3, hybrid="rrf")
        name = answer.ranking.ids[0]
        shown = notes.snippet(answer, notes.get(name))
        assert max(fragment.strength for fragment in shown) == 1
        why = notes.explain_answer(answer, name, 1)
        assert (why.id, why.rank) == (name, 1)
    notes.remember_alignment("top-k:2")
    assert notes.index.alignment == "top-k:2"
    notes.remember_alignment(None)
    assert notes.index.alignment == "sum-of-max"


class TestExplain:
    @pytest.mark.parametrize("alignment", ["sum-of-max", "top-k:2", "xtr:3"])
    def test_contributions_sum_to_the_score_found(self, notes, alignment):
        found = notes.search(QUERY, 2, alignment=alignment)
        explained = notes.explain(QUERY, 2, alignment=alignment)
        assert [(why.id, why.rank) for why in explained] == [(match.id, rank) for rank, match in enumerate(found, 1)]
        for why, match in zip(explained, found, strict=True):
            assert why.score == pytest.approx(match.score)
            assert sum(pair.contribution for pair in why.pairs) == pytest.approx(match.score, rel=1e-4)

    def test_one_document(self, notes):
        (why,) = notes.explain(QUERY, id="dog", filter='@id != "dog"')
        assert (why.id, why.rank) == ("dog", None)
        assert notes.explain(QUERY, 9, id="mars")[0].id.startswith("mars#")
        with pytest.raises(DataError, match="no document 'nothing'"):
            notes.explain(QUERY, id="nothing")

    def test_it_prints(self, notes):
        (why,) = notes.explain(QUERY)
        said = str(why)
        assert f"{why.score:.4f}" in said
        assert "the score" in said
        assert "\x1b" not in said


class TestOpening:
    def test_the_model_is_remembered(self, notes, tmp_path):
        notes.close()
        with weft.TextIndex.open(tmp_path / "n.weft") as again:
            assert again.encoder.name == "tiny"
            assert repr(again).endswith("n.weft', 5 passages, tiny)")

    def test_the_model_is_loaded_when_it_is_needed(self, notes, tmp_path, model, monkeypatch):
        notes.close()
        loaded, real = [], weft.Encoder.load

        def load(*arguments, **options):
            loaded.append(arguments)
            return real(*arguments, **options)

        monkeypatch.setattr(weft.Encoder, "load", load)
        with weft.TextIndex.open(tmp_path / "n.weft", lock=True) as again:
            assert repr(again) == f"TextIndex({str(tmp_path / 'n.weft')!r}, 5 passages, {model})"
            assert (again.get("sky").text, again.get("nothing")) == (NOTES["sky"], None)
            assert [passage.id for passage in again.family("mars")] == ["mars##0", "mars##1", "mars##2"]
            assert sorted(again.matching('@id in ["sky", "dog"]')) == ["dog", "sky"]
            assert again.check().sound
            assert "sky" in again
            assert again.delete("sky") == 1
            again.compact()
            assert again.info()["documents"] == 4
            assert again.search_many([]) == []
            assert not loaded
            assert again.search(QUERY)
            again.add({"sky": NOTES["sky"]})
            assert again.explain(QUERY)
            assert len(loaded) == 1
        with weft.TextIndex.open(tmp_path / "n.weft", model=model):
            assert len(loaded) == 2  # one that is named is tried at once

    def test_another_model(self, notes, tmp_path):
        notes.close()
        settings = dataclasses.replace(light_models.SETTINGS, name="other", fingerprint="of another")
        other = light_models.write(tmp_path / "other", settings)
        with pytest.raises(IndexFormatError, match="other has other vectors"):
            weft.TextIndex.open(tmp_path / "n.weft", model=other)
        with weft.TextIndex.open(tmp_path / "n.weft") as again:
            again.remember_model(other)
            for work in (again.search, again.explain, lambda text: again.add([text])):
                with pytest.raises(IndexFormatError, match="other has other vectors"):
                    work("a text")
            again.remember_model(tmp_path / "gone")
            with pytest.raises(CheckpointError, match=r"the model of the index at .*gone.*\(--model\)"):
                again.search("a text")
            assert len(again) == 5

    def test_mistakes(self, notes, tmp_path, model, monkeypatch):
        with pytest.raises(NotAnIndexError, match="no such index"):
            weft.TextIndex.open(tmp_path / "none")
        (tmp_path / "file").write_text("x")
        with pytest.raises(NotAnIndexError, match="an index is a folder"):
            weft.TextIndex.open(tmp_path / "file", create=True, model=model)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "x").touch()
        with pytest.raises(NotAnIndexError, match=r"there is no catalogue\.sqlite"):
            weft.TextIndex.open(tmp_path / "full", create=True, model=model)
        with weft.Index.create(tmp_path / "d.weft", dim=5) as other, pytest.raises(IndexFormatError, match="6 dim"):
            weft.TextIndex(other, notes.encoder)
        with pytest.raises(DataError, match="the text of 'x' is empty"):
            notes.add({"x": " "})
        with pytest.raises(weft.InvalidParameterError, match="a mapping or an iterable"):
            notes.add("a text")
        with pytest.raises(weft.InvalidParameterError, match="texts or Documents"):
            notes.add([3])

    def test_without_a_model(self, tmp_path, monkeypatch):
        monkeypatch.setattr("weft.encoders.loading.BUNDLED", tmp_path / "none")
        with pytest.raises(CheckpointError, match="comes without a model: name one"):
            weft.TextIndex.open(tmp_path / "x.weft", create=True)
        assert not (tmp_path / "x.weft").exists()

    def test_the_bundled_model_is_the_default(self, tmp_path, model, monkeypatch):
        monkeypatch.setattr("weft.encoders.loading.BUNDLED", model)
        with weft.TextIndex.open(tmp_path / "x.weft", create=True) as index:
            index.add(NOTES)
            assert index.index.model == ""
        with weft.TextIndex.open(tmp_path / "x.weft") as index:
            assert index.search(QUERY)
        assert weft.Encoder.load(model.name).fingerprint == weft.Encoder.load().fingerprint  # it has a name, too
