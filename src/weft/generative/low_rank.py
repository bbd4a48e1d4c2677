"""How near an attention alignment is to rank one (GR Lemma 5.1, figure 4).

With x̄ the mean of the decoder's states, every row of R is softmax(x̄ᵀ W Q): what the decoder would attend to if it were
always in its mean state. The logits of A and R differ by E = (D − 1x̄ᵀ) W Qᵀ, so with δ_i the range of row i of E

    ‖A_i − R_i‖₁ ≤ 2 tanh(δ_i / 4) ≤ max|E| ≤ γ‖W‖₂,        γ = max‖d_i − x̄‖ · max‖q_j‖

for each document token i. No two distributions are further apart than 2, so the last bound is empty from γ‖W‖ = 2 on,
and the paper's own, 4γ‖W‖, from a quarter of that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from weft.checks import numbers
from weft.errors import invalid
from weft.generative.attention import Floats, softmax


class LowRank(NamedTuple):
    """How far A is from R. Norms are those of the rows of A in the paper's layout, one for each document token."""

    distance: float
    """max_i ‖A_i − R_i‖₁, what the lemma bounds; at most 2."""
    tanh: float
    """max_i 2 tanh(δ_i / 4), the sharpest of the bounds."""
    largest: float
    """max|E|"""
    gamma: float
    norm: float
    """‖W‖₂"""
    relative: float
    """‖A − R‖ / ‖A‖, Frobenius norms (figure 4b)."""
    best: float
    """The same for the nearest matrix of rank one (Eckart and Young): no R can do better."""

    @property
    def bound(self) -> float:
        """The lemma's right side, 4γ‖W‖."""
        return 4 * self.gamma * self.norm

    @property
    def vacuous(self) -> bool:
        """Whether the lemma's bound is no less than what holds for any two distributions, 2."""
        return self.bound >= 2


def rank_one(Q: Floats, D: Floats, W: Floats) -> Floats:
    """Return R, shape (n, m): the attention of the mean state, for every document token."""
    column: Floats = softmax(Q @ W @ D.mean(axis=0), axis=0)
    return np.repeat(column[:, None], len(D), axis=1)


def low_rank(Q: ArrayLike, D: ArrayLike, W: ArrayLike, *, norm: float | None = None) -> LowRank:
    """Measure A = softmax(Q W Dᵀ) (over the query) against its rank-one approximation.

    Parameters
    ----------
    Q : array, shape (n, d)
    D : array, shape (m, d)
        The decoder's states, normalised as the attention reads them.
    W : array, shape (d, d)
        W_Kᵀ W_Q of one head.
    norm : float, optional
        ‖W‖₂, where it is known already.

    Examples
    --------
    >>> found = low_rank(np.eye(2), [[0.1, 0.0], [0.0, 0.1]], np.eye(2))
    >>> found.distance < found.tanh < found.largest < found.bound
    True
    >>> low_rank(np.eye(2), [[0.3, 0.1], [0.3, 0.1]], np.eye(2)).distance  # one state: A is of rank one
    0.0
    """
    q, d, w = (
        np.asarray(numbers(value, name, "low_rank"), np.float64) for value, name in ((Q, "Q"), (D, "D"), (W, "W"))
    )
    if q.ndim != 2 or d.ndim != 2 or w.shape != (q.shape[-1], d.shape[-1]) or not len(q) or not len(d):
        raise invalid("W", "low_rank", "a (d, d) matrix between Q (n, d) and D (m, d), n, m >= 1", np.shape(w))
    A = softmax(q @ w @ d.T, axis=0)
    R = rank_one(q, d, w)
    off = d - d.mean(axis=0)
    E = q @ w @ off.T  # (n, m)
    delta = E.max(axis=0) - E.min(axis=0)
    values = np.linalg.svd(A, compute_uv=False)
    size = float(np.sqrt((values**2).sum()))
    return LowRank(
        distance=float(np.abs(A - R).sum(axis=0).max()),
        tanh=float(2 * np.tanh(delta.max() / 4)),
        largest=float(np.abs(E).max()),
        gamma=float(np.linalg.norm(off, axis=1).max() * np.linalg.norm(q, axis=1).max()),
        norm=float(np.linalg.norm(w, 2)) if norm is None else norm,
        relative=float(np.linalg.norm(A - R)) / size,
        best=float(np.sqrt((values[1:] ** 2).sum())) / size,
    )
