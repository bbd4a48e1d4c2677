"""`Encoder` on the light back end, without torch: order, masks, spans, saliences, truncation, bad input."""

import dataclasses
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoders import light_models
from weft import Encoder, TokenVectors, WeftError
from weft.encoders import EncodedTexts
from weft.encoders.settings import Expansion, Settings, Side
from weft.errors import CheckpointError, TruncatedError

TEXTS = ["the red planet", "", "why does rain fall, and why is the sky blue. " * 3, "Mars", "a, b. c", "fox " * 9]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return light_models.write(tmp_path_factory.mktemp("light") / "tiny")


@pytest.fixture(scope="module")
def encoder(folder):
    return Encoder.load(folder)


def rows(found, i):
    a, b = found.offsets[i], found.offsets[i + 1]
    return {name: getattr(found, name)[a:b] for name in ("values", "token_ids", "salience", "spans")}


@pytest.mark.parametrize("threads", [1, 2, None])
@pytest.mark.parametrize("task", ["query", "document"])
def test_texts_come_back_in_order_with_the_right_numbers(encoder, task, threads):
    encode = encoder.encode_query if task == "query" else encoder.encode_document
    found = encode(TEXTS, threads=threads, truncation="ignore")
    assert len(found) == len(TEXTS)
    for i, text in enumerate(TEXTS):
        expected, ours = light_models.answer(text, task), rows(found, i)
        for name, value in expected.items():
            np.testing.assert_allclose(ours[name], value, atol=1e-6, err_msg=f"{name} of {text!r}")


def test_what_an_encoder_says_about_itself(encoder):
    assert (encoder.name, encoder.dim, encoder.query_length, encoder.document_length) == ("tiny", 6, 8, 12)
    assert encoder.has_salience
    assert encoder.fingerprint == "of the tiny model"
    assert repr(encoder) == "Encoder('tiny', light fp32, dim 6)"


def test_saliences_that_weigh_nothing_come_when_asked_for_and_without_a_gate(encoder):
    ranking = Encoder(dataclasses.replace(encoder.settings, salience_weighs=False), encoder.tokenizer, encoder.backend)
    text = TEXTS[2]
    assert ranking.encode_document(text, truncation="ignore").salience is None
    s = ranking.encode_document(text, truncation="ignore", salience=True).salience
    u = encoder.encode_document(text, truncation="ignore").salience
    assert encoder.encode_document(text, truncation="ignore", salience=False).salience is None
    assert (s >= u - 1e-6).all()
    assert (s > 0).sum() > (u > 1e-3).sum()  # the gate keeps few


def test_one_text_and_none(encoder):
    one = encoder.encode_query("Mars")
    assert len(one) == 1
    assert np.array_equal(one.values, encoder.encode_query(["Mars"]).values)
    none = encoder.encode_document([])
    assert (len(none), none.dim, none.spans.shape) == (0, 6, (0, 2))
    assert len(encoder.encode_document(iter(["a", "b"]))) == 2


@given(st.lists(st.text(max_size=30), max_size=4), st.randoms())
def test_a_text_has_its_vectors_whatever_stands_beside_it(encoder, texts, random):
    found = encoder.encode_document(texts, threads=1, truncation="ignore")
    order = list(range(len(texts)))
    random.shuffle(order)
    again = encoder.encode_document([texts[i] for i in order], threads=2, truncation="ignore")
    for position, i in enumerate(order):
        for name, value in rows(found, i).items():
            assert np.array_equal(value, rows(again, position)[name])


@given(st.text(max_size=40), st.booleans())
def test_spans_cut_the_tokens_words_out_of_the_text(encoder, text, query):
    found = (encoder.encode_query if query else encoder.encode_document)(text, threads=1, truncation="ignore")
    before = 0
    for token, (start, stop) in zip(found.token_ids, found.spans, strict=True):
        word = encoder.tokenizer.id_to_token(int(token))
        if start < 0:
            assert (start, stop) == (-1, -1)
            assert word in ("[CLS]", "[SEP]", "[MASK]", "why")
            continue
        assert before <= start < stop <= len(text)
        before = start
        piece = encoder.tokenizer.normalizer.normalize_str(text[start:stop])
        assert word == "[UNK]" or piece.strip() == word.removeprefix("##")


