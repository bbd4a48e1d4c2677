"""Token retrieval and XTR's scores against the definitions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import weft
from weft.alignment import XTR
from weft.analysis.scoring import xtr_matrices, xtr_scores
from weft.evaluation import scoring
from weft.evaluation.pools import Encoded
from weft.evaluation.scoring import Owners, top_tokens
from weft.types import TokenVectors


def texts(lengths, seed, dim=5):
    rng = np.random.default_rng(seed)
    return TokenVectors.from_list([rng.standard_normal((n, dim)) for n in lengths], dim=dim)


@pytest.mark.parametrize("block", [3, 1000])
@pytest.mark.parametrize("k", [1, 4, 11, 50])
def test_the_best_tokens_in_order(monkeypatch, block, k):
    monkeypatch.setattr(scoring, "BLOCK", block)
    documents = texts([3, 0, 5, 1, 2], 1)
    query = np.random.default_rng(2).standard_normal((3, 5))
    rows, similarity = top_tokens(query, documents, k)
    for i in range(3):
        every = documents.values @ query[i].astype(np.float32)
        order = sorted(range(len(every)), key=lambda j: -every[j])[:k]
        assert rows[i].tolist() == order
        assert_allclose(similarity[i], every[order], rtol=1e-5)


def test_equal_similarities_in_the_order_of_the_tokens(monkeypatch):
    monkeypatch.setattr(scoring, "BLOCK", 2)
    documents = TokenVectors.from_list([np.ones((3, 2)), np.ones((2, 2))])
    assert top_tokens(np.ones((1, 2)), documents, 4)[0].tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("impute", ["none", "zero", "0.2", "kth"])
def test_scores_are_those_of_the_definition(impute):
    encoded = Encoded(texts([3, 2], 3), texts([4, 2, 6, 1], 4))
    kinds = [XTR(k, impute) for k in (1, 3, 8, 100)]
    for kind, found in zip(kinds, xtr_matrices(encoded, kinds), strict=True):
        wanted = weft.score(encoded.queries, encoded.documents, kind)
        candidates = np.isfinite(found)
        assert_allclose(found[candidates], wanted[candidates], rtol=1e-5, atol=1e-6)
        for q in range(2):  # candidates are the documents of retrieved tokens, and no others
            rows, _ = top_tokens(encoded.queries[q], encoded.documents, kind.k_prime)
            owners = Owners(encoded.documents).document[rows]
            assert set(np.flatnonzero(candidates[q])) == set(owners.ravel())


def test_what_was_retrieved_is_counted():
    encoded = Encoded(texts([3], 5), texts([4, 2, 6], 6))
    ((_, _, (found,)),) = xtr_scores(encoded, [XTR(2)])
    rows, _ = top_tokens(encoded.queries[0], encoded.documents, 2)
    owners = Owners(encoded.documents).document[rows]
    assert found.tokens.tolist() == [int((owners == d).sum()) for d in range(3)]
    assert found.pairs == sum(len(set(row)) for row in owners.tolist())
