"""T5-ColBERT in both directions, the re-ranking setting, and the command that shows their alignments."""

import io
import json

import numpy as np
import pytest

pytest.importorskip("transformers", reason="needs the generative extra: pip install 'weft-search[generative]'")
pytest.importorskip("rapidfuzz", reason="needs the generative extra: pip install 'weft-search[generative]'")
import torch

from weft.cli.main import main
from weft.errors import CheckpointError, DataError, InvalidParameterError
from weft.generative.checkpoints import new_t5
from weft.generative.corpus import read_data
from weft.generative.model import GenerativeModel
from weft.generative.multivector import D_TO_Q, Q_TO_D, DocumentExamples, MultiVectorModel
from weft.generative.recipes import DataSettings, build_recipe
from weft.generative.reranking import SpanReader, VectorReader
from weft.generative.run import train
from weft.generative.spans import begin_probabilities, word_tokens

pytestmark = pytest.mark.torch

QUERIES = [[5, 9, 1], [8, 6, 7, 1], [4, 1]]
DOCUMENTS = [[11, 4, 13, 9, 1], [10, 1], [3, 9, 5, 1]]
TEXTS = {
    "a": "the red cat of the river in the moon . moon river , the red cat .",
    "b": "the stone house in the tree",
    "c": "boat",
}


@pytest.fixture(params=[Q_TO_D, D_TO_Q])
def model(request, tokenizer):
    torch.manual_seed(4)
    shape = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8, "d_ff": 32}
    t5 = new_t5(len(tokenizer), shape, seed=3)
    return MultiVectorModel(t5, tokenizer, settings={"alignment": request.param, "dim": 6}).eval()


def by_hand(model, query, document):
    """Eq. 21, or the mean over document tokens of the softly aligned cosines, times n; one pair, no padding."""
    with torch.no_grad():
        q, d = (model.t5.encoder(input_ids=torch.tensor([ids])).last_hidden_state[0] for ids in (query, document))
        q, d = (x @ model.projection.weight.T for x in (q, d))
    q, d = (x / x.norm(dim=1, keepdim=True) for x in (q, d))
    S = (q @ d.T).double().numpy()
    if model.settings["alignment"] == Q_TO_D:
        return S.max(axis=1).sum()
    A = np.exp(S / 0.1) / np.exp(S / 0.1).sum(axis=0)
    return len(q) * (S * A).sum() / len(d)


def test_scores_and_loss_of_a_batch_are_those_of_single_pairs(model):
    expected = np.array([[by_hand(model, q, d) for d in DOCUMENTS] for q in QUERIES])
    with torch.no_grad():
        found = model.scores(model.vectors(QUERIES), model.vectors(DOCUMENTS)).numpy()
        loss = model(QUERIES, DOCUMENTS).item()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    wanted = -np.mean([row[i] - np.log(np.exp(row).sum()) for i, row in enumerate(expected)])
    assert loss == pytest.approx(wanted, abs=1e-5)


def test_a_document_twice_in_a_batch_is_no_wrong_answer(model):
    documents = [DOCUMENTS[0], DOCUMENTS[1], DOCUMENTS[0]]
    expected = np.array([[by_hand(model, q, d) for d in documents] for q in QUERIES])
    expected[0, 2] = expected[2, 0] = -np.inf
    wanted = -np.mean([row[i] - np.log(np.exp(row).sum()) for i, row in enumerate(expected)])
    with torch.no_grad():
        assert model(QUERIES, documents).item() == pytest.approx(wanted, abs=1e-5)


def test_saved_and_opened(model, tmp_path):
    model.save(tmp_path)
    again = MultiVectorModel.load(tmp_path)
    assert str(again.alignment) == model.settings["alignment"]
    with torch.no_grad():
        assert torch.equal(model.vectors(QUERIES)[0], again.vectors(QUERIES)[0])
    (tmp_path / "projection.safetensors").unlink()
    with pytest.raises(CheckpointError, match="projection"):
        MultiVectorModel.load(tmp_path)


def test_vector_reader_ranks_as_single_pairs_do(model):
    reader = VectorReader(model, TEXTS)
    found = reader.scores("red cat", ["c", "a"])
    query = model.token_ids(["red cat"], 64)[0]
    expected = [by_hand(model, query, model.token_ids([TEXTS[name]], 256)[0]) for name in ("c", "a")]
    scale = len(query) if model.settings["alignment"] != Q_TO_D else 1  # of one query: left out
    np.testing.assert_allclose(found * scale, expected, atol=1e-5)


