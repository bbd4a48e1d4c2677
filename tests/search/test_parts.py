"""Indexes that are parts of one collection: together they answer as one index over all of it does."""

import numpy as np
import pytest

from weft import Document, Index, TokenVectors
from weft.search import tokens as token_search
from weft.search.lexical import most_score, search_lexical
from weft.search.parts import Words, retrieve_part, retrieved_from_all, search_lexical_part
from weft.storage.segments import Effort

NUMBER, DIM = 240, 16
WORDS = [
    "red",
    "planet",
    "moon",
    "moons",
    "rust",
    "salt",
    "sea",
    "ships",
    "sailing",
    "err_conn",
    "stars",
    "the",
    "the",
    "the",
    "of",
]


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    """One index over everything, and three of unequal size over the same documents, some deleted."""
    rng = np.random.default_rng(5)
    documents, vectors = [], []
    for at in range(NUMBER):
        text = " ".join(rng.choice(WORDS, rng.integers(1, 30)))
        documents.append(Document(f"d{at}", text, {"year": 2000 + at % 7}))
        one = rng.normal(size=(rng.integers(1, 12), DIM)).astype(np.float32)
        vectors.append(one / np.linalg.norm(one, axis=1, keepdims=True))
    cuts = [0, 30, 110, NUMBER]
    folder = tmp_path_factory.mktemp("collection")
    made = []
    for name, start, stop in [("whole", 0, NUMBER), *((f"part{i}", cuts[i], cuts[i + 1]) for i in range(3))]:
        index = Index.create(folder / name, DIM, merge="off")
        for some in range(start, stop, 40):
            mine = slice(some, min(some + 40, stop))
            index.add(documents[mine], TokenVectors.from_list(vectors[mine]))
        index.delete([f"d{at}" for at in range(start, stop) if at % 17 == 3])
        made.append(index)
    yield made[0], made[1:], [one for one in vectors if len(one) > 3][:12]
    for index in made:
        index.close()


def from_parts(parts, query, k, alignment, *, exact, filter=None, **options):
    text = TokenVectors.from_list([query])
    effort = None if exact else Effort(options.get("n_probe"), options.get("k_prime"), options.get("refine"))
    totals = [0] * len(parts)
    for _ in range(2):  # the first round tells how many tokens there are
        found = [
            retrieve_part(
                part,
                text,
                sum(totals),
                before=sum(totals[:at]),
                alignment=alignment,
                filter=filter,
                effort=effort,
            )
            for at, part in enumerate(parts)
        ]
        totals = [one.tokens for one in found]
    retrieval = retrieved_from_all(alignment, found, exact=exact)
    results = []
    for part in parts:
        (ranking,) = part.search(
            text, k, alignment=alignment, retrieval=retrieval, filter=filter, exact=exact, **options
        )
        results += zip(ranking.ids, ranking.scores.tolist(), strict=True)
    return sorted(results, key=lambda result: -result[1])[:k], retrieval


@pytest.mark.parametrize(
    "alignment", ["xtr", "xtr:40", "xtr:300", "xtr:40,impute=zero", "xtr:40,impute=none", "xtr:100000"]
)
@pytest.mark.parametrize("filter", [None, "year > 2003", "year > 3000"])
@pytest.mark.parametrize("exact", [True, False])
def test_xtr_over_parts_is_xtr_over_the_whole(collection, alignment, filter, exact):
    whole, parts, queries = collection
    for query in queries:
        (expected,) = whole.search(query, 10, alignment=alignment, filter=filter, exact=exact)
        found, retrieval = from_parts(parts, query, 10, alignment, exact=exact, filter=filter)
        assert retrieval.k_prime == expected.retrieval.k_prime
        assert retrieval.how == expected.retrieval.how
        np.testing.assert_array_equal(retrieval.last, expected.retrieval.last)
        assert [name for name, _ in found] == list(expected.ids)
        np.testing.assert_array_equal(np.array([score for _, score in found], np.float32), expected.scores)


def test_the_sample_of_parts_is_the_sample_of_the_whole(collection, monkeypatch):
    whole, parts, queries = collection
    monkeypatch.setattr(token_search, "LEAST", 100)
    monkeypatch.setattr(token_search, "RANK", 20)
    for query in queries:
        (expected,) = whole.search(query, 10, alignment="xtr:400")
        assert expected.retrieval.how == "sampled"
        found, retrieval = from_parts(parts, query, 10, "xtr:400", exact=False)
        assert retrieval.how == "sampled"
        np.testing.assert_allclose(retrieval.last, expected.retrieval.last, atol=0.1)
        assert len(found) == 10


@pytest.mark.parametrize("query", ["red planets", "the moon of err_conn", "salt salt sea", "nothing known", "the", "?"])
@pytest.mark.parametrize("filter", [None, "year > 2003"])
def test_words_weigh_what_they_weigh_in_the_whole(collection, query, filter):
    whole, parts, _ = collection
    words = Words.together([Words.of(part, query) for part in parts])
    assert words == Words.of(whole, query)
    assert words.most_score == pytest.approx(most_score(whole, query))
    expected = search_lexical(whole, query, 500, filter=filter)
    found = [result for part in parts for result in search_lexical_part(part, query, 500, words, filter=filter)]
    found.sort(key=lambda result: -result[1])  # stable: of equals, the older one
    assert [name for name, _ in found] == list(expected.ids)
    np.testing.assert_allclose([score for _, score in found], expected.scores, rtol=1e-5)


def test_a_retrieval_of_another_query_is_refused(collection):
    whole, parts, queries = collection
    _, retrieval = from_parts(parts, queries[0], 3, "xtr:40", exact=True)
    with pytest.raises(ValueError, match="that of the only query"):
        whole.search(queries[0][:2], alignment="xtr:40", retrieval=retrieval)