def test_prefix_special_and_expansion_tokens_have_no_span(encoder):
    found = encoder.encode_query(" Red planet")
    words = [encoder.tokenizer.id_to_token(int(i)) for i in found.token_ids]
    assert words == ["[CLS]", "why", "red", "planet", "[SEP]", "[MASK]", "[MASK]", "[MASK]"]
    assert found.spans.tolist() == [[-1, -1], [-1, -1], [1, 4], [5, 11]] + [[-1, -1]] * 4


def test_half_the_memory(encoder):
    full, half = encoder.encode_document(["mars"]), encoder.encode_document(["mars"], dtype="float16")
    assert half.values.dtype == np.float16
    np.testing.assert_allclose(half.values, full.values, atol=1e-3)


# -- truncation --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["warn", "ignore"])
def test_truncation_is_returned_and_logged_once(encoder, caplog, how):
    with caplog.at_level(logging.WARNING, logger="weft.encoders"):
        found = encoder.encode_document(["fox " * 10, "fox " * 13, "mars", "fox " * 11], truncation=how)
    said = "2 of 4 documents are longer than 12 tokens: 4 tokens were cut off"
    assert [record.getMessage() for record in caplog.records] == ([said] if how == "warn" else [])
    assert (found.truncation.texts.tolist(), found.truncation.tokens.tolist()) == ([1, 3], [3, 1])
    assert str(found.truncation) == said
    assert not encoder.encode_query(["mars"]).truncation
    assert not encoder.encode_query([]).truncation


def test_parts_and_copies_are_plain_token_vectors(encoder):
    found = encoder.encode_document(["fox " * 13, "mars"], truncation="ignore")
    assert isinstance(found, EncodedTexts)
    parts = (found[:1], found.select([1]), found.astype("float16"), found.without_salience())
    for made in (*parts, TokenVectors.concatenate([found, found])):
        assert type(made) is TokenVectors
    assert repr(found).startswith("TokenVectors(2 texts, ")


def test_truncation_can_be_asked_about_refused_or_ignored(encoder, caplog):
    texts = ["fox " * 10, "fox " * 13]
    assert encoder.count_tokens(texts).tolist() == [12, 15]
    assert encoder.count_tokens("fox", query=True).tolist() == [4]  # [CLS] why fox [SEP]
    found = encoder.truncation(texts)
    assert (found.texts.tolist(), found.tokens.tolist(), found.length) == ([1], [3], 12)
    assert not encoder.truncation(texts[:1])
    assert encoder.truncation(texts, query=True).tokens.tolist() == [5, 8]
    with pytest.raises(TruncatedError, match=r"1 of 2 documents are longer than 12 tokens.*text 1"):
        encoder.encode_document(texts, truncation="error")
    encoder.encode_document(texts, truncation="ignore")
    assert not caplog.records


def test_other_lengths(folder):
    encoder = Encoder.load(folder, document_length=20, query_length=5)
    assert encoder.encode_document("fox " * 30, truncation="ignore").lengths.tolist() == [20]
    assert encoder.encode_query("fox").lengths.tolist() == [5]  # the expansion goes along
    assert encoder.fingerprint == "of the tiny model"


# -- bad input ---------------------------------------------------------------------------------------


def test_odd_texts_have_a_defined_result(encoder, caplog):
    empty = encoder.encode_document("")
    assert [encoder.tokenizer.id_to_token(int(i)) for i in empty.token_ids] == ["[CLS]", "[SEP]"]
    lone = encoder.encode_document("mars \ud800 fox")
    assert np.array_equal(lone.values, encoder.encode_document("mars \ufffd fox").values)
    assert lone.spans[-2].tolist() == [7, 10]
    assert encoder.encode_query("\udfff\ud800").lengths.tolist() == [8]
    long = encoder.encode_document("red planet " * 10_000)
    assert long.lengths.tolist() == [12]
    assert "19,990 tokens were cut off" in caplog.text
    assert encoder.encode_document("x" * 100_000).lengths.tolist() == [3]  # one unknown word


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"texts": b"bytes"}, ["'texts'", "bytes"]),
        ({"texts": 3}, ["'texts'", "3"]),
        ({"texts": None}, ["'texts'", "None"]),
        ({"texts": {"a": 1}}, ["'texts'"]),
        ({"texts": ["a", None]}, ["'texts'", "NoneType at 1"]),
        ({"texts": "a", "batch_size": 0}, ["'batch_size'", "0"]),
        ({"texts": "a", "threads": -1}, ["'threads'", "-1"]),
        ({"texts": "a", "dtype": "int8"}, ["'dtype'", "float16"]),
        ({"texts": "a", "dtype": "nonsense"}, ["'dtype'", "float16"]),
        ({"texts": "a", "truncation": "cut"}, ["'truncation'", "warn", "cut"]),
    ],
)
def test_bad_arguments_are_named(encoder, arguments, words):
    with pytest.raises(WeftError) as error:
        encoder.encode_document(**arguments)
    for word in words:
        assert word in str(error.value)


