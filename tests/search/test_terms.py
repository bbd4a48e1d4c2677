"""What a search says its scores are made of adds up to them, under every alignment and in every kind of segment."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
import weft
from strategies import problems
from weft import Alignment, Document, TokenVectors
from weft.search import Index
from weft.storage import merger

# Every alignment that a search takes ("attention" needs a matrix, "xtr-in-batch" is for training).
ALIGNMENTS = [
    "sum-of-max",
    "sum-of-max,z=query",
    "sum-of-max,z=sum",
    "top-k:2",
    "top-k:3,z=one",
    "top-p:0.5",
    "single-vector",
    "first-k-max:2",
    "exact-match",
    "da:2",
    "document-to-query",
    "xtr:3",
    "xtr:3,impute=zero",
    "xtr:3,impute=0.4",
    "xtr:3,impute=none",
    "xtr:3,impute=none,z=one",
    "xtr:3,z=sum",
    "xtr:3,z=one",
]


def test_the_list_is_whole():
    tried = {type(Alignment.parse(text)).name for text in ALIGNMENTS}
    assert tried | {"attention", "xtr-in-batch"} == {Alignment._registry[name].name for name in Alignment.names()}


def check(ranking, query, documents, imputes):
    """Sums are the scores, pairs are pairs of real tokens, similarities are their inner products."""
    assert len(ranking.hits) == len(ranking.z) == len(ranking)
    for rank, (result, hits) in enumerate(zip(ranking, ranking.hits, strict=True)):
        size = np.abs(ranking.contributions(rank)).sum()
        assert ranking.contributions(rank).sum() == pytest.approx(result.score, rel=1e-4, abs=1e-4 * (1 + size))
        D = documents[int(result.id[1:])]
        real = hits.document_token >= 0
        assert imputes or real.all()
        pairs = list(zip(hits.query_token.tolist(), hits.document_token.tolist(), strict=True))
        assert len(set(pairs)) == len(pairs)
        products = [float(np.dot(query[i], D[j])) for (i, j), r in zip(pairs, real, strict=True) if r]
        np.testing.assert_allclose(hits.similarity[real], products, rtol=1e-3, atol=1e-3)


@settings(max_examples=100)
@given(problem=problems(), alignment=st.sampled_from(ALIGNMENTS), exact=st.booleans(), pruned=st.booleans())
def test_contributions_sum_to_the_score(tmp_path_factory, problem, alignment, exact, pruned):
    Q, D, u_q, u_d, ids_q, ids_d = problem
    query = TokenVectors.from_list([Q], [ids_q], None if u_q is None else [u_q])
    texts = TokenVectors.from_list(D, ids_d, u_d)
    with Index.create(tmp_path_factory.mktemp("i") / "i", dim=Q.shape[1]) as index:
        index.add([Document(f"d{i}", "", {"odd": i % 2 == 1}) for i in range(len(D))], texts)
        beta_q = 0.5 if pruned and u_q is not None else None
        for kept in (None, "odd"):
            (ranking,) = index.search(query, 20, alignment=alignment, exact=exact, beta_q=beta_q, filter=kept)
            check(ranking, Q, D, "xtr" in alignment and "none" not in alignment)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("bits", [8, 2])
def test_in_coded_segments(alignment, bits, tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    D = [rng.standard_normal((int(rng.integers(0, 20)), 8)).astype(np.float32) for _ in range(60)]
    ids = [rng.integers(0, 9, len(d)) for d in D]
    salience = [rng.random(len(d)).astype(np.float32) for d in D]
    monkeypatch.setattr(merger, "CODED_TOKENS", 200)
    monkeypatch.setattr(merger, "CODED_SHARE", 1)
    with Index.create(tmp_path / "c", 8, bits=bits) as index:
        named = [Document(f"d{i}", "", {"n": i}) for i in range(60)]
        index.add(named[:50], TokenVectors.from_list(D[:50], ids[:50], salience[:50]))
        index.add(named[50:], TokenVectors.from_list(D[50:], ids[50:], salience[50:]))
        coded = [s.segment.coded for s in index.view().__enter__().segments]
        assert coded == [True, False]
        Q = rng.standard_normal((4, 8)).astype(np.float32)
        query = TokenVectors.from_list([Q], [rng.integers(0, 9, 4)], [[1.0, 0.5, 0.0, 2.0]])
        stored = [index.vectors(f"d{i}")[0] for i in range(60)]
        for options in ({}, {"exact": True}, {"filter": "n >= 30"}):
            (ranking,) = index.search(query, k=12, alignment=alignment, **options)
            assert len(ranking) > 0
            check(ranking, Q, stored, "xtr" in alignment and "none" not in alignment)


def test_what_is_imputed_is_named(tmp_path):
    # The paper's own case: q0 retrieves tokens of both documents, q1 of the first alone.
    D = [[[0.9, 0.6], [0.1, 0.5]], [[0.7, 0.3]]]
    with Index.create(tmp_path / "x", 2) as index:
        index.add(["d0", "d1"], TokenVectors.from_list(D))
        (ranking,) = index.search(np.eye(2), alignment="xtr:2")
    assert ranking.ids == ("d0", "d1")
    assert [h.document_token.tolist() for h in ranking.hits] == [[0, 0], [0, -1]]
    assert ranking.hits[1].similarity.tolist() == pytest.approx([0.7, 0.5])
    assert ranking.contributions(1).tolist() == pytest.approx([0.35, 0.25])
    S = [oracles.similarities(np.eye(2), d) for d in D]
    assert ranking.scores.tolist() == pytest.approx(oracles.xtr(S, 2, "kth"))


@pytest.mark.parametrize("alignment", ["xtr:2,z=sum", "xtr:2,z=one", "xtr:2,impute=none,z=one"])
def test_every_z_of_xtr_is_the_definition_s(alignment, tmp_path):
    D = TokenVectors.from_list([[[0.9, 0.6], [0.1, 0.5]], [[0.7, 0.3]]])
    with Index.create(tmp_path / "x", 2) as index:
        index.add(["d0", "d1"], D)
        (ranking,) = index.search(np.eye(2), alignment=alignment)
    expected = dict(zip(("d0", "d1"), weft.score(np.eye(2), D, alignment).tolist(), strict=True))
    assert dict(map(tuple, ranking)) == pytest.approx(expected)


def test_hits_name_the_tokens_of_the_query_as_it_was_given(tmp_path):
    with Index.create(tmp_path / "q", 4) as index:
        index.add(["d0"], TokenVectors.from_list([np.eye(4)]))
        query = TokenVectors.from_list([np.eye(4)], salience=[[0.1, 0.9, 0.2, 0.8]])
        (ranking,) = index.search(query, beta_q=0.5)
    assert ranking.hits[0].query_token.tolist() == [1, 3]
    assert ranking.hits[0].document_token.tolist() == [1, 3]
    assert ranking.hits[0].weight.tolist() == pytest.approx([0.9, 0.8])


def test_a_training_alignment_is_refused(tmp_path):
    with Index.create(tmp_path / "t", 2) as index, pytest.raises(weft.WeftError, match="xtr:k_prime"):
        index.search(np.eye(2), alignment="xtr-in-batch:4")


@pytest.mark.parametrize("alignment", ["sum-of-max", "top-k:2", "da:2", "xtr:6", "xtr:6,impute=none"])
@pytest.mark.parametrize("only", [None, "n != 3"])
def test_among_ranks_some_as_they_are_scored_among_all(alignment, only, tmp_path):
    rng = np.random.default_rng(8)
    with Index.create(tmp_path / "a", 4) as index:
        for start in (0, 6):
            documents = [Document(f"d{i}", "", {"n": i}) for i in range(start, start + 6)]
            index.add(documents, TokenVectors.from_list([rng.standard_normal((5, 4)) for _ in documents]))
        index.delete("d5")
        query = rng.standard_normal((3, 4))
        (every,) = index.search(query, 20, alignment=alignment, filter=only)
        wanted = ["d1", "d3", "d5", "d7", "d11", "none"]
        (some,) = index.search(query, 20, alignment=alignment, filter=only, among=wanted)
        assert [r.id for r in some] == [r.id for r in every if r.id in wanted]
        assert some.scores.tolist() == [r.score for r in every if r.id in wanted]
        assert some.contributions(0).sum() == pytest.approx(some.scores[0], rel=1e-5)
        assert len(index.search(query, alignment=alignment, among=[])[0]) == 0


def test_an_imputed_similarity_may_exceed_a_retrieved_one(tmp_path):
    # Of two tokens the better one, at -1, was retrieved; what the other may be counts 0, which is more.
    with Index.create(tmp_path / "m", 2) as index:
        index.add(["d0"], TokenVectors.from_list([[[-1.0, 0.0], [-2.0, 0.0]]]))
        (ranking,) = index.search([[1.0, 0.0]], alignment="xtr:1,impute=zero")
        (whole,) = index.search([[1.0, 0.0]], alignment="xtr:2,impute=zero")
    assert (ranking.hits[0].document_token.tolist(), ranking.scores.tolist()) == ([-1], [0.0])
    assert (whole.hits[0].document_token.tolist(), whole.scores.tolist()) == ([0], [-1.0])
