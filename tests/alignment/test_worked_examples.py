"""One row per named system: its alignment on an example small enough to check by hand.

S =        d1    d2    d3    d4
    q1    0.9   0.1   0.5   0.2
    q2   -0.3  -0.1  -0.6  -0.2
"""

import numpy as np
import pytest

import weft

S = np.array([[0.9, 0.1, 0.5, 0.2], [-0.3, -0.1, -0.6, -0.2]])
# With Q the identity, Q Dᵀ = Dᵀ: the columns of S are the document's vectors.
Q, D = np.eye(2), S.T
IDS = {"query_tokens": np.array([7, 8]), "document_tokens": np.array([5, 7, 7, 8])}

TABLE = [
    # system, alignment, pairs (query, document) with Ã = 1, score
    ("DPR", "dpr", {(0, 0)}, 0.9),
    ("ME-BERT", "me-bert:2", {(0, 0)}, 0.9),
    ("COIL", "coil", {(0, 2), (1, 3)}, 0.5 - 0.2),
    ("ColBERT", "colbert", {(0, 0), (1, 1)}, 0.9 - 0.1),
    ("ColBERT, XTR eq. 1", "colbert,z=query", {(0, 0), (1, 1)}, 0.8 / 2),
    ("ALIGNER top-1", "top-k:1", {(0, 0), (1, 1)}, 0.8 / 2),
    ("ALIGNER top-2", "top-k:2", {(0, 0), (0, 2), (1, 1), (1, 3)}, (0.9 + 0.5 - 0.1 - 0.2) / 4),
    # ⌊0.5 · 4⌋ = 2, ⌊0.6 · 4⌋ = ⌊2.4⌋ = 2, max(⌊0.1 · 4⌋, 1) = 1, ⌊0.75 · 4⌋ = 3
    ("ALIGNER top-50 %", "top-p:0.5", {(0, 0), (0, 2), (1, 1), (1, 3)}, 1.1 / 4),
    ("ALIGNER top-60 %", "top-p:0.6", {(0, 0), (0, 2), (1, 1), (1, 3)}, 1.1 / 4),
    ("ALIGNER top-10 %", "top-p:0.1", {(0, 0), (1, 1)}, 0.8 / 2),
    ("ALIGNER top-75 %", "top-p:0.75", {(0, 0), (0, 2), (0, 3), (1, 1), (1, 3), (1, 0)}, (1.6 - 0.6) / 6),
    ("ALIGNER DA, tiny ε", "da:1,eps=0.002", {(0, 0), (1, 1)}, 0.8 / 2),
    # alone in its batch, k_train = 1: each query token retrieves its best token
    ("XTR in-batch", "xtr-in-batch:1", {(0, 0), (1, 1)}, 0.8 / 2),
    ("XTR", "xtr:2", {(0, 0), (1, 1)}, 0.8 / 2),
]


