"""The short way to a score against the long one, values and gradients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.alignment.base import Pairs
from weft.alignment.scoring import evaluate, relevance

ALIGNMENTS = ["sum-of-max", "sum-of-max,z=query", "sum-of-max,z=sum", "top-k:2", "document-to-query:0.5"]


def problem(seed, B=3, N=4, n=5, m=6):
    """Similarities with padding; one query and one document have no token at all."""
    random = np.random.default_rng(seed)
    query_mask = np.arange(n) < random.integers(0, n + 1, B)[:, None]
    document_mask = np.arange(m) < random.integers(0, m + 1, N)[:, None]
    query_mask[0] = document_mask[0] = False
    S = random.standard_normal((B, N, n, m))
    return S, query_mask, document_mask, random.random((B, n)), random.random((N, m))


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("saliences", ["", "q", "qd"])
@given(seed=st.integers(0, 10**6))
def test_equals_evaluate(alignment, saliences, seed):
    S, query_mask, document_mask, u_q, u_d = problem(seed)
    pairs = Pairs(S, query_mask, document_mask)
    u = (u_q if "q" in saliences else None, u_d if "d" in saliences else None)
    want = evaluate(pairs, alignment, *u).score
    np.testing.assert_allclose(relevance(pairs, alignment, *u), want, rtol=1e-12, atol=1e-12)


def test_salience_of_padding_is_not_used():
    S, query_mask, document_mask, u_q, _ = problem(1)
    u_q[~query_mask] = np.nan
    assert np.isfinite(relevance(Pairs(S, query_mask, document_mask), "sum-of-max", u_q)).all()


@pytest.mark.torch
@pytest.mark.parametrize("alignment", ["sum-of-max", "sum-of-max,z=query"])
def test_gradients(alignment):
    torch = pytest.importorskip("torch")
    S, query_mask, document_mask, u_q, _ = problem(2)
    masks = torch.tensor(query_mask), torch.tensor(document_mask)
    found = []
    for way in (relevance, lambda *given: evaluate(*given).score):
        similar = torch.tensor(S, requires_grad=True)
        salience = torch.tensor(u_q, requires_grad=True)
        total = way(Pairs(similar, *masks), alignment, salience)
        (total * torch.arange(12.0).reshape(3, 4)).sum().backward()
        found.append((similar.grad, salience.grad))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_no_tokens_at_all():
    S, masks = np.zeros((2, 3, 0, 0)), (np.zeros((2, 0), bool), np.zeros((3, 0), bool))
    assert relevance(Pairs(S, *masks), "sum-of-max").tolist() == [[0.0] * 3] * 2
