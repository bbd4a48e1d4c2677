"""Explanations: sums that are the score, words, snippets, reading documents again."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoders import light_models
from search.test_terms import ALIGNMENTS
from strategies import problems
from weft import Document, Encoder, TokenVectors, WeftError
from weft.encoders.tokenizing import Reader
from weft.explain import (
    Explanation,
    Pair,
    Reading,
    Side,
    Token,
    explain,
    explain_result,
    read_document,
    read_query,
    to_dict,
    to_json,
)
from weft.explain.snippet import fragments, snippet
from weft.explain.view import view
from weft.explain.words import words
from weft.search import Index, Searcher


@settings(max_examples=60)
@given(
    problem=problems(), alignment=st.sampled_from(ALIGNMENTS), exact=st.booleans(), only=st.sampled_from([None, "odd"])
)
def test_contributions_sum_to_the_score(tmp_path_factory, problem, alignment, exact, only):
    Q, D, u_q, u_d, ids_q, ids_d = problem
    query = TokenVectors.from_list([Q], [ids_q], None if u_q is None else [u_q])
    with Index.create(tmp_path_factory.mktemp("i") / "i", dim=Q.shape[1]) as index:
        documents = [Document(f"d{i}", "", {"odd": i % 2 == 1}) for i in range(len(D))]
        index.add(documents, TokenVectors.from_list(D, ids_d, u_d))
        (ranking,) = index.search(query, 20, alignment=alignment, exact=exact, filter=only)
        for position, result in enumerate(ranking):
            found = explain(
                ranking,
                position,
                query=read_query("", query),
                document=read_document("", index.vectors(result.id)),
                alignment=alignment,
            )
            size = 1 + sum(abs(pair.contribution) for pair in found.pairs)
            imputed = sum(pair.contribution for pair in found.imputed)
            assert found.total == pytest.approx(found.score, abs=1e-4 * size)
            assert sum(t.contribution for t in found.query.tokens) == pytest.approx(found.score, abs=1e-4 * size)
            of_document = sum(t.contribution for t in found.document.tokens)
            assert of_document == pytest.approx(found.score - imputed, abs=1e-4 * size)
            assert len(found.document.tokens) == len(D[int(result.id[1:])])
            for pair in found.pairs:
                weighed = pair.weight * pair.similarity / found.z if found.z else 0.0
                assert pair.contribution == pytest.approx(weighed, abs=1e-4 * size)
            # What people see in words is the same sum.
            shown = view(found)
            assert sum(pair.contribution for pair in shown.pairs) == pytest.approx(found.total, abs=1e-6 * size)
            assert sum(word.contribution for word in shown.query) == pytest.approx(found.total, abs=1e-6 * size)
            json.loads(to_json([found]))


def made(text, tokens, pairs=(), **changes):
    """An explanation whose document has the given (token, start, contribution)."""
    side = Side(text, tuple(Token(t, (a, a + len(t)), None, c) for t, a, c in tokens))
    whole = Explanation("d", 1, 1.0, 1.0, "sum-of-max", Side("q", (Token("q", (0, 1), None, 1.0),)), side, tuple(pairs))
    return dataclasses.replace(whole, **changes)


def joined(text, spans):
    return [w.text for w in words(Side(text, tuple(Token(text[a:b], (a, b), None, 0.0) for a, b in spans)))]


@pytest.mark.parametrize(
    ("text", "spans", "expected"),
    [
        ("unbelievable!", [(0, 2), (2, 9), (9, 12), (12, 13)], ["unbelievable", "!"]),
        ("it's 3.5", [(0, 2), (2, 3), (3, 4), (5, 6), (6, 7), (7, 8)], ["it", "'", "s", "3", ".", "5"]),
        ("two words", [(0, 3), (4, 9)], ["two", "words"]),
        ("日本語", [(0, 1), (1, 2), (2, 3)], ["日", "本", "語"]),
        ("né", [(0, 1), (1, 3)], ["né"]),
        ("🙂", [(0, 1), (0, 1)], ["🙂"]),  # two tokens of one character
        ("", [], []),
    ],
)
def test_pieces_become_words(text, spans, expected):
    assert joined(text, spans) == expected


def test_words_without_spans():
    side = Side("", tuple(Token(text, None, None, 0.25) for text in ("[CLS]", "re", "##triev", "##al", "now")))
    assert [(w.text, w.contribution) for w in words(side)] == [("[CLS]", 0.25), ("retrieval", 0.75), ("now", 0.25)]


def test_expansions_are_shown_as_one():
    texts = [("[CLS]", None), ("red", (0, 3)), ("[MASK]", None), ("[MASK]", None)]
    query = Side("red", tuple(Token(t, s, None, 0.5) for t, s in texts))
    found = made("x", [("x", 0, 2.0)], [Pair(i, 0, 0.5, 1.0, 0.5) for i in range(4)], query=query)
    shown = view(found)
    assert [w.text for w in shown.query] == ["[CLS]", "red", "[MASK]"]
    assert shown.repeats == {2: 2}
    assert (shown.pairs[0].query, shown.pairs[0].contribution) == (2, 1.0)
    assert shown.colour[1] == 0  # the first colour is for a word of the text


def test_the_snippet_is_around_what_counts():
    text = "nothing here. " * 30 + "the red planet is here" + " and nothing there" * 30
    at = text.index("red")
    found = made(text, [("nothing", 0, 0.1), ("red", at, 0.5), ("planet", at + 4, 1.0)])
    shown = snippet(found, 100)
    line = "".join(f.text for f in shown)
    assert "red planet" in line
    assert len(line) <= 104
    assert line.startswith("… ")
    assert line.endswith(" …")
    assert {f.text: f.strength for f in shown if f.strength} == {"red": 0.5, "planet": 1.0}


@given(
    st.text(max_size=120),
    st.lists(st.tuples(st.integers(0, 119), st.integers(1, 5), st.floats(-1, 1)), max_size=12),
    st.integers(1, 60),
)
def test_snippets_of_anything(text, places, width):
    tokens = sorted({a: (a, min(a + n, len(text)), c) for a, n, c in places if a < len(text)}.values())
    side = Side(text, tuple(Token(text[a:b], (a, b), None, c) for a, b, c in tokens))
    found = made("", [], document=side)
    assert "".join(f.text for f in fragments(found)) == text
    shown = snippet(found, width)
    line = "".join(f.text for f in shown).removeprefix("… ").removesuffix(" …")
    assert line in "".join(" " if c.isspace() else c for c in text)
    assert len(line) <= max(width, max((b - a for a, b, _ in tokens), default=0)) or len(text) <= width
    assert all(0 <= f.strength <= 1 for f in shown)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return Encoder.load(light_models.write(tmp_path_factory.mktemp("model") / "tiny"))


TEXT = "The quick brown fox jumps, lazy dog"


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("part", [{}, {"beta_d": 0.5}, {"keep": 0.5}])
def test_spans_are_stored_or_found_again(tiny, tmp_path, monkeypatch, part, stored):
    encoded = tiny.encode_document([TEXT])
    if not stored:
        encoded = TokenVectors(encoded.values, encoded.offsets, encoded.token_ids, encoded.salience)
    with Index.create(tmp_path / "i", dim=tiny.dim, **part) as index:
        index.add([Document("d", TEXT)], encoded)
        searcher = Searcher(index, tiny)
        (answer,) = searcher.search(["quick fox"])
        if stored:
            monkeypatch.setattr(Reader, "read", None)  # no text is to be tokenised again
        if stored or not part:  # which tokens were kept only the model tells
            monkeypatch.setattr(Encoder, "encode_document", None)
        found = explain_result(searcher, tiny, answer, "d")
    assert found.total == pytest.approx(found.score, rel=1e-5)
    assert all(t.salience is not None for t in found.document.tokens)
    placed = [t for t in found.document.tokens if t.span is not None]
    assert len(placed) >= 2
    for token in placed:
        assert TEXT[slice(*token.span)] == token.text
    if not part:
        assert [w.text for w in words(found.document)] == ["[CLS]", *TEXT.replace(",", "").split(), "[SEP]"]
    assert [t.text for t in found.query.tokens if t.span] == ["quick", "fox"]
    assert [t.text for t in found.query.tokens][-1] == "[MASK]"


def test_other_text_than_was_encoded(tiny):
    encoded = tiny.encode_document([TEXT])
    stored = TokenVectors(encoded.values, encoded.offsets, encoded.token_ids)
    reading = read_document("Something else altogether", stored, tiny)
    assert reading.spans is None
    assert reading.pieces[1:4] == ["the", "quick", "brown"]
    without_ids = TokenVectors(stored.values, stored.offsets)
    assert read_document("red", without_ids, tiny).spans is None
    assert read_document(TEXT, without_ids, tiny).spans is not None
    assert read_document(TEXT, without_ids).pieces is None


def test_the_schema(tiny, tmp_path):
    with Index.create(tmp_path / "i", dim=tiny.dim) as index:
        others = ["quick fox", "red planet mars"]
        index.add([Document("d", TEXT), *others], tiny.encode_document([TEXT, *others]))
        (answer,) = Searcher(index, tiny).search(["quick fox"], alignment="xtr:2")
        position = answer.ranking.ids.index("d")
        query, document = read_query("quick fox", answer.tokens, tiny), read_document(TEXT, index.vectors("d"), tiny)
        found = to_dict(explain(answer.ranking, position, query=query, document=document, alignment="xtr:2", rank=1))
    assert list(found) == ["schema", "id", "rank", "score", "z", "alignment", "query", "document", "pairs"]
    assert (found["schema"], found["id"], found["rank"], found["alignment"]) == ("weft.explanation/1", "d", 1, "xtr:2")
    assert list(found["query"]) == ["text", "tokens"]
    assert list(found["query"]["tokens"][0]) == ["text", "span", "salience", "contribution"]
    assert list(found["pairs"][0]) == ["query", "document", "similarity", "weight", "contribution", "imputed"]
    assert any(pair["imputed"] and pair["document"] is None for pair in found["pairs"])
    assert sum(pair["contribution"] for pair in found["pairs"]) == pytest.approx(found["score"], rel=1e-5)


def test_mistakes(tmp_path):
    with Index.create(tmp_path / "i", dim=2) as index:
        index.add(["d"], TokenVectors.from_list([np.eye(2)]))
        (ranking,) = index.search(np.eye(2))
        with pytest.raises(WeftError, match=r"'document'.*at least 2 tokens.*1"):
            explain(ranking, 0, query=Reading("", 2), document=Reading("", 1), alignment="sum-of-max")
        (bare,) = index.search(np.eye(2), hits=False)
        with pytest.raises(WeftError, match="hits=True"):
            explain(bare, 0, query=Reading("", 2), document=Reading("", 2), alignment="sum-of-max")
    with pytest.raises(WeftError, match=r"'pieces'.*2 tokens.*1"):
        Reading("", 2, pieces=["a"])
