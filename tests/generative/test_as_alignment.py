"""Generative retrieval as Σ S∘A: exact for one linear layer; lemmas 5.1 and 5.2; exact match."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import InvalidParameterError
from weft.generative.attention import LinearDecoder, attention_alignment
from weft.generative.exact_match import ByType, hard_match, is_word, same_word, soft_match, token_idf
from weft.generative.feature_kernel import elu, elu_plus_one, kernelise
from weft.generative.low_rank import low_rank, rank_one


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def columns(*shape_and_rng):
    """The paper's layout: tokens are columns."""
    *shape, rng = shape_and_rng
    return rng.normal(size=shape)


def test_eq_11_to_16_are_exact_for_one_linear_layer(rng):
    d, N, M, V = 7, 5, 4, 30
    Q, D_hat, E = columns(d, N, rng), columns(d, M, rng), columns(d, V, rng)
    W_K, W_Q, W_V = (rng.normal(size=(d, d)) for _ in range(3))
    tokens = [3, 29, 0, 3]
    # Eq. 4-11 as the paper writes them, token by token.
    rel = 0.0
    for i, token in enumerate(tokens):
        logits = (W_K @ Q).T @ (W_Q @ D_hat[:, i])
        alpha = np.exp(logits - logits.max())
        alpha /= alpha.sum()
        rel += E[:, token] @ (W_V @ Q @ alpha)
    decoder = LinearDecoder(W_K.T @ W_Q, W_V)
    found = decoder.relevance(E[:, tokens].T, Q.T, D_hat.T)
    assert found == pytest.approx(rel, rel=1e-10, abs=1e-10)
    states = decoder.states(Q.T, D_hat.T)
    assert np.trace(states @ E[:, tokens]) == pytest.approx(rel, rel=1e-10)


def test_eq_18_pawa_with_the_papers_block_diagonal_matrix(rng):
    d, N, M = 5, 4, 3
    Q, D_hat, latent = columns(d, N, rng), columns(d, M, rng), columns(d, M, rng)
    W, W_V = rng.normal(size=(2, d, d))
    projections = rng.normal(size=(M, d, d))  # E_{i,d_i}
    A = attention_alignment(Q.T, D_hat.T, W)
    E_d = W_V.T @ np.concatenate(list(projections), axis=1)  # (d, d·M)
    D_tilde = np.zeros((d * M, M))
    for i in range(M):
        D_tilde[i * d : (i + 1) * d, i] = latent[:, i]
    rel = float(((D_tilde.T @ E_d.T @ Q) * A.T).sum())
    vectors = np.stack([projections[i] @ latent[:, i] for i in range(M)])
    assert LinearDecoder(W, W_V).relevance(vectors, Q.T, D_hat.T) == pytest.approx(rel, rel=1e-10)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([1.0], [[1.0]]), "'Q'"),
        (([[1.0]], [[1.0, 2.0]]), "'W'"),
        ((np.zeros((0, 2)), [[1.0, 2.0]]), "'Q'"),
    ],
)
def test_mistakes_in_attention(arguments, said):
    with pytest.raises(InvalidParameterError, match=said):
        attention_alignment(*arguments)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 6), st.floats(0.01, 20))
def test_lemma_5_1_and_the_sharper_bounds(seed, n, m, size):
    rng = np.random.default_rng(seed)
    Q, D, W = rng.normal(size=(n, 4)), rng.normal(size=(m, 4)), size * rng.normal(size=(4, 4))
    found = low_rank(Q, D, W)
    slack = 1 + 1e-9
    assert found.distance <= found.tanh * slack + 1e-12
    assert found.tanh <= found.largest * slack + 1e-12
    assert found.largest <= found.gamma * found.norm * slack + 1e-12
    assert found.best <= found.relative * slack + 1e-9
    assert found.vacuous == (4 * found.gamma * found.norm >= 2)
    R = rank_one(Q, D, W)
    assert np.linalg.matrix_rank(R) == 1
    A = attention_alignment(Q, D, W)
    assert found.relative == pytest.approx(np.sqrt(((A - R) ** 2).sum() / (A**2).sum()), abs=1e-12)


def test_the_bound_is_sharp_where_two_opposite_logits_move():
    """Logits 0.3 and −0.3 against −0.3 and 0.3, for the mean state −0.3: ‖A−R‖₁ ≤ 2 tanh(δ/4) with equality."""
    found = low_rank(np.array([[1.0], [-1.0]]), np.array([[0.3], [-0.9]]), np.eye(1))
    assert found.tanh == pytest.approx(2 * np.tanh(0.3), rel=1e-12)
    assert found.distance == pytest.approx(found.tanh, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 5))
