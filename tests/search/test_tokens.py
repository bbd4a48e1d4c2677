"""XTR in a search, at the default effort, against a brute force over the stored vectors (eq. 3-4)."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import Document, TokenVectors
from weft.alignment import register_imputation
from weft.errors import InvalidParameterError
from weft.search import Index, tokens
from weft.storage import merger

DIM, N = 16, 300


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


@pytest.fixture(scope="module", params=[8, 4, 2])
def index(request, corpus, tmp_path_factory):
    """A coded segment of 250 documents and a flat one of 50."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merger, "CODED_TOKENS", 1000)
        patch.setattr(merger, "CODED_SHARE", 1)
        with Index.create(tmp_path_factory.mktemp("tokens") / "t.weft", DIM, bits=request.param) as made:
            named = [Document(f"d{i}", metadata={"n": i}) for i in range(N)]
            vectors = TokenVectors.from_list(corpus[0])
            made.add(named[:250], vectors[:250])
            made.add(named[250:], vectors[250:])
            with made.view() as view:
                assert [s.segment.coded for s in view.segments] == [True, False]
            yield made


def stored(index, kept=range(N)):
    return [index.vectors(f"d{i}")[0].astype(np.float64) for i in kept]


def brute_force(query, documents, k_prime, impute):
    """The scores of eq. 4, −∞ for documents of which nothing was retrieved; imports nothing of weft."""
    all_S = [query.astype(np.float64) @ d.T for d in documents]  # (n, m) each
    joined = np.concatenate(all_S, axis=1)
    k_prime = min(k_prime, joined.shape[1])
    kth = -np.sort(-joined, axis=1)[:, k_prime - 1]
    scores = []
    for S in all_S:
        retrieved = kth[:, None] - 1e-9 <= S
        if not retrieved.any():
            scores.append(-np.inf)
            continue
        found = np.where(retrieved, S, -np.inf).max(axis=1)
        if impute == "none":
            scores.append(found[retrieved.any(axis=1)].mean())
            continue
        m = {"kth": kth, "zero": np.zeros_like(kth)}.get(impute)
        m = np.full_like(kth, float(impute)) if m is None else m
        filled = np.where(retrieved, S, m[:, None])
        scores.append(filled.max(axis=1).mean())
    return np.array(scores)


def overlap(ranking, expected, first, k, close):
    """The share of results that the brute force has among its k best, up to ties."""
    k = min(k, int((expected > -np.inf).sum()))
    assert len(ranking) == k
    least = np.sort(expected)[::-1][k - 1] - close
    return np.mean([expected[int(id[1:]) - first] >= least for id in ranking.ids])  # noqa: A001


@pytest.mark.parametrize("impute", ["kth", "zero", "0.2", "0.9", "none"])
@pytest.mark.parametrize("k_prime", [1, 10, 100, 1000, 40_000])
@pytest.mark.parametrize("first", [0, 290])
def test_the_default_effort_is_eq_4(index, corpus, impute, k_prime, first):
    documents = stored(index, range(first, N))
    for query in corpus[1]:
        (ranking,) = index.search(query, 10, alignment=f"xtr:{k_prime},impute={impute}", filter=f"n >= {first}")
        expected = brute_force(query, documents, k_prime, impute)
        assert ranking.retrieval.how == "scanned"  # too few tokens for a sample
        assert overlap(ranking, expected, first, 10, 1e-4) == 1
        for result in ranking:
            assert result.score == pytest.approx(expected[int(result.id[1:]) - first], abs=2e-4)
        for rank in range(len(ranking)):
            assert ranking.contributions(rank).sum() == pytest.approx(ranking.scores[rank], rel=1e-6)


@pytest.mark.parametrize("impute", ["kth", "zero", "0.2", "none"])
def test_exactly_is_eq_4(index, corpus, impute):
    documents = stored(index)
    for query in corpus[1]:
        (ranking,) = index.search(query, 20, alignment=f"xtr:60,impute={impute}", exact=True)
        expected = brute_force(query, documents, 60, impute)
        assert ranking.retrieval.how == "exact"
        assert ranking.retrieval.k_prime == 60
        assert overlap(ranking, expected, 0, 20, 1e-5) == 1


