"""A score is the sum of the pairs that a ranking shows for it, to the last bit: one computation, not two that agree."""

from itertools import pairwise

import numpy as np
import pytest

import oracles
from weft import Alignment, Document, TokenVectors
from weft.search import Index
from weft.storage import merger

DIM = 16
DOCUMENTS = 90

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
    "xtr:40",
    "xtr:40,impute=zero",
    "xtr:40,impute=0.4",
    "xtr:40,impute=none",
    "xtr:40,impute=none,z=one",
    "xtr:40,z=sum",
    "xtr:40,z=one",
    "xtr",
]
KINDS = [(kind, False) for kind in ("flat", "coded-8", "coded-4", "coded-2", "mixed-8", "mixed-4", "mixed-2")]
KINDS += [(kind, True) for kind in ("flat", "mixed-8", "mixed-2")]  # with saliences


def test_the_list_is_whole():
    tried = {type(Alignment.parse(text)).name for text in ALIGNMENTS}
    assert tried | {"attention", "xtr-in-batch"} == {Alignment._registry[name].name for name in Alignment.names()}


@pytest.fixture(scope="module", params=KINDS, ids=str)
def made(request, tmp_path_factory):
    """An index of one kind, queries, and what is stored: vectors, token ids and saliences by document."""
    kind, salient = request.param
    form, _, bits = kind.partition("-")
    rng = np.random.default_rng(5)
    topics = rng.standard_normal((9, DIM))
    lengths = [int(rng.integers(1, 15)) for _ in range(DOCUMENTS)]
    lengths[17] = 0
    D = [topics[rng.integers(0, 9, m)] + 0.6 * rng.standard_normal((m, DIM)) for m in lengths]
    D = [(d / np.maximum(np.linalg.norm(d, axis=1, keepdims=True), 1e-9)).astype(np.float32) for d in D]
    ids = [rng.integers(0, 9, m) for m in lengths]
    salience = [rng.gamma(2, 0.5, m).astype(np.float32) for m in lengths] if salient else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merger, "CODED_TOKENS", 10**9 if form == "flat" else 150)
        patch.setattr(merger, "CODED_SHARE", 1)
        with Index.create(tmp_path_factory.mktemp("one") / "i", DIM, bits=int(bits or 8), merge="off") as index:
            steps = [0, 50, 85, DOCUMENTS] if form == "mixed" else [0, 45, DOCUMENTS]
            for a, b in pairwise(steps):
                named = [Document(f"d{i}", "", {"n": i}) for i in range(a, b)]
                index.add(named, TokenVectors.from_list(D[a:b], ids[a:b], salience and salience[a:b]))
            index.delete("d3")
            with index.view() as view:
                coded = [s.segment.coded for s in view.segments]
            assert coded == {"flat": [False] * 2, "coded": [True] * 2, "mixed": [True, True, False]}[form]
            queries = []
            for i in range(3):
                Q = topics[rng.integers(0, 9, 5)] + 0.5 * rng.standard_normal((5, DIM))
                Q = (Q / np.linalg.norm(Q, axis=1, keepdims=True)).astype(np.float32)
                weights = [rng.random(5).astype(np.float32)] if salient and i else None
                queries.append(TokenVectors.from_list([Q], [rng.integers(0, 9, 5)], weights))
            stored = {f"d{i}": index.vectors(f"d{i}") for i in range(DOCUMENTS) if i != 3}
            yield index, queries, stored


