"""The blend: never much worse than vectors alone, and exact strings are found."""

import math

import pytest

from weft import Document, Ranking, TextIndex, WeftError
from weft.explain import to_dict, to_html
from weft.search.hybrid import blend
from weft.search.lexical import exact_strings, most_score, search_exact, search_lexical
from weft.sources.beir import DEMO, Collection

MANUALS = {
    "pump": "The pump BX-4410 needs oil every month. Check the seal.",
    "pump-2": "The pump BX-4411 needs oil every month. Check the seal.",
    "error": "If ERR_CONN_RESET appears, restart the router.",
    "error-2": "If ERR_CONN_CLOSED appears, restart the router.",
    "code": "Call getUserId before the session begins.",
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    collection = Collection.read(DEMO)
    with TextIndex.open(tmp_path_factory.mktemp("demo") / "d.weft", create=True) as index:
        index.add([Document(d.id, d.full_text) for d in collection.documents], split=False)
        index.add(MANUALS)
        yield index, collection


def ndcg(found, grades):
    gain = sum(grades.get(match.id, 0) / math.log2(rank + 2) for rank, match in enumerate(found))
    return gain / sum(g / math.log2(rank + 2) for rank, g in enumerate(sorted(grades.values(), reverse=True)[:10]))


def test_the_demo_loses_nothing(demo):
    index, collection = demo
    texts = [collection.queries[query] for query in collection.qrels]
    plain, blended = (
        sum(map(ndcg, index.search_many(texts, 10, hybrid=hybrid), collection.qrels.values())) / len(texts)
        for hybrid in (False, True)
    )
    assert blended > plain - 0.01
    assert plain > 0.9


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("BX-4410", "pump"),
        ("how often does the BX-4411 need oil", "pump-2"),
        ("ERR_CONN_CLOSED", "error-2"),
        ("what to do about ERR_CONN_RESET", "error"),
        ("getUserId", "code"),
        ('"restart the router" ERR_CONN_RESET', "error"),
    ],
)
def test_exact_strings_come_first(demo, query, expected):
    index, _ = demo
    (answer,) = index.answers([query], 5, hybrid=True)
    assert answer.ranking.ids[0] == expected
    assert answer.parts[expected].exact == 1.5
    assert answer.ranking.scores[0] == pytest.approx(sum(answer.parts[expected]), rel=1e-6)


def test_explanations_say_what_a_blended_score_is_made_of(demo):
    index, _ = demo
    (best,) = index.explain("how often does the BX-4411 need oil", hybrid=True)
    (answer,) = index.answers(["how often does the BX-4411 need oil"], 1, hybrid=True)
    assert best.id == "pump-2"
    assert dict(best.parts) == answer.parts["pump-2"]._asdict()
    assert sum(value for _, value in best.parts) == pytest.approx(answer.ranking.scores[0], rel=1e-6)
    assert best.total == pytest.approx(best.score, rel=1e-5), "the pairs are those of the token vectors"
    assert f"blended: {best.blended}" in str(best)
    assert "1.50 exact" in best.blended
    assert best.blended in to_html([best])
    assert to_dict(best)["parts"] == dict(best.parts)
    (plain,) = index.explain("how often does the BX-4411 need oil", id="pump-2")
    assert (plain.parts, plain.blended, "parts" in to_dict(plain)) == ((), "", False)


def test_common_strings_tell_nothing_apart(demo):
    index, _ = demo
    assert search_exact(index.index, "BX-4410") == {"pump"}
    assert search_exact(index.index, "BX-4410", filter='@id != "pump"') == set()
    assert search_exact(index.index, "ERR_CONN_RESET or ERR_CONN_CLOSED", 1) == set()
    assert search_exact(index.index, '"the"', 2) == set()
    assert search_exact(index.index, "no such thing") == set()


def test_what_is_an_exact_string():
    assert exact_strings("the red planet in 1969") == []
    assert exact_strings("a 'quick' fox, O'Neill") == []
    assert exact_strings('" AND "') == [" AND "]
    assert exact_strings("x1 v2.0.1 iPhone") == ["v2.0.1", "iPhone"]
    assert len(exact_strings(" ".join(f"a{n}b" for n in range(99)))) == 8


@pytest.mark.parametrize("query", ["oil for the pump", "BX-4410", "pump pump pump", "the", "unheard of zyzzyva"])
def test_what_words_are_worth_depends_on_how_many_of_them_a_document_has(demo, query):
    index, _ = demo
    best, most = search_lexical(index.index, query).scores.max(initial=0.0), most_score(index.index, query)
    assert 0 <= best <= most
    (answer,) = index.answers([query], hybrid=True)
    words = max((parts.words for parts in answer.parts.values()), default=0.0)
    assert words == pytest.approx(0.5 * best / most, rel=1e-5, abs=1e-9)


def test_weights_and_mistakes(demo):
    index, _ = demo
    first = index.search("oil for the pump", hybrid=True, weights=(0.0, 1.0))
    assert {match.id for match in first[:2]} == {"pump", "pump-2"}
    with pytest.raises(WeftError, match="weights"):
        index.search("oil", hybrid=True, weights=(1.0,))
    with pytest.raises(WeftError, match="hybrid"):
        index.search("oil", hybrid="best")


def test_exact_strings_come_before_everything_else():
    vectors, words = Ranking(["a", "b"], [9.0, 1.0]), Ranking(["a"], [4.0])
    for weights in (None, (5.0, 7.0), (0.0, 1.0)):
        assert blend(vectors, words, exact={"b"}, weights=weights)[0].ids[0] == "b"


def test_degenerate_rankings():
    empty = Ranking([], [])
    assert blend(empty, empty)[0].ids == ()
    only, _ = blend(empty, Ranking(["a"], [0.0]))
    assert only.ids == ("a",)
    equal, parts = blend(Ranking(["a", "b"], [2.0, 2.0]), empty)
    assert (equal.ids, parts["a"].vectors) == (("a", "b"), 1.0)