@pytest.mark.parametrize("spec", ["xtr", "xtr:40,z=one", "xtr:40,impute=none,z=one", "xtr:400,impute=zero"])
def test_scores_are_those_of_weft_score(index, corpus, spec):
    documents = TokenVectors.from_list([v.astype(np.float32) for v in stored(index)])
    for query in corpus[1]:
        expected = weft.score(query, documents, spec)
        (ranking,) = index.search(query, 20, alignment=spec)
        for result in ranking:
            assert result.score == pytest.approx(float(expected[int(result.id[1:])]), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("bits", [8, 4])
def test_a_sample_tells_the_kth(bits, tmp_path, monkeypatch):
    """Where k′ is large, m_i comes from some tokens, the ranking says so, and is nearly the same."""
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000)
    rng = np.random.default_rng(0)
    words = unit(rng.standard_normal((80, DIM)))
    documents = [unit(words[rng.integers(0, 80, 30)] + 0.3 * rng.standard_normal((30, DIM))) for _ in range(2000)]
    with Index.create(tmp_path / "s.weft", DIM, bits=bits) as index:
        index.build((f"d{i}", v) for i, v in enumerate(documents))
        kept = [index.vectors(f"d{i}")[0].astype(np.float64) for i in range(2000)]
        shares, ranks = [], []
        for _ in range(20):  # the first is compared with the sample's tokens one by one, the others by cells
            query = unit(words[rng.integers(0, 80, 8)] + 0.1 * rng.standard_normal((8, DIM)))
            (ranking,) = index.search(query, 10, alignment="xtr:2000")
            assert ranking.retrieval.how == "sampled"
            shares.append(overlap(ranking, brute_force(query, kept, 2000, "kth"), 0, 10, 0.002))
            S = np.concatenate([query.astype(np.float64) @ d.T for d in kept], axis=1)
            ranks.append((ranking.retrieval.last[:, None] <= S).sum(axis=1))
    assert np.mean(shares) >= 0.95
    # Of the k′ best, about RANK are in the sample: what stands there is known to one part in √RANK.
    share = 1 / np.sqrt(tokens.RANK)
    for part in (ranks[:1], ranks[1:]):
        assert abs(np.mean(part) / 2000 - 1) < share
        assert np.abs(np.array(part) / 2000 - 1).max() < 5 * share


def test_a_sample_is_of_what_a_filter_keeps(tmp_path, monkeypatch):
    """Samples are kept by what they were drawn from: all documents, one filter's, another's, and after a delete."""
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000)
    monkeypatch.setattr(tokens, "LEAST", 1000)
    rng = np.random.default_rng(1)
    near, far = unit(rng.standard_normal((2, DIM)))
    documents = [unit((near, far)[i % 2] + 0.3 * rng.standard_normal((30, DIM))) for i in range(1200)]
    query = unit(near + 0.05 * rng.standard_normal((4, DIM)))
    with Index.create(tmp_path / "f.weft", DIM) as index:
        named = [Document(f"d{i}", metadata={"odd": i % 2, "i": i}) for i in range(1200)]
        index.add(named[:900], TokenVectors.from_list(documents[:900]))
        index.add(named[900:], TokenVectors.from_list(documents[900:]))

        def check(text, kept):
            (ranking,) = index.search(query, 10, alignment="xtr:600", filter=text)
            S = np.concatenate([query @ index.vectors(f"d{i}")[0].T for i in kept], axis=1)
            assert ranking.retrieval.how == "sampled"
            assert np.abs((ranking.retrieval.last[:, None] <= S).sum(axis=1) / 600 - 1).max() < 5 / np.sqrt(tokens.RANK)

        for _ in range(2):
            check(None, range(1200))
            check("odd == 0", range(0, 1200, 2))
            check("odd == 1", range(1, 1200, 2))
            check("i < 500", range(500))
        index.delete([f"d{i}" for i in range(0, 600, 2)])
        check(None, [i for i in range(1200) if i % 2 or i >= 600])


def test_a_sample_is_of_the_size_that_it_should_be(index, corpus, monkeypatch):
    monkeypatch.setattr(tokens, "RANK", 20)
    monkeypatch.setattr(tokens, "LEAST", 0)
    query = corpus[1][2]
    (ranking,) = index.search(query, 10, alignment="xtr:1000")
    (exact,) = index.search(query, 10, alignment="xtr:1000", exact=True)
    assert ranking.retrieval.how == "sampled"
    assert np.abs(ranking.retrieval.last - exact.retrieval.last).mean() < 0.15


def test_documents_named_are_scored_as_among_all(index, corpus):
    query = corpus[1][2]
    for spec in ("xtr:300", "xtr:30,impute=none", "xtr:30,impute=zero"):
        (whole,) = index.search(query, N, alignment=spec)
        some = whole.ids[3:9]
        (ranking,) = index.search(query, N, alignment=spec, among=some)
        assert sorted(ranking.ids) == sorted(some)
        assert ranking.scores == pytest.approx(whole.scores[3:9], rel=1e-5)


