"""Query towers of a light model: the vectors of oracles in NumPy, one index for all of them, clear refusals."""

import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

from encoders import light_models, tower_models
from weft import Encoder, TextIndex
from weft.cli.main import main
from weft.encoders.graph_tables import embedding_table
from weft.encoders.loading import BUNDLED
from weft.errors import CheckpointError, InvalidParameterError

TEXTS = ["the red planet", "why does rain fall? the quick fox jumps over it, and the lazy dog", "", "mars"]
NOTES = {"mars": "the red planet mars", "sky": "the sky is blue", "dog": "the lazy dog"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tower_models.write(tmp_path_factory.mktemp("towers") / "tiny")


@pytest.fixture
def broken(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "broken")


@pytest.mark.parametrize("kind", ["fast", "static"])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_tower_gives_the_vectors_of_its_oracle(folder, kind, threads):
    encoder = Encoder.load(folder, query=kind)
    found = encoder.encode_query(TEXTS, threads=threads, salience=True, truncation="ignore")
    full = Encoder.load(folder).encode_query(TEXTS, truncation="ignore")
    for i, text in enumerate(TEXTS):
        vectors, s = tower_models.answer(text, kind)
        np.testing.assert_allclose(found[i], vectors, atol=1e-5)
        row = slice(found.offsets[i], found.offsets[i + 1])
        np.testing.assert_allclose(found.salience[row], s, atol=1e-4)  # the gate of MODEL lets all of them through
    assert found.token_ids.tolist() == full.token_ids.tolist()
    assert found.spans.tolist() == full.spans.tolist()
    assert found.truncation.texts.tolist() == [1]


@pytest.mark.parametrize("kind", ["fast", "static"])
def test_documents_the_fingerprint_and_the_index_are_the_models(folder, tmp_path, kind):
    full, tower = Encoder.load(folder), Encoder.load(folder, query=kind)
    assert (full.query, tower.query) == ("full", kind)
    assert repr(f"tiny-{kind}") in repr(tower)
    assert tower.fingerprint == full.fingerprint
    for text in TEXTS:
        np.testing.assert_array_equal(tower.encode_document(text).values, full.encode_document(text).values)
    with TextIndex.open(tmp_path / "notes.weft", create=True, model=folder) as made:
        made.add(NOTES)
    with TextIndex.open(tmp_path / "notes.weft", query=kind) as notes:
        assert notes.encoder.query == kind
        found = {
            match.id: match.score for match in notes.search("the red planet", k=3, alignment="sum-of-max", exact=True)
        }
        query, _ = tower_models.answer("the red planet", kind)
        for name, text in NOTES.items():
            best = (query @ full.encode_document(text).values.T).max(axis=1).sum()
            assert found[name] == pytest.approx(best, abs=0.1)  # 8 bits of the index


@pytest.mark.parametrize("kind", ["fast", "static"])
def test_the_command_line_takes_a_query_encoder(folder, tmp_path, capsys, kind):
    def scores(*options):
        assert main(["search", place, "the red planet", "--tsv", *options]) == 0
        return capsys.readouterr().out

    place = str(tmp_path / "notes.weft")
    with TextIndex.open(place, create=True, model=folder) as made:
        made.add(NOTES)
    assert scores() != scores("--query-encoder", kind) == scores("--query-encoder", kind)
    assert main(["info", place]) == 0
    assert "full, fast, static (--query-encoder)" in capsys.readouterr().out
    assert main(["explain", place, "the red planet", "--doc", "mars", "--query-encoder", kind]) == 0


def refused(folder, kind="fast"):
    with pytest.raises(CheckpointError) as caught:
        Encoder.load(folder, query=kind)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["fast", "static"])
@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"dim": 7}, "its dim is 7 instead of 6"),
        ({"vocabulary": 31}, "its vocabulary is 31 instead of"),
        ({"model": "another"}, "its model is 'another' instead of 'of the tiny model'"),
        ({"kind": "slow"}, "its kind is 'slow'"),
        ({"bytes": 5}, "instead of 5: the copy is not whole"),
        ({"format": 2}, "has format 2; this version of weft reads format 1"),
        ({"colour": "red"}, "does not describe a query tower"),
    ],
)
def test_a_tower_of_something_else_is_refused_in_a_line(broken, kind, change, word):
    tower_models.describe(broken, kind, **change)
    assert word in refused(broken, kind)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"scale": np.full(tower_models.TOKENS, np.nan, np.float32)}, "'scale' has values that are not finite numbers"),
        ({"text": np.full((12, 12), np.inf, np.float16)}, "'text' has values that are not finite numbers"),
        ({"table": np.full((tower_models.TOKENS, 6), np.nan)}, "'table' has values that are not finite numbers"),
        ({"table": tower_models.STATIC["table"][1:]}, "'table' must be of shape"),
        ({"neighbours": None}, "'neighbours' must be of shape (18, 6), and is missing"),
        ({"salient": np.array(["a"] * tower_models.TOKENS)}, "not finite numbers"),
    ],
)
def test_a_static_table_must_be_whole_and_finite(broken, change, word):
    tower_models.write_static(broken, **change)
    assert word in refused(broken, "static")


