"""Training examples: spans are of the passage and answer the query; batches are a function of seed and number."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rapidfuzz", reason="needs the generative extra: pip install 'weft-search[generative]'")

from weft.errors import DataError, InvalidParameterError
from weft.generative.corpus import Corpus, Pair, read_data, write_collection
from weft.generative.examples import Batches, IdentifierExamples, SpanExamples
from weft.generative.recipes import DataSettings, ExampleSettings, build_recipe, read_recipe
from weft.generative.spans import begin_probabilities, word_tokens
from weft.sources.beir import BeirDocument
from weft.training.tables import RecipeError

RECIPES = sorted((Path(__file__).parents[2] / "recipes" / "generative").glob("*.toml"))
TEXT = "It was a cold day. The oil crisis began in October 1973 when the members met; nobody knew why."


def ratio(a, b):
    """2 · (longest common subsequence) / (both lengths), by the textbook's table."""
    row = [0] * (len(b) + 1)
    for x in a:
        above = row
        row = [0]
        for place, y in enumerate(b):
            row.append(above[place] + 1 if x == y else max(above[place + 1], row[place]))
    return 2 * row[-1] / (len(a) + len(b))


def slow_probabilities(query, passage, stops):
    """The formula, word by word."""
    q, d = query.lower().split(), passage.lower().split()
    weights = []
    for j in range(len(d)):
        total = sum(ratio(" ".join(q[i : i + 3]), " ".join(d[j : j + 3])) for i in range(len(q)))
        weights.append(-np.inf if d[j].strip(".,;") in stops else total)
    likely = np.exp(np.array(weights) - max(weights))
    return likely / likely.sum()


def test_spans_begin_where_the_passage_answers():
    from weft.generative.spans import stop_words

    query = "when did the oil crisis begin"
    likely = begin_probabilities(query, TEXT)
    np.testing.assert_allclose(likely, slow_probabilities(query, TEXT, stop_words()), atol=1e-5)
    assert TEXT.split()[likely.argmax()] == "oil"
    assert likely[TEXT.split().index("The")] == 0
    assert begin_probabilities("", "red cat").tolist() == [0.5, 0.5]
    assert begin_probabilities("x", "").tolist() == []
    assert begin_probabilities("x", "the of").sum() == pytest.approx(1)


@pytest.mark.torch
def test_words_begin_at_their_tokens(tokenizer):
    text = "the  red cat, of blue."
    ids, first = word_tokens(tokenizer, text)
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    found = [text[offsets[place][0] : offsets[place][1]].strip()[:1] for place in first]
    assert found == [word[0] for word in text.split()]
    assert len(ids) == len(offsets)


@pytest.fixture(scope="module")
def corpus(collection):
    return read_data([DataSettings(str(collection))])


@pytest.mark.torch
def test_targets_are_ngrams_of_their_passage(corpus, tokenizer):
    examples = SpanExamples(corpus, tokenizer, ExampleSettings(span=4, document_length=6))
    assert (examples.pairs, examples.documents) == (240, 24)
    random = np.random.default_rng(0)
    for number in range(60):
        example = examples.of_pair(number, random)
        document = examples.tokens[corpus.pairs[number % 48].document]
        assert 0 < len(example.target) <= 4
        assert example.target in [document[i : i + len(example.target)] for i in range(len(document))]
        assert example.input[-1] == 1
        alone = examples.of_document(number % 24, random)
        assert len(alone.target) == 4
        assert alone.input[-1] == 1


@pytest.mark.torch
def test_spans_of_words_end_where_a_word_begins(corpus, tokenizer):
    """The paper's spans have 10 words, however many tokens those are."""
    examples = SpanExamples(corpus, tokenizer, ExampleSettings(span_words=3))
    random = np.random.default_rng(0)
    for number in range(40):
        document = corpus.pairs[number % 48].document
        target, tokens = examples.of_pair(number, random).target, examples.tokens[document]
        words = examples.words[document].tolist()
        whole = [tokens[a:b] for a, b in zip(words, [*words[3:], None, None, None], strict=False)]
        assert target in whole