def edit(folder, **changes):
    path = folder / "weft_encoder.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


DAMAGES = {
    "graph cut short": (lambda f: _cut(f / "model.onnx"), "bytes instead of"),
    "graph cut short, sizes unknown": (lambda f: (_cut(f / "model.onnx"), edit(f, files={})), "ONNX Runtime"),
    "graph missing": (lambda f: (f / "model.onnx").unlink(), "model.onnx is missing"),
    "tokenizer missing": (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    "tokenizer not one": (lambda f: ((f / "tokenizer.json").write_text("{}"), edit(f, files={})), "not a tokenizer"),
    "settings torn": (lambda f: (f / "weft_encoder.json").write_text('{"form'), "not JSON"),
    "settings a list": (lambda f: (f / "weft_encoder.json").write_text("[]"), "JSON object"),
    "settings not text": (lambda f: (f / "weft_encoder.json").write_bytes(b"\xff\xfe"), "cannot be read"),
    "unknown format": (lambda f: edit(f, format=99), "format 99"),
    "unknown key": (lambda f: edit(f, colour="red"), "colour"),
    "no such gate": (lambda f: edit(f, query={"length": 8, "gate": "soft"}), "gate"),
    "no length": (lambda f: edit(f, query={}), "length"),
    "other dimension": (lambda f: edit(f, dim=7), "does not fit"),
    "no room for text": (lambda f: edit(f, query={"length": 2}), "leaves no room"),
}


def _cut(path):
    path.write_bytes(path.read_bytes()[:-50])


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_light_folder_is_one_clear_line(damage, tmp_path):
    light_models.write(tmp_path / "tiny")
    act, words = DAMAGES[damage]
    act(tmp_path / "tiny")
    with pytest.raises(CheckpointError, match=re.escape(words)) as error:
        Encoder.load(tmp_path / "tiny")
    assert "\n" not in str(error.value)


def test_what_does_not_go_with_a_light_folder(folder):
    with pytest.raises(WeftError, match="without the weights that torch needs"):
        Encoder.load(folder, backend="torch")
    with pytest.raises(WeftError, match="'device'"):
        Encoder.load(folder, device="cpu")
    with pytest.raises(WeftError, match="one of"):
        Encoder.load(folder, backend="heavy")
    with pytest.raises(WeftError, match=r"'document_length'.*at most 64"):
        Encoder.load(folder, document_length=65)


# -- settings ----------------------------------------------------------------------------------------


def test_settings_come_back_from_json(tmp_path):
    side = Side(16, "[Q] ", Expansion(8, 4, True, "min"), skip_ids=(1, 2), keep_ids=(3,), gate="lp:0.5")
    settings = Settings("m", 4, side, Side(9), 1, 512, "f", "int8", {"model.onnx": 3}, {"source": "ünï"})
    assert Settings.from_json(settings.to_json(), tmp_path) == settings


def test_a_floor_of_expansion_lets_longer_queries_be_and_kept_tokens_are_the_only_ones(tmp_path):
    fox = light_models.TOKENIZER.token_to_id("fox")
    settings = dataclasses.replace(
        light_models.SETTINGS,
        query=Side(10, expansion=Expansion(6, light_models.IDS["[MASK]"], strategy="min"), gate="relu"),
        document=Side(12, keep_ids=(fox,), gate="relu"),
    )
    encoder = Encoder.load(light_models.write(tmp_path / "tiny", settings))
    assert encoder.encode_query(["fox", "fox " * 6, "fox " * 20], truncation="ignore").lengths.tolist() == [6, 8, 10]
    assert encoder.encode_document(["the fox and the fox", "mars"]).lengths.tolist() == [2, 0]


def test_threads_may_share_an_encoder(encoder):
    def work(i):
        return encoder.encode_query([f"fox {i}", "mars"], threads=1 + i % 3).values

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(24)))
    for i, values in enumerate(found):
        assert np.array_equal(values, work(i))
