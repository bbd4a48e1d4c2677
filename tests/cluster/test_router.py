"""Shards behind a router answer as one index over all of them: real servers, a real router, one index as oracle."""

import pytest

import weft
from weft import TextIndex
from weft.errors import InvalidParameterError
from weft.serving.client import ServerError

QUERIES = ["how do whales sleep", "the red planet", "why does a compiler optimise loops", "steam engines and bridges"]


@pytest.fixture(scope="module")
def one(whole):
    with TextIndex.open(whole) as texts:
        yield texts


@pytest.fixture(scope="module")
def many(routed):
    with weft.connect(routed.url) as remote:
        yield remote


def same(found, expected, exact=True):
    assert [match.id for match in found] == [match.id for match in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.score == (pytest.approx(theirs.score, rel=1e-6) if not exact else theirs.score)
        assert mine.text == theirs.text
        assert mine.metadata == theirs.metadata


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("filter", [None, 'subject == "animals"'])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("alignment", [None, "top-k:2", "xtr", "xtr:60", "xtr:200,impute=zero"])
def test_a_search_is_that_of_one_index(one, many, query, filter, exact, alignment):
    options = {"filter": filter, "exact": exact, "alignment": alignment}
    # Under XTR, the default, a product of matrices compares the tokens of small segments; its last bit depends on how
    # many they are.
    same(many.search(query, 10, **options), one.search(query, 10, **options), exact=alignment == "top-k:2")


@pytest.mark.parametrize("query", [*QUERIES, 'the "solar system"'])
@pytest.mark.parametrize("hybrid", ["blend", "rrf", "scores"])
@pytest.mark.parametrize("alignment", [None, "xtr:60"])
def test_a_hybrid_search_is_that_of_one_index(one, many, query, hybrid, alignment):
    options = {"hybrid": hybrid, "alignment": alignment}
    same(many.search(query, 10, **options), one.search(query, 10, **options), exact=False)  # sums of quotients


def test_the_words_that_matched_are_shown(one, many, whole):
    for query in QUERIES:
        for match in many.search(query, 5):
            assert match.spans
            assert all(match.text[a:b].strip() for a, b, _ in match.spans)


@pytest.mark.parametrize("alignment", [None, "xtr:60"])
def test_explanations_are_those_of_one_index(one, many, alignment):
    from weft.explain import to_dict

    for query in QUERIES:
        expected = [to_dict(why) for why in one.explain(query, 4, alignment=alignment)]
        assert many.explain(query, 4, alignment=alignment) == expected
        wanted = expected[2]["id"]
        (found,) = many.explain(query, 3, id=wanted, alignment=alignment)
        assert found == expected[2]


def test_vectors_find_what_their_text_finds(one, many):
    tokens = one.encoder.encode_query([QUERIES[0]])
    found = many.search(tokens, 5)
    assert [match.id for match in found] == [match.id for match in one.search(QUERIES[0], 5)]


def test_documents_are_found_wherever_they_are(one, many):
    assert len(many) == len(one)
    for name in list(one)[::40]:
        assert many.get(name).text == one.get(name).text
    assert many.get("nobody") is None
    assert "nobody" not in many
    assert sorted(many.matching('subject == "animals"')) == sorted(one.matching('subject == "animals"'))
    counts = many.value_counts()
    assert dict(counts["subject"]) == dict(one.value_counts()["subject"])


def test_an_answer_says_how_many_shards_it_is_from(many):
    answer = many._do(many._calls.post("/search", {"query": QUERIES[0], "k": 2}))
    assert (answer["shards"], answer["shards_ok"]) == (3, 3)
    request = {"query": QUERIES[0], "k": 2, "exact": True, "alignment": "top-k:1"}
    answer = many._do(many._calls.post("/search", request))
    assert answer["results"][0]["certified"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"k": 0}, "k"),
        ({"filter": "year >"}, "filter"),
        ({"alignment": "nothing"}, "alignment"),
        ({"at_least": "now"}, "at_least"),
        ({"at_least": "9:1"}, "at_least"),
        ({"at_least": f"0:{'9' * 5000}"}, "at_least"),
        ({"n_probe": -1}, "n_probe"),
    ],
)
def test_bad_input_is_one_line(many, options, said):
    with pytest.raises((InvalidParameterError, ServerError), match=said):
        many.search("whales", **options)


def test_nothing_is_written_where_documents_lie_anywhere(many):
    with pytest.raises(ServerError, match="reading only"):
        many.add({"new": "A new text."})


def test_metrics_count_what_was_asked_of_each_replica(routed, many, served):
    import httpx2

    many.search("whales")
    text = httpx2.get(f"{routed.url}/metrics").text
    for number, shard in enumerate(served):
        assert f'weft_shard_requests_total{{replica="{shard.url}",shard="{number}"}}' in text
