"""XTR by floors: the k′-th similarity from a sample, and the same scores as token retrieval has."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft import Document, TokenVectors
from weft.search import Index
from weft.storage import merger
from weft.storage.segments import sample
from weft.storage.segments.tops import Top, kth_similarity

DIM, N = 16, 300
WIDE = {"n_probe": 200, "k_prime": 10**6, "refine": N}
"""Effort that finds every document, so that only the scoring is tested."""


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def corpus():
    rng = np.random.default_rng(4)
    words = unit(rng.standard_normal((50, DIM)))
    lengths = rng.integers(0, 30, N)
    documents = [unit(words[rng.integers(0, 50, n)] + 0.2 * rng.standard_normal((n, DIM))) for n in lengths]
    queries = [unit(words[rng.integers(0, 50, n)] + 0.1 * rng.standard_normal((n, DIM))) for n in (1, 5, 12, 40)]
    return documents, queries


@pytest.fixture(scope="module")
def index(corpus, tmp_path_factory):
    """A coded segment of 250 documents and a flat one of 50."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merger, "CODED_TOKENS", 1000)
        patch.setattr(merger, "CODED_SHARE", 1)
        with Index.create(tmp_path_factory.mktemp("floors") / "f.weft", DIM) as made:
            named = [Document(f"d{i}", metadata={"n": i}) for i in range(N)]
            vectors = TokenVectors.from_list(corpus[0])
            made.add(named[:250], vectors[:250])
            made.add(named[250:], vectors[250:])
            with made.view() as view:
                assert [s.segment.coded for s in view.segments] == [True, False]
            yield made


def stored(index, kept=range(N)):
    return TokenVectors.from_list([index.vectors(f"d{i}")[0] for i in kept])


@pytest.mark.parametrize("alignment", ["xtr", "xtr:40", "xtr:400", "xtr:40,z=one"])
@pytest.mark.parametrize("least", [0, 120])
def test_scores_are_those_of_the_definition(index, corpus, alignment, least):
    kept = range(least, N)
    documents = stored(index, kept)
    for query in corpus[1]:
        (ranking,) = index.search(query, k=20, alignment=alignment, filter=f"n >= {least}", **WIDE)
        expected = weft.score(query, documents, alignment)
        expected[documents.lengths == 0] = -np.inf
        assert ranking.scores == pytest.approx(np.sort(expected)[::-1][:20], rel=1e-3, abs=1e-3)
        for result in ranking:
            assert result.score == pytest.approx(float(expected[int(result.id[1:]) - least]), rel=1e-3, abs=1e-3)
        for rank, hits in enumerate(ranking.hits):
            assert len(hits) == len(query)
            assert ranking.contributions(rank).sum() == pytest.approx(ranking.scores[rank], rel=1e-3, abs=1e-3)


def test_documents_named_are_scored_as_among_all(index, corpus):
    query = corpus[1][2]
    (whole,) = index.search(query, k=N, alignment="xtr:300", **WIDE)
    some = whole.ids[3:9]
    (ranking,) = index.search(query, k=N, alignment="xtr:300", among=some, **WIDE)
    assert ranking.ids == some
    assert ranking.scores == pytest.approx(whole.scores[3:9], rel=1e-5)


def test_no_hits_are_made_where_none_are_wanted(index, corpus):
    with_hits, without = (index.search(corpus[1][1], alignment="xtr:40", hits=h)[0] for h in (True, False))
    assert without.hits is None
    assert with_hits.ids == without.ids


def test_too_small_a_k_prime_for_the_sample_is_retrieved_token_by_token(index, corpus):
    documents = stored(index)
    (ranking,) = index.search(corpus[1][1], k=3, alignment="xtr:4", **WIDE)
    expected = np.sort(weft.score(corpus[1][1], documents, "xtr:4"))[::-1]
    assert ranking.scores == pytest.approx(expected[:3], rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("tokens", [150, 900, 10**6])
def test_a_sample_is_of_the_segment_s_tokens(index, tokens, monkeypatch):
    monkeypatch.setattr(sample, "TOKENS", tokens)
    monkeypatch.setattr(sample, "DOCUMENTS", 100 if tokens < 10**6 else 10**6)
    with index.view() as view:
        coded = view.segments[0].segment
        taken = sample.take_sample(coded)
        total = int(coded.offsets[-1])
        assert len(taken.values) == len(taken.document) == min(tokens, len(taken.values))
        assert len(np.unique(taken.document)) > 60
        for row in range(0, len(taken.values), 50):
            decoded = coded.decoded(taken.document[row : row + 1].astype(np.int32))
            assert (decoded.values == taken.values[row]).all(axis=1).any()
        if tokens == 10**6:
            assert len(taken.values) == total


def test_a_part_of_the_tokens_is_enough(index, corpus, monkeypatch):
    with index.view() as view:
        coded = view.segments[0].segment
        monkeypatch.setattr(sample, "TOKENS", 1500)
        small = sample.take_sample(coded)
        assert len(small.values) == 1500 < coded.offsets[-1] / 2
        query = coded.rotate(corpus[1][3])
        whole = np.sort(query @ coded.sample.values.T, axis=1)[:, -200]
        weight = coded.offsets[-1] / len(small.values)
        estimate = kth_similarity([Top.of(query @ small.values.T, weight, 200)], 200)
        assert np.abs(estimate - whole).mean() < 0.03


def test_with_a_part_of_the_tokens_searches_find_the_same(corpus, tmp_path, monkeypatch):
    """Coded and flat segments, filters: nearly the same ten best; where few sampled tokens would decide, all do."""
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000)
    monkeypatch.setattr(sample, "TOKENS", 600)
    used = []
    monkeypatch.setattr("weft.search.merged.kth_similarity", lambda *a: used.append(a) or kth_similarity(*a))
    with Index.create(tmp_path / "s.weft", DIM) as made:
        named = [Document(f"d{i}", metadata={"n": i}) for i in range(N)]
        vectors = TokenVectors.from_list(corpus[0])
        made.add(named[:250], vectors[:250])
        made.add(named[250:], vectors[250:])
        for condition, k_prime, by_sample in (("n >= 0", 300, True), ("n >= 0", 40, False), ("n >= 200", 40, False)):
            for query in corpus[1][1:]:
                used.clear()
                options = {"k": 10, "alignment": f"xtr:{k_prime}", "filter": condition}
                (found,) = made.search(query, **options, **WIDE)
                assert bool(used) == by_sample
                (truth,) = made.search(query, **options, exact=True)
                assert len({*found.ids} & {*truth.ids}) >= (8 if by_sample else 10)


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=4).filter(any),
    k_prime=st.integers(1, 80),
    seed=st.integers(0, 99),
)
def test_of_all_similarities_it_is_the_kth(lengths, k_prime, seed):
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal((3, n)).astype(np.float32) for n in lengths]
    found = kth_similarity([Top.of(part, 1.0, k_prime) for part in parts], k_prime)
    expected = -np.sort(-np.concatenate(parts, axis=1), axis=1)
    last = min(k_prime, expected.shape[1])
    assert found.tolist() == expected[:, last - 1].tolist()
