"""Unary salience (ALIGNER eq. 3) and its four gates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.alignment import Gate, entropy_lp, salience
from weft.alignment.gates import budget
from weft.errors import InvalidParameterError
from weft.kernels import score_ragged
from weft.types import TokenVectors

VECTORS = np.array([[0.9, 0.0], [0.1, 0.0], [0.8, 0.0], [-0.5, 0.0], [0.2, 0.0]])
W, B = np.array([1.0, 5.0]), 0.0


def mask(*lengths, width):
    return np.arange(width) < np.array(lengths)[:, None]


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ("relu", [0.9, 0.1, 0.8, 0.0, 0.2]),
        ("l1:0.1", [0.9, 0.1, 0.8, 0.0, 0.2]),
        ("hard:0.4", [0.9, 0.0, 0.8, 0.0, 0.0]),  # ⌈0.4 · 5⌉ = 2
        ("hard:0.41", [0.9, 0.0, 0.8, 0.0, 0.2]),  # ⌈2.05⌉ = 3
        ("lp:0.4", [0.9, 0.0, 0.8, 0.0, 0.0]),
    ],
)
def test_gates_by_hand(backend, gate, expected):
    u = salience(backend(VECTORS), backend(W), B, gate)
    assert np.asarray(u) == pytest.approx(np.array(expected), abs=1e-6)


def test_only_l1_adds_to_the_loss(backend):
    u, real = backend(np.array([[0.9, 0.1], [0.5, 7.0]])), backend(mask(2, 1, width=2))
    assert float(Gate.parse("l1:0.1").penalty(u, real)) == pytest.approx(0.1 * (1.0 + 0.5) / 2)
    for gate in ("relu", "hard:0.5", "lp:0.5"):
        assert Gate.parse(gate).penalty(u, real) == 0


def test_soft_gate_between_near_ties(backend):
    s = np.array([[0.5, 0.4995, 0.1]])
    lam = Gate.parse("lp:0.3,eps=0.002")(backend(s), backend(mask(3, width=3)))
    assert np.asarray(lam) == pytest.approx(entropy_lp(s, 1, eps=0.002))
    assert 0.5 < float(lam[0, 0]) < 0.6


def test_the_papers_own_iterations_are_a_gate(backend):
    """eq. 5 as written, cut off: its λ sum to less than k; run long enough it is the exact solution."""
    s, real = np.array([[0.5, 0.495, 0.49, 0.3, 0.1]]), mask(5, width=5)
    cut, long, exact = (
        np.asarray(Gate.parse(f"lp:0.4,eps=0.01{options}")(backend(s), backend(real)))
        for options in (",method=eq5,iterations=2", ",method=eq5,iterations=1000", "")
    )
    assert cut == pytest.approx(entropy_lp(s, 2, eps=0.01, method="eq5", max_iterations=2))
    assert cut.sum() < 2 - 1e-3
    assert long == pytest.approx(exact, abs=1e-5)
    assert str(Gate.parse("lp:0.4,method=eq5,iterations=7")) == "lp:0.4,method=eq5,iterations=7"
    for wrong in ("lp:0.4,method=eq6", "lp:0.4,method=eq5,iterations=0"):
        with pytest.raises(InvalidParameterError):
            Gate.parse(wrong)


def test_budget_is_a_ceiling_in_decimal(backend):
    # ⌈0.1 · 30⌉ is 3, though 0.1 · 30 = 3.0000000000000004 in floating point
    assert np.asarray(budget(0.1, backend(mask(30, 31, 1, 0, width=31)))).tolist() == [3, 4, 1, 0]


@given(
    seed=st.integers(0, 2**32 - 1),
    gate=st.sampled_from(["relu", "hard:0.4", "lp:0.4", "l1:0.1"]),
    extra=st.integers(0, 4),
)
def test_padding_changes_nothing(backend, seed, gate, extra):
    rng = np.random.default_rng(seed)
    x, w = rng.standard_normal((7, 3)), rng.standard_normal(3)
    wide = np.concatenate([x, np.full((extra, 3), 50.0)])[None]
    u = np.asarray(salience(backend(wide), backend(w), 0.1, gate, backend(mask(7, width=7 + extra))))[0]
    assert u[:7] == pytest.approx(salience(x, w, 0.1, gate), rel=1e-6, abs=1e-9)
    assert (u[7:] == 0).all()


@pytest.mark.torch
@pytest.mark.parametrize("gate", ["relu", "l1:0.1", "hard:0.4", "lp:0.4,eps=0.2", "lp:0.4,eps=0.2,gradient=iterations"])
def test_trainable(gate):
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    w = torch.randn(3, dtype=torch.float64, requires_grad=True)
    b = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    real = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])

    def loss(w, b):
        u = salience(x, w, b, gate, real)
        return (u**2).sum() + Gate.parse(gate).penalty(u, real)

    assert torch.autograd.gradcheck(loss, (w, b), atol=1e-4)


@pytest.mark.parametrize("alignment", ["top-k:1", "top-k:2", "top-p:0.5", "da:2", "xtr-in-batch:3"])
def test_saliences_that_all_but_vanish_do_no_harm(backend, alignment):
    """Z = ΣA of 1e-40: scores stay finite and small, as do gradients on torch; the native kernels agree."""
    rng = np.random.default_rng(5)
    Q, D = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 5, 4))
    u_q, u_d = np.full((2, 3), 1e-20, np.float32), np.full((2, 5), 1e-20, np.float32)
    u_d[1] = 0.5  # the other document is as it should be
    u_q[1] = 0.5
    arrays = [backend(a.astype(np.float32)) for a in (Q, D, u_q, u_d)]
    if isinstance(arrays[0], np.ndarray):
        found = weft.score(*arrays[:2], alignment, query_salience=arrays[2], document_salience=arrays[3])
    else:
        tensors = [a.requires_grad_() for a in arrays]
        scores = weft.score(*tensors[:2], alignment, query_salience=tensors[2], document_salience=tensors[3])
        (-scores.log_softmax(-1).diagonal().sum()).backward()
        for tensor in tensors:
            assert bool(tensor.grad.isfinite().all())
            assert float(tensor.grad.abs().max()) < 1e8
        found = scores.detach()
    found = np.asarray(found)
    assert np.isfinite(found).all()
    assert abs(found[0, 0]) < 1e-6  # nothing salient is aligned
    if alignment.startswith("top"):
        sides = [
            TokenVectors(a.reshape(-1, 4).astype(np.float32), np.arange(3) * a.shape[1], salience=u.ravel())
            for a, u in ((Q, u_q), (D, u_d))
        ]
        np.testing.assert_allclose(score_ragged(*sides, alignment), found, atol=1e-5)
