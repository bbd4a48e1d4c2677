"""From a recipe to rankings: every method learns, goes on after an interruption, and finds what it learnt."""

import json
import re

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the generative extra: pip install 'weft-search[generative]'")

from weft.cli.main import main
from weft.errors import CheckpointError, DataError, IndexFormatError, WeftError
from weft.generative.checkpoints import SIZES
from weft.generative.corpus import read_data
from weft.generative.explaining import explain_decoded
from weft.generative.methods import prepare
from weft.generative.model import GenerativeModel
from weft.generative.recipes import build_recipe
from weft.generative.retriever import Retriever
from weft.generative.run import check, train
from weft.generative.store import GenerativeIndex
from weft.types import Document

pytestmark = pytest.mark.torch

SMALLEST = {"d_model": 32, "num_layers": 1, "num_heads": 4, "d_kv": 8, "d_ff": 64}
METHODS = {
    "seal": {"method": "seal"},
    "dsi": {"method": "dsi", "k": 3, "c": 3},
    "pawa": {"method": "dsi", "k": 3, "c": 3, "pawa": True, "pawa_layers": 1, "pawa_heads": 4},
    "genre": {"method": "genre"},
    "np-base": {"method": "genre", "np": "base", "np_clusters": 2},
    "np-async": {"method": "genre", "np": "async", "np_clusters": 2, "np_every": 20},
}


@pytest.fixture(scope="module", autouse=True)
def _smallest():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "tiny", SMALLEST)
        yield


def recipe(collection, output, method, **training):
    return build_recipe(
        {
            "model": {"size": "tiny", "vocabulary": 80, "dropout": 0.0},
            "identifiers": METHODS[method],
            "examples": {"span": 4, "documents": 0.25, "document_length": 8},
            "training": {"output": str(output), "batch_size": 16, "learning_rate": 5e-3, "log_every": 1, **training},
            "data": [{"path": str(collection)}],
        }
    )