@pytest.mark.torch
def test_batches_depend_on_seed_and_number_alone(corpus, tokenizer):
    examples = IdentifierExamples(corpus, tokenizer, ExampleSettings(), [[number + 2] for number in range(24)])
    one, other = Batches(examples, 10, 0.4, seed=3), Batches(examples, 10, 0.4, seed=3)
    assert (one.of_pairs, one.of_documents, one.steps(1)) == (6, 4, 8)
    forwards = [one[number] for number in range(9)]
    assert [other[number] for number in reversed(range(9))] == forwards[::-1]
    asked = [tuple(example.input) for batch in forwards[:8] for example in batch[:6]]
    assert sorted(asked) == sorted(map(tuple, examples.queries))  # an epoch has every pair once
    assert Batches(examples, 10, 0.4, seed=4)[0] != forwards[0]
    nothing = Corpus(corpus.documents, [], [])
    with pytest.raises(DataError, match="no queries to learn from"):
        Batches(SpanExamples(nothing, tokenizer, ExampleSettings()), 4, 0.0, 0)


def test_held_out_queries_are_written_and_never_learnt(collection, tmp_path):
    found = read_data([DataSettings(str(collection), heldout=0.3)])
    assert len(found.pairs) + len(found.heldout) == 48
    assert 5 < len(found.heldout) < 25
    assert not {pair.query_id for pair in found.pairs} & {pair.query_id for pair in found.heldout}
    write_collection(found, tmp_path)
    again = read_data([DataSettings(str(tmp_path), splits="test")])
    assert again.pairs == found.heldout
    assert again.documents == found.documents


def test_few_documents_are_the_judged_ones(collection, tmp_path):
    few = read_data([DataSettings(str(collection), documents=5)])
    assert len(few.documents) == 5
    assert all(isinstance(pair, Pair) and pair.document < 5 for pair in few.pairs)
    with pytest.raises(DataError, match=r"'d0' is in"):
        read_data([DataSettings(str(collection)), DataSettings(str(collection))])
    (tmp_path / "corpus.jsonl").write_text(json.dumps({"_id": "x", "text": ""}))
    with pytest.raises(DataError, match="'x' is empty"):
        read_data([DataSettings(str(tmp_path), splits="")])


@pytest.mark.parametrize("path", RECIPES, ids=[path.stem for path in RECIPES])
def test_recipes_are_sound(path):
    recipe = read_recipe(path, ["training.seed=3"], {"data": "D", "models": "M"})
    assert recipe.training.seed == 3
    assert path.read_text().startswith(f"# weft generative train recipes/generative/{path.name}")
    assert recipe.training.output == f"runs/{path.stem}"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"training": {"output": "o", "step": 3}}, RecipeError, "unknown key training.step; did you mean 'steps'"),
        ({"modle": {}}, RecipeError, "unknown key modle; did you mean 'model'"),
        ({"training": {"output": "o"}}, RecipeError, "steps or epochs"),
        ({"training": {"output": "o", "steps": 1, "epochs": 1.0}}, RecipeError, "steps or epochs"),
        ({"identifiers": {"method": "sea"}}, InvalidParameterError, "one of seal, dsi, genre"),
        ({"identifiers": {"method": "seal", "pawa": True}}, InvalidParameterError, "unless the method is dsi"),
        ({"identifiers": {"method": "dsi", "np": "base"}}, InvalidParameterError, "unless the method is genre"),
        ({"data": []}, RecipeError, r"at least one \[\[data\]\]"),
        ({"examples": {"documents": 2.0}}, InvalidParameterError, "a share"),
    ],
)
def test_wrong_recipes_say_so(changes, error, message):
    sound = {"identifiers": {"method": "seal"}, "training": {"output": "o", "steps": 1}, "data": [{"path": "d"}]}
    with pytest.raises(error, match=message):
        build_recipe({**sound, **changes})


def test_documents_without_any_token_are_refused(monkeypatch):
    def silent(text, **_):
        texts = [text] if isinstance(text, str) else text
        empty = [[] for _ in texts]
        one = isinstance(text, str)
        return {"input_ids": empty[0] if one else empty, "offset_mapping": empty[0] if one else empty}

    with pytest.raises(DataError, match="'x' has no tokens"):
        SpanExamples(Corpus([BeirDocument("x", "", "?")], [], []), silent, ExampleSettings())
