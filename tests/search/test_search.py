"""Search equals brute force over a plain list of documents, whatever was added, replaced or deleted before."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import weft
from strategies import problems
from weft import Document, TokenVectors, WeftError
from weft.evaluation.imputed_hits import largest
from weft.search import Index, merged
from weft.storage.pruning import prune


@pytest.fixture
def index(tmp_path):
    with Index.create(tmp_path / "a.weft", dim=4) as made:
        yield made


def corpus(n, rng, dim=4, longest=7):
    return [rng.standard_normal((int(rng.integers(1, longest)), dim)).astype(np.float32) for _ in range(n)]


def fill(index, documents, step=3, **extra):
    """Add documents d0, d1, … in several commits, so that there are several segments."""
    for start in range(0, len(documents), step):
        part = documents[start : start + step]
        index.add(
            [Document(f"d{start + i}", metadata={"n": start + i}) for i in range(len(part))],
            TokenVectors.from_list(part),
        )


ALIGNMENTS = ["sum-of-max", "sum-of-max,z=query", "top-k:2", "top-p:0.5", "da:2", "document-to-query"]


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_equals_brute_force(index, alignment):
    rng = np.random.default_rng(0)
    documents = corpus(20, rng)
    fill(index, documents)
    queries = TokenVectors.from_list(corpus(3, rng))
    expected = weft.score(queries, TokenVectors.from_list(documents), alignment)
    for ranking, scores in zip(index.search(queries, k=6, alignment=alignment), expected, strict=True):
        best = np.argsort(-scores, kind="stable")[:6]
        assert [result.id for result in ranking] == [f"d{i}" for i in best]
        assert ranking.scores == pytest.approx(scores[best], rel=1e-5)
        assert ranking.certified
        assert ranking.margin == pytest.approx(np.sort(scores)[-6] - np.sort(scores)[-7], abs=1e-5)


@pytest.mark.parametrize(
    "alignment", ["xtr:5", "xtr:5,impute=none", "xtr:5,impute=zero", "xtr:5,impute=0.2", "xtr:1000"]
)
def test_xtr_equals_its_definition_on_the_candidates(index, alignment):
    rng = np.random.default_rng(1)
    documents = corpus(15, rng)
    fill(index, documents, step=4)
    query = corpus(1, rng)[0]
    (ranking,) = index.search(query, k=50, alignment=alignment)
    expected = weft.score(query, TokenVectors.from_list(documents), alignment)
    assert 0 < len(ranking) <= 15
    for result in ranking:
        assert result.score == pytest.approx(float(expected[int(result.id[1:])]), rel=1e-5, abs=1e-6)
    assert not ranking.certified


@given(values=arrays(np.float32, (3, 12), elements=st.integers(0, 4)), k=st.integers(1, 12))
def test_of_equal_similarities_the_first_are_the_largest(values, k):
    expected = np.sort(np.argsort(-values, axis=1, kind="stable")[:, :k], axis=1)
    np.testing.assert_array_equal(largest(values, k), expected)


def test_xtr_alone_takes_a_k_prime_that_suits_what_is_searched(index, monkeypatch):
    monkeypatch.setattr("weft.alignment.xtr.LEAST_K_PRIME", 2)
    monkeypatch.setattr("weft.alignment.xtr.K_PRIME_SHARE", 0.25)
    rng = np.random.default_rng(1)
    documents = corpus(40, rng)
    fill(index, documents, step=15)
    index.remember_alignment("xtr")
    assert index.alignment == "xtr"
    query = corpus(1, rng)[0]
    for least in (0, 20):  # a filter makes another collection of it
        k_prime = round(0.25 * sum(map(len, documents[least:])))
        (own,) = index.search(query, k=50, filter=f"n >= {least}")
        (same,) = index.search(query, k=50, filter=f"n >= {least}", alignment=f"xtr:{k_prime}")
        (other,) = index.search(query, k=50, filter=f"n >= {least}", alignment=f"xtr:{k_prime + 5}")
        assert own.ids == same.ids
        np.testing.assert_array_equal(own.scores, same.scores)
        assert len(own) != len(other) or np.abs(own.scores - other.scores).max() > 1e-4
    expected = weft.score(query, TokenVectors.from_list(documents), "xtr")
    (ranking,) = index.search(query, k=50)
    for result in ranking:
        assert result.score == pytest.approx(float(expected[int(result.id[1:])]), rel=1e-5, abs=1e-6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(problem=problems(), k_prime=st.integers(1, 9), impute=st.sampled_from(["kth", "zero", "none", "0.7"]))
def test_xtr_on_odd_collections(tmp_path_factory, problem, k_prime, impute):
    Q, D, *_ = problem
    with Index.create(tmp_path_factory.mktemp("odd") / "i", dim=Q.shape[1]) as index:
        index.add([f"d{i}" for i in range(len(D))], TokenVectors.from_list(D))
        alignment = f"xtr:{k_prime},impute={impute}"
        (ranking,) = index.search(Q, k=20, alignment=alignment)
        expected = weft.score(Q, TokenVectors.from_list(D), alignment)
        for result in ranking:
            assert result.score == pytest.approx(float(expected[int(result.id[1:])]), rel=1e-4, abs=1e-5)


def test_hits_sum_to_the_score(index):
    rng = np.random.default_rng(2)
    fill(index, corpus(9, rng))
    query = corpus(1, rng)[0]
    for alignment, z in (("sum-of-max", 1), ("top-k:2", None)):
        (ranking,) = index.search(query, k=4, alignment=alignment)
        for result, hits in zip(ranking, ranking.hits, strict=True):
            total = hits.similarity.sum() / (z or len(hits))
            assert total == pytest.approx(result.score, rel=1e-5)


def test_deleted_and_replaced_documents_are_gone_at_once(index):
    index.add(["a", "b"], TokenVectors.from_list([np.eye(4)[:1], np.eye(4)[1:2]]))
    query = np.eye(4)[:1]
    assert index.search(query)[0][0].id == "a"
    index.delete("a")
    assert [r.id for r in index.search(query)[0]] == ["b"]
    index.add(["b"], TokenVectors.from_list([np.eye(4)[:1] * 5]))
    assert [tuple(r) for r in index.search(query)[0]] == [("b", 5.0)]


def test_filter_comes_before_scoring(index):
    rng = np.random.default_rng(3)
    documents = corpus(30, rng)
    fill(index, documents)
    query = corpus(1, rng)[0]
    scores = weft.score(query, TokenVectors.from_list(documents))
    kept = [i for i in range(30) if i % 7 == 3]
    (ranking,) = index.search(query, k=3, filter=f"n in {kept}")
    best = sorted(kept, key=lambda i: -scores[i])[:3]
    assert [r.id for r in ranking] == [f"d{i}" for i in best]
    assert len(index.search(query, filter="n > 1000")[0]) == 0


def test_query_pruning_searches_with_the_salient_tokens(index):
    fill(index, corpus(8, np.random.default_rng(4)))
    rng = np.random.default_rng(5)
    query = TokenVectors.from_list([rng.standard_normal((4, 4))], salience=[[0.1, 0.9, 0.2, 0.8]])
    kept = TokenVectors.from_list([query[0][[1, 3]]], salience=[[0.9, 0.8]])
    pruned, expected = index.search(query, beta_q=0.5)[0], index.search(kept)[0]
    assert list(pruned) == list(expected)


def test_saliences_that_only_choose_tokens(tmp_path):
    """With salience_weighs=False saliences prune both sides, and the scores are those of the kept tokens alone."""
    rng = np.random.default_rng(6)
    texts = TokenVectors.from_list(
        [rng.normal(size=(6, 4)) for _ in range(5)], salience=[rng.permutation(6) / 6 + 0.1 for _ in range(5)]
    )
    query = TokenVectors.from_list([rng.normal(size=(4, 4))], salience=[[0.9, 0.1, 0.8, 0.2]])
    with Index.create(tmp_path / "w.weft", dim=4, beta_d=0.5, salience_weighs=False) as index:
        index.add(list("abcde"), texts)
        (ranking,) = index.search(query, 5, beta_q=0.5)
        assert index.info()["salience_weighs"] is False
        assert index.vectors("a").salience is None
    kept = prune(texts, 0.5)
    expected = [float((query[0][[0, 2]] @ kept[i].T).max(axis=1).sum()) for i in range(5)]
    assert ranking.ids == tuple("abcde"[i] for i in np.argsort(expected)[::-1])
    np.testing.assert_allclose(ranking.scores, np.sort(expected)[::-1], rtol=1e-5)


def test_document_pruning_stores_the_salient_tokens(tmp_path):
    with Index.create(tmp_path / "p.weft", dim=4, beta_d=0.5) as index:
        index.add(["a"], TokenVectors.from_list([np.eye(4)], salience=[[0.1, 0.9, 0.2, 0.8]]))
        assert index.vectors("a").values.tolist() == np.eye(4)[[1, 3]].tolist()
        assert index.info()["beta_d"] == 0.5
        with pytest.raises(WeftError, match=r"beta_d.*without saliences"):
            index.add(["b"], TokenVectors.from_list([np.eye(4)]))


def test_empty_things(index):
    assert [len(r) for r in index.search(np.ones((2, 4)))] == [0]
    index.add(["empty"], TokenVectors.from_list([np.zeros((0, 4))]))
    index.add(["full"], TokenVectors.from_list([-np.ones((1, 4))]))
    # A document without tokens has no score to rank by, even below all others.
    assert [r.id for r in index.search(np.ones((2, 4)))[0]] == ["full"]
    assert index.search(TokenVectors.from_list([], dim=4)) == []
    assert [r.score for r in index.search(np.zeros((0, 4)))[0]] == [0.0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"queries": np.ones((2, 3))}, "'queries'.*dimension, 4.*3"),
        ({"queries": np.full((1, 4), np.nan)}, "finite"),
        ({"k": 0}, "'k'.*>= 1.*0"),
        ({"threads": 0}, "'threads'.*>= 1.*0"),
        ({"alignment": "maxx"}, "'alignment'.*'maxx'"),
        ({"alignment": "coil"}, "query_tokens"),
        ({"filter": "n >="}, "bad filter"),
        ({"beta_q": 0.5}, "beta_q.*without saliences"),
    ],
)
def test_mistakes(index, arguments, words):
    index.add(["a"], TokenVectors.from_list([np.ones((1, 4))]))
    with pytest.raises(WeftError, match=words):
        index.search(**{"queries": np.ones((2, 4)), **arguments})


def test_threads_search_side_by_side(index, monkeypatch):
    """As many searches as there are threads are under way at one moment."""
    rng = np.random.default_rng(8)
    documents = corpus(12, rng)
    fill(index, documents)
    query = rng.standard_normal((3, 4)).astype(np.float32)
    (alone,) = index.search(query, k=5)
    together, rank = threading.Barrier(4), merged.rank

    def met(*arguments):
        together.wait(timeout=60)  # breaks if they come one by one
        return rank(*arguments)

    monkeypatch.setattr("weft.search.index.rank", met)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: index.search(query, k=5)[0], range(4)))
    assert [ranking.ids for ranking in found] == [alone.ids] * 4