def test_lemma_5_2_with_the_feature_matrices_written_out(seed, n, m):
    rng = np.random.default_rng(seed)
    Q, D = rng.normal(size=(n, 3)), rng.normal(size=(m, 3))
    A = np.exp(D @ Q.T) / np.exp(D @ Q.T).sum(axis=1, keepdims=True)  # the paper's layout, (m, n)
    found = kernelise(Q, D)
    F_q = [np.outer(q, elu_plus_one(q)) for q in Q]
    F_d = [np.outer(d, elu_plus_one(d)) for d in D]
    p = np.array([[elu_plus_one(d) @ elu_plus_one(q) for q in Q] for d in D]) / A
    direct = sum(np.trace(F_d[i].T @ F_q[j]) / p[i, j] for i in range(m) for j in range(n))
    assert found.relevance == pytest.approx(float((D @ Q.T * A).sum()), rel=1e-10, abs=1e-10)
    assert found.kernelised == pytest.approx(direct, rel=1e-9, abs=1e-10)
    assert found.kernelised == pytest.approx(found.relevance, rel=1e-9, abs=1e-10)
    bound = sum(
        np.sqrt(np.trace(F_d[i].T @ F_d[i]) * np.trace(F_q[j].T @ F_q[j]) / (p[i].min() * p[:, j].min()))
        for i in range(m)
        for j in range(n)
    )
    assert found.bound == pytest.approx(bound, rel=1e-9)
    assert found.bound >= found.relevance - 1e-12
    assert found.positive == 1.0


def test_elu_has_kernels_that_are_not_positive(rng):
    found = kernelise(rng.normal(size=(20, 8)), rng.normal(size=(30, 8)), phi=elu)
    assert 0.3 < found.positive < 0.9
    assert np.isnan(found.bound)
    assert found.kernelised == pytest.approx(found.relevance, rel=1e-9)  # eq. 25 itself holds for any sign
    assert elu(np.array([-1.0, 2.0])) == pytest.approx([np.exp(-1) - 1, 2.0])
    with pytest.raises(InvalidParameterError, match="'A'"):
        kernelise(np.eye(2), np.eye(2), np.zeros((2, 2)))


def test_exact_match_in_both_directions():
    query, document = [7, 8, 9], [8, 5, 7, 8]
    S = np.array([[0.1, 0.2, 0.9, 0.0], [0.3, 0.9, 0.1, 0.8], [0.5, 0.1, 0.1, 0.1]])
    same = same_word(query, document)
    assert same.sum() == 3
    assert hard_match(S, same, 1).tolist() == [True, False, False]
    assert hard_match(S, same, 0).tolist() == [False, False, True, True]
    P = np.full((3, 4), 0.25)
    assert soft_match(P, same, 1).tolist() == [0.25, 0.5, 0.0]
    with pytest.raises(InvalidParameterError, match="axis"):
        soft_match(P, same, 2)


def test_idf_counts_documents_not_tokens():
    found = token_idf([[1, 1, 1], [1, 2], []], 4)
    assert found[1] == pytest.approx(np.log(1 + 1.5 / 2.5))
    assert found[2] == pytest.approx(np.log(1 + 2.5 / 1.5))
    assert found[3] == pytest.approx(np.log(1 + 3.5 / 0.5))


def test_the_published_counting_by_hand():
    """Words alone, the mean of each token type, then of the types; soft rates of 0 are dropped, hard ones are not."""
    pieces = ["<pad>", "▁the", "▁cat", "▁sat", "."]
    words = is_word(pieces, {"the"})
    assert words.tolist() == [False, False, True, True, False]
    bins = np.array([-1, 0, 0, 1, 1])
    soft, hard = ByType(bins, words), ByType(bins, words)
    for rates, drop in ((soft, True), (hard, False)):
        rates.add([1, 2, 3, 4], [1.0, 0.5, 0.2, 1.0], drop_zeros=drop)
        rates.add([2, 2, 3], [0.0, 0.1, 0.0], drop_zeros=drop)
    assert soft.of(0).tolist() == pytest.approx([0.3])  # the cat: 0.5 and 0.1
    assert soft.of(1).tolist() == pytest.approx([0.2])
    assert hard.of(0).tolist() == pytest.approx([0.2])
    assert hard.of(None).tolist() == pytest.approx([0.2, 0.1])
