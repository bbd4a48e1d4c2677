"""The lexical side, fusion, and both sides of a search together."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft import Document, Ranking, TokenVectors, WeftError
from weft.search import Index, Searcher
from weft.search.hybrid import fuse
from weft.search.lexical import match_any, search_lexical

TEXTS = {
    "mars": "Mars is the red planet, the fourth from the sun.",
    "venus": "Venus is the hottest planet.",
    "whale": "The blue whale is the largest animal.",
    "rust": "Iron oxide makes things red.",
}


class Letters:
    """A vector for each of the first letters of the words: no model, and yet something to rank by."""

    def encode_query(self, texts):
        rows = [[(ord(w[0].lower()) - 97) % 5 for w in t.split() if w[0].isalpha()] for t in texts]
        return TokenVectors.from_list([np.eye(5, dtype=np.float32)[r] for r in rows])


@pytest.fixture
def index(tmp_path):
    with Index.create(tmp_path / "t.weft", dim=5) as made:
        documents = [Document(name, text, {"space": name in ("mars", "venus")}) for name, text in TEXTS.items()]
        made.add(documents, Letters().encode_query(TEXTS.values()))
        yield made


def test_words_are_stemmed_and_any_may_match(index):
    assert set(search_lexical(index, "red planets").ids) == {"mars", "venus", "rust"}
    assert search_lexical(index, "red planets").ids[0] == "mars"
    assert search_lexical(index, "nothing here matches? whales!").ids == ("whale",)


def test_bm25_by_hand(index):
    # k1 = 1.2, b = 0.75, idf = ln((N - n + 0.5) / (n + 0.5)); 5 words of mean 6.75.
    length, mean = 5, (10 + 5 + 7 + 5) / 4
    idf = math.log((4 - 1 + 0.5) / (1 + 0.5))
    expected = idf * 2.2 / (1 + 1.2 * (1 - 0.75 + 0.75 * length / mean))
    assert search_lexical(index, "hottest")[0].score == pytest.approx(expected, rel=1e-5)


def test_filters_deletes_and_updates_reach_the_lexical_side(index):
    assert search_lexical(index, "red", filter="space").ids == ("mars",)
    assert search_lexical(index, "red", filter='@id == "rust"').ids == ("rust",)
    index.delete("mars")
    index.add([Document("rust", "Iron oxide is brown.")], TokenVectors.from_list([np.ones((1, 5))]))
    assert search_lexical(index, "red").ids == ()
    assert search_lexical(index, "brown").ids == ("rust",)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text())
def test_no_query_is_an_fts_expression(index, text):
    search_lexical(index, text)
    assert "mars" in search_lexical(index, f'"{text}" NEAR(red planet) AND col:x* OR ^some').ids


def test_match_any_quotes_everything():
    assert match_any("") == match_any("?! *") == ""
    assert match_any("a" + " b" * 3 + " NOT") == '"a" OR "b" OR "not"'


def by_hand(rankings, method):
    totals = {}
    for ids, scores in rankings:
        for rank, (name, score) in enumerate(zip(ids, scores, strict=True)):
            spread = max(scores) - min(scores)
            part = 1 / (61 + rank) if method == "rrf" else (score - min(scores)) / spread if spread else 1.0
            totals[name] = totals.get(name, 0.0) + part
    return totals


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(-5, 5)), unique_by=lambda x: x[0]),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["rrf", "scores"]),
    st.integers(1, 9),
)
def test_fusion(lists, method, k):
    lists = [sorted(pairs, key=lambda pair: -pair[1]) for pairs in lists]
    rankings = [([name for name, _ in pairs], [float(score) for _, score in pairs]) for pairs in lists]
    fused = fuse([Ranking(*r) for r in rankings], k, method=method)
    expected = by_hand(rankings, method)
    assert len(fused) == min(k, len(expected))
    assert dict(map(tuple, fused)) == pytest.approx({name: expected[name] for name in fused.ids}, abs=1e-5)
    left_out = [score for name, score in expected.items() if name not in fused.ids]
    assert max(left_out, default=-1) <= fused.scores.min(initial=np.inf) + 1e-6


def test_mistakes():
    with pytest.raises(WeftError, match=r"'fusion'.*'rrf'.*'sum'"):
        fuse([], method="sum")
    with pytest.raises(WeftError, match="'weights'"):
        fuse([Ranking(["a"], [1.0])], weights=[1.0, 2.0])


@pytest.mark.parametrize("method", ["rrf", "scores"])
def test_hybrid_is_the_fusion_of_both_sides(index, method):
    text = "brown red things"
    (answer,) = Searcher(index, Letters()).search([text], k=3, hybrid=method)
    (semantic,) = index.search(Letters().encode_query([text]), k=100)
    expected = fuse([semantic, search_lexical(index, text, 100)], 3, method=method)
    assert answer.ranking.ids == expected.ids
    assert answer.ranking.scores.tolist() == expected.scores.tolist()
    for name in answer.ranking.ids:
        ranking, position = answer.behind(name)
        assert ranking.ids[position] == name
        assert ranking.contributions(position).sum() == pytest.approx(ranking.scores[position], rel=1e-5)


def test_the_filter_holds_on_both_sides(index):
    (answer,) = Searcher(index, Letters()).search(["red planet whale"], hybrid="rrf", filter="not space")
    assert set(answer.ranking.ids) == {"whale", "rust"}


def test_documents_that_only_words_found_have_their_pairs_too(index, monkeypatch):
    monkeypatch.setattr("weft.search.searcher.DEPTH", 1)
    (answer,) = Searcher(index, Letters()).search(["mars hottest"], k=2, hybrid="rrf")
    assert len(answer.semantic[0]) <= 2
    for name in answer.ranking.ids:
        assert answer.behind(name) is not None


def test_a_document_can_be_asked_for(index):
    searcher = Searcher(index, Letters())
    for alignment in ("sum-of-max", "xtr:2"):
        (answer,) = searcher.search(["red planet"], k=1, alignment=alignment)
        for name in TEXTS:
            found = searcher.document(name, answer)
            if found is None:
                assert alignment == "xtr:2"
                continue
            (everything,) = index.search(answer.tokens, 10, alignment=alignment)
            expected = dict(map(tuple, everything))
            assert found[0].scores[found[1]] == pytest.approx(expected[name])
