"""The entropy-regularised LP (ALIGNER eq. 4-5) against SciPy and by finite differences."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize

from weft.alignment import entropy_lp
from weft.alignment.lp import implicit_vjp


def scipy_constrained(s, k, eps):
    """Eq. 4 handed to a general constrained optimiser, knowing nothing of the solution's form."""
    m = len(s)
    result = minimize(
        lambda x: -(s @ x) + eps * np.sum(x * np.log(np.maximum(x, 1e-300))),
        np.full(m, k / m),
        jac=lambda x: -s + eps * (np.log(np.maximum(x, 1e-300)) + 1),
        bounds=[(1e-12, 1)] * m,
        constraints={"type": "eq", "fun": lambda x: x.sum() - k, "jac": lambda x: np.ones(m)},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return result.x


def scipy_root(s, k, eps):
    """The dual's one unknown, a, by bracketed root finding."""

    def excess(a):
        return np.minimum(1, np.exp(np.minimum((s + a) / eps, 0))).sum() - k

    low, high = -s.max() - 50 * eps - 1, -s.min() + 50 * eps + 1
    a = brentq(excess, low, high, xtol=1e-15, rtol=1e-15)
    return np.minimum(1, np.exp(np.minimum((s + a) / eps, 0)))


@pytest.mark.parametrize("eps", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_equals_a_general_constrained_optimiser(seed, eps):
    s = np.random.default_rng(seed).random(6)
    for k in (1, 2, 4):
        assert entropy_lp(s, k, eps=eps) == pytest.approx(scipy_constrained(s, k, eps), abs=2e-4)


@given(
    seed=st.integers(0, 2**32 - 1),
    m=st.integers(2, 60),
    share=st.floats(0.02, 0.98),
    eps=st.sampled_from([0.002, 0.02, 0.5]),
    decimals=st.sampled_from([1, 2, 8]),
)
def test_equals_a_root_finder(backend, seed, m, share, eps, decimals):
    s = np.random.default_rng(seed).random(m).round(decimals)  # few decimals: many ties
    k = min(max(1, round(share * m)), m - 1)
    lam = np.asarray(entropy_lp(backend(s), k, eps=eps))
    assert lam == pytest.approx(scipy_root(s, k, eps), abs=1e-7)
    assert lam.sum() == pytest.approx(k, rel=1e-9)


@given(seed=st.integers(0, 2**32 - 1), m=st.integers(1, 40), eps=st.sampled_from([0.002, 0.1]))
def test_paper_iteration_tends_to_the_exact_solution(seed, m, eps):
    rng = np.random.default_rng(seed)
    s, k = rng.random(m), int(rng.integers(0, m + 1))
    exact = entropy_lp(s, k, eps=eps)
    paper = entropy_lp(s, k, eps=eps, method="eq5", max_iterations=5000, tolerance=1e-10)
    assert paper == pytest.approx(exact, abs=1e-6)


def test_paper_iteration_cut_short_is_eq_5_by_hand():
    s, k, eps = np.array([1.0, 0.6, 0.5]), 2, 0.25
    a, b = 0.0, np.zeros(3)
    for _ in range(4):  # eq. 5 as the paper writes it
        a = eps * np.log(k) - eps * np.log(np.exp((s + b) / eps).sum())
        b = np.minimum(-s - a, 0)
    by_hand = np.exp((s + b + a) / eps)
    ours = entropy_lp(s, k, eps=eps, method="eq5", max_iterations=4, tolerance=1e-15)
    assert ours == pytest.approx(by_hand, rel=1e-12)
    assert ours.sum() < k


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
def test_stable_at_the_papers_epsilon(backend, dtype, scale):
    s = (np.random.default_rng(1).random((50, 180)) * scale).astype(dtype)
    lam = np.asarray(entropy_lp(backend(s), 72))  # α = 40 % of 180, ε = 0.002
    assert lam.dtype == dtype
    assert np.isfinite(lam).all()
    assert ((lam >= 0) & (lam <= 1)).all()
    assert lam.sum(axis=1) == pytest.approx(np.full(50, 72), rel=1e-4)
    if scale >= 30.0:  # gaps far above ε: as good as a hard top-k
        hard = s >= np.sort(s, axis=1)[:, [-72]]
        assert (np.abs(lam - hard) < 0.5).mean() > 0.999


def test_exact_where_eq_5_would_need_hundreds_of_steps():
    s = np.random.default_rng(0).random((20, 256)) * 5
    assert entropy_lp(s, 102).sum(axis=1) == pytest.approx(np.full(20, 102), rel=1e-12)
    assert np.abs(entropy_lp(s, 102, method="eq5", max_iterations=100).sum(axis=1) - 102).max() > 1


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("k", [1, 90, 400, 999])
def test_single_precision_sums_to_k_whatever_the_scores(backend, scale, k):
    s = (np.random.default_rng(3).random((20, 1000)) * scale).astype(np.float32)
    assert np.asarray(entropy_lp(backend(s), k)).sum(axis=1) == pytest.approx(np.full(20, k), abs=2e-3)


@pytest.mark.torch
def test_half_precision_is_solved_in_single():
    torch = pytest.importorskip("torch")
    s = torch.rand(4, 512).to(torch.bfloat16)
    lam = entropy_lp(s, 301)
    assert lam.dtype == torch.bfloat16
    assert lam.float().sum(-1).numpy() == pytest.approx(np.full(4, 301), rel=5e-3)


class TestEdges:
    def test_budget_at_or_above_the_length_keeps_everything(self, backend):
        s = backend(np.array([[0.1, 0.9, 0.5]]))
        for k in (3, 4, 100):
            assert np.asarray(entropy_lp(s, k)).tolist() == [[1, 1, 1]]

    def test_no_budget_keeps_nothing(self, backend):
        assert np.asarray(entropy_lp(backend(np.array([[0.1, 0.9]])), 0)).tolist() == [[0, 0]]

    def test_ties_share_evenly(self, backend):
        assert np.asarray(entropy_lp(backend(np.full(7, 0.3)), 3)) == pytest.approx(np.full(7, 3 / 7))

    def test_ties_at_the_border_only(self, backend):
        lam = np.asarray(entropy_lp(backend(np.array([1.0, 0.5, 0.5, 0.0])), 2))
        assert lam == pytest.approx([1, 0.5, 0.5, 0])

    def test_one_call_may_mix_all_of_them(self, backend):
        s = np.array([[0.9, 0.1, 0.8], [0.9, 0.1, 0.8], [0.9, 0.1, 0.8], [0.3, 0.2, 0.1]])
        mask = np.array([[True, True, True], [True, True, False], [True, True, True], [False, False, False]])
        lam = np.asarray(entropy_lp(backend(s), backend(np.array([2.0, 1.0, 0.0, 2.0])), mask=backend(mask)))
        assert lam == pytest.approx(np.array([[1, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]]), abs=1e-6)

    def test_no_tokens(self, backend):
        assert entropy_lp(backend(np.zeros((4, 0))), 2).shape == (4, 0)

    @given(seed=st.integers(0, 2**32 - 1), extra=st.integers(0, 4))
    def test_padding_changes_nothing(self, backend, seed, extra):
        s = np.random.default_rng(seed).random(6)
        wide = np.concatenate([s, np.full(extra, 99.0)])
        lam = np.asarray(entropy_lp(backend(wide), 2, mask=backend(np.arange(6 + extra) < 6)))
        assert lam[:6] == pytest.approx(entropy_lp(s, 2), rel=1e-9)
        assert (lam[6:] == 0).all()


@given(seed=st.integers(0, 2**32 - 1), m=st.integers(2, 12), eps=st.sampled_from([0.05, 0.5]))
def test_implicit_derivative_equals_finite_differences(seed, m, eps):
    rng = np.random.default_rng(seed)
    s, upstream, k = rng.random(m), rng.standard_normal(m), int(rng.integers(1, m))
    lam = entropy_lp(s, k, eps=eps)
    assume(not np.any((lam > 1 - 1e-4) & (lam < 1)))  # at the edge of saturation there is no two-sided derivative
    h = 1e-6
    numeric = [
        upstream @ (entropy_lp(s + h * e, k, eps=eps) - entropy_lp(s - h * e, k, eps=eps)) / (2 * h) for e in np.eye(m)
    ]
    assert implicit_vjp(lam, upstream, eps) == pytest.approx(np.array(numeric), abs=1e-4 / eps)


@pytest.mark.torch
class TestTorchGradients:
    @pytest.mark.parametrize("gradient", ["implicit", "iterations"])
    @pytest.mark.parametrize("eps", [0.002, 0.3])
    def test_both_pass_gradcheck(self, gradient, eps):
        torch = pytest.importorskip("torch")
        # Scores within a few ε of each other, so that there is a gradient to check.
        s = (torch.rand(3, 8, dtype=torch.float64) * 4 * eps).requires_grad_()
        mask = torch.tensor([[True] * 8, [True] * 5 + [False] * 3, [True] * 2 + [False] * 6])

        def solve(x):
            return entropy_lp(x, 3, eps=eps, mask=mask, gradient=gradient)

        assert torch.autograd.gradcheck(solve, s, eps=1e-4 * eps, atol=1e-3 / eps, rtol=1e-3)

    @pytest.mark.parametrize("method", ["exact", "eq5"])
    def test_they_agree_with_each_other(self, method):
        torch = pytest.importorskip("torch")
        values, upstream = torch.rand(5, 40, dtype=torch.float64), torch.randn(5, 40, dtype=torch.float64)
        gradients = []
        for gradient in ("implicit", "iterations"):
            s = values.clone().requires_grad_()
            lam = entropy_lp(s, 16, eps=0.05, gradient=gradient, method=method, max_iterations=3000, tolerance=1e-13)
            (lam * upstream).sum().backward()
            gradients.append(s.grad)
        assert gradients[0].abs().max() > 1e-3
        assert torch.allclose(*gradients, atol=1e-8)

    @pytest.mark.parametrize("gradient", ["implicit", "iterations"])
    def test_known_rows_have_zero_gradient(self, gradient):
        torch = pytest.importorskip("torch")
        s = torch.rand(3, 4, requires_grad=True)
        mask = torch.tensor([[True] * 4, [False] * 4, [True] * 4])
        entropy_lp(s, torch.tensor([4.0, 2.0, 0.0]), mask=mask, gradient=gradient).sum().backward()
        assert (s.grad == 0).all()