def brute_force(query, document, alignment):
    """The score of one document by the papers' text; None for XTR, which needs all documents."""
    Q = query.values.astype(np.float64)
    S = oracles.similarities(Q, document.values.astype(np.float64))
    m = len(document.values)
    name, _, rest = alignment.partition(",")
    kind, _, number = name.partition(":")
    A = {
        "sum-of-max": lambda: oracles.top_k(S, m, 1),
        "top-k": lambda: oracles.top_k(S, m, int(number)),
        "top-p": lambda: oracles.top_p(S, m, round(float(number) * 10_000)),
        "single-vector": lambda: oracles.single_vector(S, m),
        "first-k-max": lambda: oracles.first_k_max(S, m, int(number)),
        "exact-match": lambda: oracles.exact_match(S, m, query.token_ids.tolist(), document.token_ids.tolist()),
        "document-to-query": lambda: oracles.document_to_query(S, m, Alignment.parse(alignment).temperature),
    }[kind]()
    z = rest.removeprefix("z=") or Alignment.parse(alignment).divides_by
    return oracles.relevance(S, A, z, query.salience, document.salience)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_the_pairs_shown_are_the_score(made, alignment):
    index, queries, stored = made
    for query, options in zip(queries, ({}, {"filter": "n >= 30", "k": 12}, {"exact": True, "k": 3}), strict=True):
        (shown,) = index.search(query, alignment=alignment, **options)
        assert len(shown) > 0
        for r in range(len(shown)):
            assert np.float32(shown.contributions(r).sum()) == shown.scores[r]
        (bare,) = index.search(query, alignment=alignment, hits=False, **options)
        assert bare.hits is None
        assert bare.ids == shown.ids
        assert bare.scores.tobytes() == shown.scores.tobytes()
        for hits, id in zip(shown.hits, shown.ids, strict=True):  # noqa: A001
            real = hits.document_token >= 0
            i, j = hits.query_token[real], hits.document_token[real]
            products = np.einsum("pd,pd->p", query.values[i], stored[id].values[j])
            np.testing.assert_allclose(hits.similarity[real], products, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("alignment", [a for a in ALIGNMENTS if "xtr" not in a and "da:" not in a])
def test_scores_are_those_of_brute_force(made, alignment):
    index, queries, stored = made
    for query in queries:
        expected = {id: brute_force(query, d, alignment) for id, d in stored.items() if d.n_tokens}  # noqa: A001
        (ranking,) = index.search(query, 12, alignment=alignment)
        np.testing.assert_allclose(ranking.scores, [expected[id] for id in ranking.ids], rtol=1e-3, atol=2e-3)  # noqa: A001
        (exact,) = index.search(query, 12, alignment=alignment, exact=True)
        best = sorted(expected.values(), reverse=True)[:12]
        np.testing.assert_allclose(exact.scores, best, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("alignment", "impute"), [("xtr:40", "kth"), ("xtr:40,impute=zero", 0.0), ("xtr:40,impute=0.4", 0.4)]
)
def test_xtr_is_eq_4(made, alignment, impute):
    index, queries, stored = made
    names = [id for id, d in stored.items() if d.n_tokens]  # noqa: A001
    for query in queries:
        every = [oracles.similarities(query.values.tolist(), stored[id].values.tolist()) for id in names]  # noqa: A001
        expected = dict(zip(names, oracles.xtr(every, 40, impute), strict=True))
        (ranking,) = index.search(query, 12, alignment=alignment, exact=True)
        np.testing.assert_allclose(ranking.scores, [expected[id] for id in ranking.ids], rtol=1e-3, atol=2e-3)  # noqa: A001
        (ranking,) = index.search(query, 12, alignment=alignment)
        np.testing.assert_allclose(ranking.scores, [expected[id] for id in ranking.ids], rtol=1e-3, atol=2e-2)  # noqa: A001


def test_explanations_survive_pruning_of_the_query(made):
    index, queries, _ = made
    for query in queries:
        if query.salience is None:
            continue
        (shown,) = index.search(query, 12, beta_q=0.6)
        (bare,) = index.search(query, 12, beta_q=0.6, hits=False)
        assert bare.scores.tobytes() == shown.scores.tobytes()
        for r in range(len(shown)):
            assert np.float32(shown.contributions(r).sum()) == shown.scores[r]
            assert set(shown.hits[r].query_token) <= set(np.argsort(-query.salience)[:3].tolist())