@pytest.mark.parametrize(("system", "alignment", "pairs", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_named_system(backend, system, alignment, pairs, expected):
    ids = {name: backend(value) for name, value in IDS.items()}
    A = np.asarray(weft.align(backend(Q), backend(D), alignment, **ids))
    expected_A = np.zeros((2, 4))
    expected_A[tuple(np.array(sorted(pairs)).T)] = 1
    assert pytest.approx(expected_A, abs=1e-6) == A
    assert float(weft.score(backend(Q), backend(D), alignment, **ids)) == pytest.approx(expected)


def test_me_bert_looks_at_the_first_k_tokens_only(backend):
    document = S.T[::-1].copy()  # the first query token's similarities are now 0.2, 0.5, 0.1, 0.9
    for k, best in ((1, 0.2), (2, 0.5), (3, 0.5), (4, 0.9), (9, 0.9)):
        assert float(weft.score(backend(Q), backend(document), f"me-bert:{k}")) == pytest.approx(best)


def test_document_to_query(backend):
    # Each document token shares itself out over the query tokens by a softmax: e^0.9/(e^0.9 + e^-0.3) and so on.
    gap = S[0] - S[1]  # 1.2, 0.2, 1.1, 0.4
    first = 1 / (1 + np.exp(-gap))
    expected = np.stack([first, 1 - first])
    assert np.asarray(weft.align(backend(Q), backend(D), "document-to-query")) == pytest.approx(expected)
    assert first == pytest.approx([0.768525, 0.549834, 0.750260, 0.598688], abs=1e-6)
    assert float(weft.score(backend(Q), backend(D), "document-to-query")) == pytest.approx((S * expected).sum() / 4)


def test_attention_of_a_linear_decoder_layer(backend):
    """GR eq. 11-16: rel = Σ_i e_iᵀ W_V Q α_i equals sum(Ẽᵀ Q ∘ A), by hand for three document tokens."""
    rng = np.random.default_rng(0)
    query, states, embedded = (
        rng.standard_normal((4, 5)),
        rng.standard_normal((3, 5)),
        rng.standard_normal((3, 5)),
    )
    W, W_V = rng.standard_normal((5, 5)), rng.standard_normal((5, 5))
    logits = states @ W.T @ query.T  # eq. 16: D̂₋₁ᵀ Wᵀ Q, a row per document token
    alpha = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    eq_12 = sum(embedded[i] @ W_V @ (query.T @ alpha[i]) for i in range(3))
    ours = weft.score(
        backend(query), backend(embedded @ W_V), "attention", attention=backend(np.ascontiguousarray(alpha.T))
    )
    assert float(ours) == pytest.approx(eq_12, rel=1e-12)


def test_xtr_failure_case():
    """XTR §3: D+ has all maxima 0.8; each negative has one token above 0.8. Token retrieval with k = 1 misses D+."""
    n = 4
    positive = 0.8 * np.eye(n)
    negatives = [0.95 * np.eye(n)[[i]] for i in range(n)]
    documents = weft.TokenVectors.from_list([positive, *negatives])
    colbert = weft.score(np.eye(n), documents, "colbert,z=query")
    assert colbert[0] == pytest.approx(0.8)
    assert colbert[1:] == pytest.approx(0.95 / n)
    xtr = weft.score(np.eye(n), documents, "xtr-in-batch:1")
    assert xtr[0] == 0
    assert xtr[1:] == pytest.approx(0.95)


def test_xtr_normaliser_counts_query_tokens_with_a_retrieved_token():
    # Two documents; q1 retrieves only in the first, q2 in both (k_train = 2); all similarities negative.
    a = np.array([[-0.1, -0.5], [-0.2, -0.9]])
    b = np.array([[-0.7, -0.4]])
    scores = weft.score(np.eye(2), weft.TokenVectors.from_list([a, b]), "xtr-in-batch:2")
    assert scores == pytest.approx([(-0.1 - 0.5) / 2, -0.4 / 1])


def test_xtr_imputation_by_hand():
    """XTR figure 3: with top-2 retrieval q2 finds two tokens of D_a only; D_b is given q2's 2nd score."""
    a = np.array([[0.9, 0.6], [0.1, 0.5]])
    b = np.array([[0.7, 0.3]])
    documents = weft.TokenVectors.from_list([a, b])

    def scores(impute):
        return weft.score(np.eye(2), documents, f"xtr:2,impute={impute}")

    assert scores("kth") == pytest.approx([(0.9 + 0.6) / 2, (0.7 + 0.5) / 2])
    assert scores("zero") == pytest.approx([(0.9 + 0.6) / 2, (0.7 + 0.0) / 2])
    assert scores("0.2") == pytest.approx([(0.9 + 0.6) / 2, (0.7 + 0.2) / 2])
    assert scores("none") == pytest.approx([(0.9 + 0.6) / 2, 0.7])


def test_imputation_hook_sees_what_was_retrieved():
    from weft.alignment import register_imputation
    from weft.alignment.xtr import _IMPUTATIONS

    seen = {}

    def estimate(pairs, retrieved, last):
        seen.update(retrieved=retrieved.copy(), last=last.copy())
        return last - 0.1

    register_imputation("test-hook", estimate)
    try:
        documents = weft.TokenVectors.from_list([np.array([[0.9, 0.6], [0.1, 0.5]]), np.array([[0.7, 0.3]])])
        scores = weft.score(np.eye(2), documents, "xtr:2,impute=test-hook")
    finally:
        del _IMPUTATIONS["test-hook"]
    assert scores == pytest.approx([0.75, (0.7 + 0.4) / 2])
    assert seen["last"] == pytest.approx(np.array([[0.7, 0.5]]))
    assert seen["retrieved"].sum() == 4


def test_salience_weighs_and_normalises():
    # u_q = (1, 0): the second query token aligns with nothing. u_d halves d1.
    u = {"query_salience": np.array([1.0, 0.0]), "document_salience": np.array([0.5, 1.0, 1.0, 1.0])}
    assert weft.align(Q, D, "top-k:2", **u).tolist() == [[0.5, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    assert float(weft.score(Q, D, "top-k:2", **u)) == pytest.approx((0.9 * 0.5 + 0.5) / 1.5)
    assert float(weft.score(Q, D, "colbert", **u)) == pytest.approx(0.45)


def test_nothing_salient_scores_zero():
    assert float(weft.score(Q, D, "top-k:2", document_salience=np.zeros(4))) == 0