def losses(output):
    return [json.loads(line)["loss"] for line in (output / "log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module", params=METHODS)
def trained(request, collection, tmp_path_factory):
    """A model of each method with its index."""
    output = tmp_path_factory.mktemp(request.param)
    model = train(recipe(collection, output, request.param, steps=80), progress=False)
    assert main(["generative", "index", str(output / "collection"), "-o", str(output / "ix"), "-m", str(model)]) == 0
    return request.param, output


def test_it_finds_what_it_learnt(trained, collection, capsys):
    method, output = trained
    learnt = losses(output)
    assert np.mean(learnt[-10:]) < 0.6 * np.mean(learnt[:5])
    queries = [json.loads(line) for line in (collection / "queries.jsonl").read_text().splitlines()]
    with Retriever.open(output / "ix") as retriever:
        rankings = retriever.search([query["text"] for query in queries], 5)
        assert all(len(ranking) == 5 for ranking in rankings) or method == "seal"
        assert all(0 < len(ranking) <= 5 for ranking in rankings)
        for ranking in rankings:  # what was said adds up to the scores
            assert [sum(one.score for one in said) for said in ranking.said] == pytest.approx(ranking.scores, rel=1e-4)
        assert all(retriever.get(name) is not None for ranking in rankings for name in ranking.ids)
        found = sum(f"d{number // 2}" in ranking.ids for number, ranking in enumerate(rankings))
        assert found > 0.5 * len(queries)  # by chance: 5 of 24
        shown = "".join(piece for piece, _ in retriever.passage(rankings[0], 0)).strip("… ")
        assert shown in retriever.get(rankings[0].ids[0]).text
        if method == "seal":
            assert any(strength > 0 for _, strength in retriever.passage(rankings[0], 0))
            assert rankings[0].contributions(0).sum() == pytest.approx(rankings[0].scores[0], rel=1e-5)
    capsys.readouterr()
    assert main(["generative", "search", str(output / "ix"), queries[0]["text"], "--trec", "-k", "2"]) == 0
    assert capsys.readouterr().out.split()[:3] == ["1", "Q0", rankings[0].ids[0]]


@pytest.mark.parametrize("method", ["seal", "np-async"])
def test_an_interrupted_run_goes_on_to_the_same_losses(collection, tmp_path, method):
    changed = {"save_every": 2, "log_every": 3}
    with_dropout = {"model": {"size": "tiny", "vocabulary": 80, "dropout": 0.1}}
    settings = {**METHODS[method], **({"np_every": 3} if method == "np-async" else {})}

    def run(output, steps):
        made = recipe(collection, output, method, steps=steps, **changed).as_dict()
        return build_recipe({**made, **with_dropout, "identifiers": settings, "data": list(made["data"])})

    train(run(tmp_path / "whole", 8), progress=False)
    train(run(tmp_path / "parts", 4), progress=False)
    train(run(tmp_path / "parts", 8), progress=False)
    # Where the first part ended it wrote a line of its own, over one step.
    assert losses(tmp_path / "whole")[-1:] == losses(tmp_path / "parts")[-1:]
    with pytest.raises(DataError, match="another recipe"):
        train(recipe(collection, tmp_path / "parts", method, steps=9, seed=4), progress=False)


@pytest.mark.parametrize("method", ["seal", "dsi"])
def test_embeddings_may_learn_faster(collection, tmp_path, method):
    made = recipe(collection, tmp_path, method, steps=1, learning_rate=1e-3, embedding_rate=10.0)
    before = dict(prepare(made, read_data(made.data, made.training.seed)).model.named_parameters())
    after = dict(GenerativeModel.load(train(made, progress=False)).named_parameters())
    tables = {"t5.shared.weight", *(["table.weight"] if method == "dsi" else [])}
    assert tables < set(before) == set(after)
    for name, weight in after.items():
        moved = (weight - before[name]).abs().max().item()  # Adam's first step is as long as the learning rate
        assert moved == pytest.approx(1e-2 if name in tables else 1e-3, rel=0.02), name


def test_half_precision_devices_and_progress(collection, tmp_path, capsys):
    made = recipe(collection, tmp_path, "seal", steps=30, log_every=10, precision="bf16")
    train(made, device="cpu")
    err = capsys.readouterr().err
    assert "step 10 of 30, loss " in err  # off a terminal, where a bar would be noise
    assert losses(tmp_path)[-1] < losses(tmp_path)[0]
    folder = str(tmp_path / "ix")
    assert main(["generative", "index", str(collection), "-o", folder, "-m", str(tmp_path / "model")]) == 0
    capsys.readouterr()
    rankings = {}
    for precision in ("fp32", "bf16", "int8"):
        arguments = ["generative", "search", folder, "red cat", "--json", "--device", "cpu", "--precision", precision]
        assert main(arguments) == 0
        rankings[precision] = json.loads(capsys.readouterr().out)["results"]
    full, *rounded = ({r["id"]: r["score"] for r in found} for found in rankings.values())
    for some in rounded:
        assert len(full.keys() & some.keys()) > 0.5 * len(full)
    for wrong, said in (
        (["--device", "gpu7"], "'device' parameter"),
        (["--device", "meta"], "'device' parameter"),
        (["--precision", "fp8"], "'precision' parameter"),
    ):
        assert main(["generative", "search", folder, "red cat", *wrong]) == 1
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1


def test_a_base_that_is_not_there_is_one_line(collection, tmp_path, capsys):
    (tmp_path / "r.toml").write_text(
        f'[model]\nbase = "{tmp_path}/none"\n[identifiers]\nmethod = "seal"\n'
        f'[training]\noutput = "{tmp_path}/out"\nsteps = 1\n[[data]]\npath = "nowhere"\n'
    )
    arguments = ["generative", "train", str(tmp_path / "r.toml"), "--check"]
    assert main(arguments) == 1
    assert capsys.readouterr().err == "weft: no such folder: 'nowhere'\n"
    assert main([*arguments, f"data.path={collection}"]) == 1
    assert capsys.readouterr().err == f"weft: no such model folder: '{tmp_path}/none'\n"
    assert main([*arguments, f"data.1.path={collection}", "model.base=", "data.documents=5"]) == 0
    assert capsys.readouterr().out.startswith("data      5 documents")


def test_check_says_what_it_found(collection, tmp_path):
    lines = check(recipe(collection, tmp_path, "dsi", epochs=2.0))
    assert lines[0] == "data      24 documents, 48 pairs, 0 held out"
    assert "8 steps" in lines[2]  # 48 pairs, 12 of them a batch


def test_searching_from_the_command_line(trained, capsys, tmp_path):
    method, output = trained
    capsys.readouterr()
    assert main(["generative", "search", str(output / "ix"), "red cat", "-k", "1"]) == 0
    assert capsys.readouterr().out.startswith(" 1. d")
    (tmp_path / "q.tsv").write_text("a\tred cat\nb\tthe moon\n")
    assert main(["generative", "search", str(output / "ix"), "--queries", str(tmp_path / "q.tsv"), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["query_id"] for row in rows] == ["a", "b"]
    assert rows[0]["method"] == METHODS[method]["method"]
    first = rows[0]["results"][0]
    assert set(first) == {"rank", "id", "score", "snippet", "text", "metadata", "said"}
    if method == "seal":
        assert all(one["text"] in first["text"] for one in first["said"])
    elif METHODS[method]["method"] == "genre":
        assert first["text"].startswith(first["said"][0]["text"])
    else:
        assert re.fullmatch(r"\d+(-\d+)*", first["said"][0]["text"])
    wrong = "odds" if method == "seal" else "lm"  # the others rank by log p alone
    assert main(["generative", "search", str(output / "ix"), "red cat", "--scoring", wrong]) == 1
    assert "'scoring' parameter" in capsys.readouterr().err


def test_explaining_what_was_decoded(trained, capsys, tmp_path):
    """GENRE was explained by another text than its title, DSI refused, SEAL's n-grams nowhere to be seen."""
    method, output = trained
    with Retriever.open(output / "ix") as retriever:
        (ranking,) = retriever.search(["red cat"], 2)
        found = explain_decoded(retriever, "red cat", 2)
        assert [why.id for why in found] == list(ranking.ids)
        for why, said, score in zip(found, ranking.said, ranking.scores, strict=True):
            if method == "seal":
                assert why.score == pytest.approx(score, rel=1e-5)
                assert [token.text for token in why.query.tokens] == [one.text for one in said]
                assert [token.contribution for token in why.query.tokens] == pytest.approx([o.score for o in said])
            else:
                assert f"log p {score:.3f}" in why.alignment
                assert "logits that sum to" in why.alignment
                tokens = [token.text for token in why.document.tokens]
                if METHODS[method]["method"] == "dsi":
                    assert tokens == [*said[0].text.split("-"), "end"]
                else:
                    assert retriever.get(why.id).text.startswith(said[0].text)
                    assert len(tokens) == len(said[0].tokens) + 1
                    assert " ".join(why.document.text.split()) == " ".join(said[0].text.split())
            assert why.total == pytest.approx(why.score, rel=1e-4, abs=1e-5)
    page = tmp_path / "why.html"
    assert main(["generative", "explain", str(output / "ix"), "red cat", ranking.ids[0], "--html", str(page)]) == 0
    assert ranking.ids[0] in page.read_text(encoding="utf-8")
    capsys.readouterr()
    for arguments, message in (
        ([str(output / "ix"), "red cat", "gone"], "the index has no document 'gone'"),
        ([str(output / "ix"), "red cat", "--tokens", "3"], "--tokens is for a model and a text"),
        ([str(output / "model"), "red cat"], "is not an index: give the text"),
    ):
        assert main(["generative", "explain", *arguments]) == 1
        assert message in capsys.readouterr().err
    if method in ("genre", "dsi"):
        assert main(["generative", "explain", str(output / "model"), "red cat", "the cat"]) == 1
        assert "make an index" in capsys.readouterr().err


def test_wrong_models_documents_and_words(trained, collection, tmp_path, capsys):
    method, output = trained
    other = "genre" if method == "seal" else "seal"
    train(recipe(collection, tmp_path / "other", other, steps=1), progress=False)
    with pytest.raises(
        IndexFormatError, match=rf"is for {METHODS[method]['method']}; the model was trained for {other}"
    ):
        Retriever.open(output / "ix", tmp_path / "other" / "model")
    with pytest.raises(CheckpointError, match="no generative model"):
        Retriever.open(output / "ix", tmp_path)
    model = GenerativeModel.load(output / "model")
    for texts, message in (([""], "'x0' is empty"), ([], "no documents")):
        documents = [Document(f"x{number}", text) for number, text in enumerate(texts)]
        with pytest.raises(WeftError, match=message):
            GenerativeIndex.create(tmp_path / "ix", documents, model)
    assert not list(tmp_path.glob("ix*"))
    if METHODS[method]["method"] == "dsi":
        with pytest.raises(DataError, match=r"'new', have no identifier"):
            GenerativeIndex.create(tmp_path / "ix", [Document("new", "a cat")], model)
    capsys.readouterr()
    assert main(["generative", "search", str(output / "ix"), " "]) == 1
    assert capsys.readouterr().err == "weft: the query is empty\n"


def test_a_model_of_another_vocabulary_is_refused(collection, tmp_path):
    for name, size in (("one", 40), ("two", 50)):
        made = recipe(collection, tmp_path / name, "seal", steps=1).as_dict()
        made["model"]["vocabulary"] = size
        train(build_recipe({**made, "data": list(made["data"])}), progress=False)

    documents = [Document("a", "the red cat"), Document("b", "a green boat")]
    GenerativeIndex.create(tmp_path / "ix", documents, GenerativeModel.load(tmp_path / "one" / "model")).close()
    with pytest.raises(IndexFormatError, match="made with another vocabulary"):
        Retriever.open(tmp_path / "ix", tmp_path / "two" / "model")