def test_a_training_run_learns_and_goes_on(collection, tmp_path):
    tables = {
        "model": {"size": "tiny", "vocabulary": 60, "dropout": 0.0},
        "identifiers": {"method": "multi-vector", "dim": 8, "document_length": 16},
        "training": {"output": str(tmp_path), "steps": 6, "batch_size": 8, "log_every": 3, "save_every": 3},
        "data": [{"path": str(collection)}],
    }
    whole = train(build_recipe(tables), progress=False)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert losses[1] < losses[0]
    parts = tmp_path / "parts"
    for steps in (3, 6):
        tables["training"] |= {"output": str(parts), "steps": steps}
        train(build_recipe(tables), progress=False)
    one, two = (MultiVectorModel.load(folder) for folder in (whole, parts / "model"))
    torch.testing.assert_close(one.projection.weight, two.projection.weight, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("alignment", [Q_TO_D, D_TO_Q])
def test_an_index_reads_the_projection(tokenizer, tmp_path, capsys, alignment):
    """`weft index -m` took the plain states of the T5, without a warning: the cosines were all but 0."""
    from transformers import T5Config, T5ForConditionalGeneration

    from weft import Encoder, TextIndex

    torch.manual_seed(4)
    shape = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8, "d_ff": 32}
    config = T5Config(vocab_size=len(tokenizer), feed_forward_proj="gated-gelu", scale_decoder_outputs=False, **shape)
    settings = {"alignment": alignment, "dim": 6, "query_length": 4, "document_length": 8}
    model = MultiVectorModel(T5ForConditionalGeneration(config), tokenizer, settings=settings).eval()
    model.save(tmp_path / "model")
    encoder = Encoder.load(tmp_path / "model")
    assert (encoder.dim, encoder.query_length, encoder.document_length) == (6, 4, 8)
    assert encoder.alignment == alignment
    for encode, length in ((encoder.encode_document, 8), (encoder.encode_query, 4)):
        found = encode(list(TEXTS.values()), truncation="ignore")
        expected = model.encode_texts(model.token_ids(list(TEXTS.values()), length))
        np.testing.assert_array_equal(found.token_ids, expected.token_ids)
        np.testing.assert_allclose(found.values, expected.values, atol=1e-5)
    with TextIndex.open(tmp_path / "t.weft", create=True, model=tmp_path / "model") as index:
        index.add(TEXTS, split=False)
        ranked = [match.id for match in index.search("red cat", exact=True)]
    scores = VectorReader(model, TEXTS).scores("red cat", list(TEXTS))
    assert ranked == [list(TEXTS)[i] for i in np.argsort(-scores)]
    (tmp_path / "d.jsonl").write_text('{"id": "a", "text": "red cat"}')
    arguments = ["generative", "index", str(tmp_path / "d.jsonl"), "-o", str(tmp_path / "ix")]
    assert main([*arguments, "-m", str(tmp_path / "model")]) == 1
    assert "is a multi-vector model" in capsys.readouterr().err
    (tmp_path / "model" / "projection.safetensors").write_bytes(b"?")
    with pytest.raises(CheckpointError, match=r"projection.safetensors cannot be read"):
        Encoder.load(tmp_path / "model")


def test_queries_are_filled_up_with_a_mask_in_training_and_in_an_index(collection, tokenizer, tmp_path):
    from transformers import PreTrainedTokenizerFast

    from weft import Encoder

    tables = {
        "model": {"base": str(tmp_path / "base"), "query_length": 6, "dropout": 0.0},
        "identifiers": {"method": "multi-vector", "dim": 8, "document_length": 16, "fill_queries": True},
        "training": {"output": str(tmp_path / "out"), "steps": 2, "batch_size": 4},
        "data": [{"path": str(collection)}],
    }
    shape = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8, "d_ff": 32}
    plain = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    GenerativeModel(new_t5(len(plain) + 1, shape, seed=1), plain).save(tmp_path / "base")
    with pytest.raises(CheckpointError, match="no mask token and no <extra_id_0>"):
        train(build_recipe(tables), progress=False)
    plain.add_tokens(["<extra_id_0>"])
    mask = plain.convert_tokens_to_ids("<extra_id_0>")
    GenerativeModel(new_t5(len(plain), shape, seed=1), plain).save(tmp_path / "base")
    tables["training"]["output"] = str(tmp_path / "filled")
    folder = train(build_recipe(tables), progress=False)
    model = MultiVectorModel.load(folder)
    (ids,) = model.query_ids(["red cat"])
    own = model.token_ids(["red cat"], 6)[0]
    assert ids == own + [mask] * (6 - len(own))
    assert len(own) < 6
    examples = DocumentExamples(read_data([DataSettings(str(collection))], 1), plain, build_recipe(tables), 16, mask)
    assert {len(examples.of_pair(n, np.random.default_rng(0)).input) for n in range(3)} == {6}
    # An index encodes queries in the same way, and documents without.
    encoder = Encoder.load(folder)
    found = encoder.encode_query(["red cat"])
    expected = model.encode_texts([ids])
    np.testing.assert_array_equal(found.token_ids, expected.token_ids)
    np.testing.assert_allclose(found.values, expected.values, atol=1e-5)
    assert mask not in encoder.encode_document(["red cat"]).token_ids
    with pytest.raises(InvalidParameterError, match=r"identifiers.fill_queries.*unless the method is multi-vector"):
        build_recipe(tables | {"identifiers": {"method": "seal", "fill_queries": True}})