def test_registered_imputations_search_as_they_score(index, corpus):
    def own_mean(pairs, retrieved, last):  # of the document's own similarities
        total = np.where(pairs.valid, pairs.S, 0).sum(axis=-1)
        return total / np.maximum(pairs.document_lengths, 1)[None, :, None]

    with contextlib.suppress(InvalidParameterError):  # of an index before
        register_imputation("half-kth-test", lambda pairs, retrieved, last: last / 2)
        register_imputation("own-mean-test", own_mean)
    documents = TokenVectors.from_list([v.astype(np.float32) for v in stored(index)])
    for name in ("half-kth-test", "own-mean-test"):
        spec = f"xtr:60,impute={name}"
        for query in corpus[1]:
            (ranking,) = index.search(query, 10, alignment=spec)
            expected = weft.score(query, documents, spec)
            assert len(ranking) == 10
            for result in ranking:
                assert result.score == pytest.approx(float(expected[int(result.id[1:])]), abs=1e-3)


@pytest.mark.parametrize(
    ("name", "estimate", "message"),
    [
        ("nan-test", lambda pairs, retrieved, last: last * np.nan, "finite"),
        ("shape-test", lambda pairs, retrieved, last: last[:, :-1], "shape"),
    ],
)
def test_bad_imputations_say_so(index, corpus, name, estimate, message):
    with contextlib.suppress(InvalidParameterError):  # of an index before
        register_imputation(name, estimate)
    with pytest.raises(InvalidParameterError, match=message):
        index.search(corpus[1][1], 5, alignment=f"xtr:10,impute={name}")


def test_nothing_left_by_a_filter(index, corpus):
    for spec in ("xtr", "xtr:10,impute=none", "xtr:10,impute=zero"):
        (ranking,) = index.search(corpus[1][1], 5, alignment=spec, filter="n > 1000")
        assert len(ranking) == 0


def test_from_retrieved_tokens_alone(index, corpus, monkeypatch):
    """refine=0 takes no sample and gathers no document, however large k′ is."""
    monkeypatch.setattr(tokens, "LEAST", 0)
    query = corpus[1][2]
    (alone,) = index.search(query, 10, alignment="xtr:1000", refine=0)
    assert alone.retrieval.how == "scanned"
    assert overlap(alone, brute_force(query, stored(index), 1000, "kth"), 0, 10, 1e-4) == 1


def test_the_kth_of_many_similar_tokens(tmp_path, monkeypatch):
    """Noise, in which rounding to bytes changes the order of many: none may be missed for it."""
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000)
    rng = np.random.default_rng(3)
    documents = [unit(rng.standard_normal((40, 64))) for _ in range(500)]
    query = unit(rng.standard_normal((33, 64)))
    with Index.create(tmp_path / "noise.weft", 64) as index:
        index.build((f"d{i}", v) for i, v in enumerate(documents))
        kept = np.concatenate([index.vectors(f"d{i}")[0] for i in range(500)])
        S = -np.sort(-(query @ kept.T), axis=1)
        for k_prime in (1, 30, 3000, 19_000):
            for exact in (True, False):
                spec = f"xtr:{k_prime},impute=zero"
                (ranking,) = index.search(query, 5, alignment=spec, exact=exact)
                assert ranking.retrieval.last == pytest.approx(S[:, k_prime - 1], abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 6), st.integers(1, 50), st.lists(st.integers(0, 7), min_size=1, max_size=8), st.integers(0, 2**31)
)
def test_the_native_retrieval_is_the_definition(n, k_prime, lengths, seed):
    """All negative similarities, empty documents, ties: `TokenRetrieval` against weft.score."""
    rng = np.random.default_rng(seed)
    documents = TokenVectors.from_list([rng.integers(-2, 1, (m, 4)).astype(np.float32) for m in lengths], dim=4)
    query = rng.integers(0, 3, (n, 4)).astype(np.float32)
    retrieval = weft._native.TokenRetrieval(n, k_prime)
    S = np.ascontiguousarray(query @ documents.values.T)
    retrieval.add(S, documents.offsets, np.arange(len(lengths)))
    last = retrieval.settle()
    spec = f"xtr:{k_prime},impute=zero"
    found, scores, values, _ = retrieval.score(documents.lengths, np.zeros(n, np.float32), True, len(lengths), None)
    expected = weft.score(query, documents, spec)
    assert scores == pytest.approx(expected[found], abs=1e-6)
    assert values.sum(axis=1) / n == pytest.approx(expected[found], abs=1e-6)
    if documents.n_tokens:
        kth = -np.sort(-S, axis=1)[:, min(k_prime, documents.n_tokens) - 1]
        assert last == pytest.approx(kth)


@pytest.mark.parametrize("refine", [None, 0])
def test_similarities_beyond_single_precision_are_refused(tmp_path, refine):
    with Index.create(tmp_path / "h", 2) as index:
        index.add(["d0", "d1"], TokenVectors.from_list([[[1.0, 1.0]], [[1.0, 0.5]]]))
        with pytest.raises(InvalidParameterError, match="finite"):
            index.search(np.full((1, 2), 3e38), alignment="xtr:1", refine=refine)