def test_files_that_are_not_what_they_should_be(broken):
    tower_models.write_fast(broken, width=5)
    assert "does not fit a model 4 wide" in refused(broken)
    (broken / "query-fast.onnx").write_bytes(b"not a graph")
    tower_models.describe(broken, "fast")
    assert "is not a graph" in refused(broken)
    (broken / "query-fast.onnx").unlink()
    assert "query-fast.onnx is missing" in refused(broken)
    (broken / "query-static.npz").write_bytes(b"not arrays")
    tower_models.describe(broken, "static")
    assert "is not a static query tower" in refused(broken, "static")
    (broken / "query-static.json").write_text("[")
    assert "cannot be read" in refused(broken, "static")
    (broken / "query-static.json").unlink()
    assert "has no static query tower (query-static.json); it has 'full', 'fast'" in refused(broken, "static")


def test_a_model_without_towers_and_one_that_fills_queries_up(folder, tmp_path, capsys):
    plain = light_models.write(tmp_path / "plain")
    assert "has no fast query tower" in refused(plain)
    for file in ("query-fast.json", "query-fast.onnx"):
        shutil.copy(folder / file, plain)
    assert "fills queries up" in refused(plain)
    with pytest.raises(InvalidParameterError, match=r"'query' parameter of Encoder\.load must be one of"):
        Encoder.load(folder, query="quick")
    assert main(["grep", "--query-encoder", "quick", "x", str(tmp_path)]) == 2


def test_tables_are_read_where_they_stand(folder, tmp_path):
    rows = np.array([3, 0, 3])
    words = embedding_table(folder / "model.onnx", "word_embeddings.weight")
    np.testing.assert_array_equal(words.rows(rows), tower_models.BYTES[rows] * tower_models.SCALE[rows])
    positions = embedding_table(folder / "model.onnx", "position_embeddings.weight")
    np.testing.assert_array_equal(positions.rows(rows), tower_models.POSITIONS[rows])
    with pytest.raises(CheckpointError, match="has no table colours"):
        embedding_table(folder / "model.onnx", "colours")
    whole = (folder / "model.onnx").read_bytes()
    (tmp_path / "torn.onnx").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="is not a whole ONNX file"):
        embedding_table(tmp_path / "torn.onnx", "word_embeddings.weight")


def test_json_says_what_a_tower_is_of(folder):
    held = json.loads((folder / "query-static.json").read_text())
    assert held["model"] == Encoder.load(folder).fingerprint
    assert held["name"] == "tiny-static"


needs_tower = pytest.mark.skipif(
    not (BUNDLED / "query-fast.json").is_file(), reason="this checkout has no query tower in src/weft/models/weft-small"
)


@needs_tower
def test_weft_smalls_tower_gives_nearly_its_vectors():
    queries = [
        "how do vaccines protect against the flu virus?",
        "strip colour codes from a string",
        "Should schools ban phones in class?",
        "what similarity laws must be obeyed when building aeroelastic models of heated high speed aircraft",
    ]
    full, fast = (Encoder.load("weft-small", query=kind).encode_query(queries) for kind in ("full", "fast"))
    assert (full.values * fast.values).sum(1).mean() > 0.92


@needs_tower
def test_weft_smalls_tower_finds_what_it_finds(tmp_path, capsys):
    notes = {
        "flu": "Vaccines train the immune system to recognise influenza.",
        "fox": "The quick brown fox jumps over the lazy dog.",
        "mars": "Iron oxide gives the fourth planet its red colour.",
    }
    place = str(tmp_path / "notes.weft")
    with TextIndex.open(place, create=True) as made:
        made.add(notes)
    asked = {"how do shots protect from the flu?": "flu", "why is mars red?": "mars", "an animal that leaps": "fox"}
    with TextIndex.open(place, query="fast") as opened:
        assert {query: opened.search(query, k=1)[0].id for query in asked} == asked
    for query, name in asked.items():
        assert main(["search", place, query, "-k", "1", "--tsv", "--query-encoder", "fast"]) == 0
        assert name in capsys.readouterr().out
    assert main(["info", place]) == 0
    assert "full, fast (--query-encoder)" in capsys.readouterr().out


@needs_tower
def test_weft_smalls_tower_is_of_its_recipe():
    held = json.loads((BUNDLED / "query-fast.json").read_text())
    recipe = tomllib.loads((Path(__file__).parents[2] / "recipes" / "weft-small-query-fast.toml").read_text())
    assert recipe["tower"].items() <= (held["provenance"]["recipe"] | {"model": "weft-small"}).items()
    assert held["model"] == Encoder.load("weft-small").fingerprint