def test_what_only_a_multi_vector_model_has_a_use_for_is_refused():
    tables = {"training": {"output": "x", "steps": 1}, "data": [{"path": "x"}]}
    with pytest.raises(InvalidParameterError, match=r"identifiers.dim.*unless the method is multi-vector"):
        build_recipe(tables | {"identifiers": {"method": "seal", "dim": 64}})
    with pytest.raises(InvalidParameterError, match=r"identifiers.alignment.*xtr-in-batch"):
        build_recipe(tables | {"identifiers": {"method": "multi-vector", "alignment": "xtr:40"}})


def test_spans_are_scored_by_their_own_tokens(tiny_model):
    reader = SpanReader(tiny_model, TEXTS, spans=2, length=4)
    names = ["b", "c", "a"]
    found = reader.scores("red cat", names)
    for place, name in enumerate(names):
        ids = tiny_model.tokenizer(TEXTS[name], add_special_tokens=False)["input_ids"]
        spans = reader.spans("red cat", name)
        assert 1 <= len(spans) <= 2
        each = []
        for begin, end in spans:
            assert 0 < end - begin <= 4
            with torch.no_grad():  # the mean of −log p is the training loss
                each.append(-tiny_model([reader.query("red cat")], [ids[begin:end]]).item())
        assert found.log_p[place] == pytest.approx(np.mean(each), abs=1e-5)
    np.testing.assert_allclose(sum(found.parts.values()), found.logit, atol=1e-4)
    # The first span begins at the likeliest word.
    likely = begin_probabilities("red cat", TEXTS["a"])
    begin = reader.spans("red cat", "a")[0][0]
    piece = tiny_model.tokenizer.convert_ids_to_tokens(reader.tokens("a")[begin])
    assert piece.strip("▁") == TEXTS["a"].split()[likely.argmax()][: len(piece.strip("▁"))]


def test_drawn_spans_stand_where_the_query_is_answered(tiny_model):
    """Three places of 2 words, drawn at temperature 1, with replacement; the same for a query whatever else is read."""
    draws = [SpanReader(tiny_model, TEXTS, spans=3, words=2, seed=seed) for seed in range(400)]
    likely = begin_probabilities("red cat", TEXTS["a"])
    tokens, words = draws[0].tokens("a"), word_tokens(tiny_model.tokenizer, TEXTS["a"])[1].tolist()
    spans = [span for reader in draws for span in reader.spans("red cat", "a")]
    assert len(spans) == 1200
    drawn = np.bincount([words.index(begin) for begin, _ in spans], minlength=len(words)) / len(spans)
    assert drawn == pytest.approx(likely, abs=0.06)
    ends = dict(zip(words, [*words[2:], len(tokens), len(tokens)], strict=False))
    assert all(ends[begin] == end for begin, end in spans)
    assert draws[7].spans("red cat", "a") == SpanReader(tiny_model, TEXTS, words=2, seed=7).spans("red cat", "a")
    assert np.isfinite(draws[0].scores("red cat", ["b", "c", "a"]).log_p).all()


def test_no_more_spans_than_there_are_places(tiny_model):
    reader = SpanReader(tiny_model, TEXTS, spans=3, length=4)
    assert len(reader.spans("red cat", "c")) == 1
    assert np.isfinite(reader.scores("red cat", ["c"]).log_p).all()
    with pytest.raises(DataError, match="no words"):
        SpanReader(tiny_model, {"x": " "}).tokens("x")


def test_explain_command(model, tiny_model, tmp_path, capsys, monkeypatch):
    tiny_model.save(tmp_path / "gr")
    model.save(tmp_path / "mv")
    for folder in ("gr", "mv"):
        page = tmp_path / f"{folder}.html"
        assert main(["generative", "explain", str(tmp_path / folder), "red cat", TEXTS["a"], "--html", str(page)]) == 0
        assert "Strongest pairs" in page.read_text(encoding="utf-8")
    assert "weight of each pair" in (tmp_path / "gr.html").read_text(encoding="utf-8")
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXTS["a"]))
    assert main(["generative", "explain", str(tmp_path / "gr"), "red cat", "-", "--json", "--tokens", "3"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert "logits that sum to" in json.dumps(out)
    for arguments, said in (
        ([str(tmp_path / "none"), "red", "cat"], "weft: no generative model"),
        ([str(tmp_path / "gr"), "red", " "], "weft: the text is empty"),
    ):
        assert main(["generative", "explain", *arguments]) == 1
        assert capsys.readouterr().err.startswith(said)


def test_explain_refuses_identifiers_that_are_no_text(tiny_model, tmp_path, capsys):
    made = GenerativeModel(tiny_model.t5, tiny_model.tokenizer, table=torch.zeros(20, tiny_model.dim))
    made.save(tmp_path)
    assert main(["generative", "explain", str(tmp_path), "red", "cat"]) == 1
    assert "are not text" in capsys.readouterr().err
