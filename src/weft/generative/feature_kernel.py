"""The relevance of generative retrieval as a kernel (GR Lemma 5.2, eq. 25).

With F(x) = x φ(x)ᵀ, tr(F(d)ᵀF(q)) = (dᵀq)(φ(d)ᵀφ(q)). Where p_ij = φ(d_i)ᵀφ(q_j) / A_ij,

    rel = Σ_ij S_ij A_ij = Σ_ij tr(F(d_i)ᵀF(q_j)) / p_ij                                exactly, if no p_ij is 0
        ≤ Σ_ij ‖d_i‖‖φ(d_i)‖ ‖q_j‖‖φ(q_j)‖ / (p̂_i p̂_j)                                  by Cauchy and Schwarz

with p̂_i = √min_j p_ij and p̂_j = √min_i p_ij, whose product is no more than p_ij. The second needs p > 0. The paper
takes φ = elu, which is negative for negative numbers, so that about half of the p are not positive: elu + 1 always is.
The bound is a product of a sum over document tokens and one over query tokens, but p̂ still looks at both texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from weft.checks import numbers
from weft.errors import invalid
from weft.generative.attention import Floats, softmax

Feature = Callable[[Floats], Floats]


def elu(x: Floats) -> Floats:
    """Return x where it is positive, else eˣ − 1."""
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def elu_plus_one(x: Floats) -> Floats:
    """Return elu(x) + 1, which is positive."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


class Kernelised(NamedTuple):
    """The terms of Lemma 5.2 for one query and document."""

    relevance: float
    """Σ S∘A"""
    kernelised: float
    """Eq. 25's last sum; NaN where some p is 0."""
    bound: float
    """The Cauchy–Schwarz bound; NaN where some p is not positive."""
    positive: float
    """Share of pairs with p > 0."""


def kernelise(Q: ArrayLike, D: ArrayLike, A: ArrayLike | None = None, phi: Feature = elu_plus_one) -> Kernelised:
    """Return both sides of eq. 25 and the bound.

    Parameters
    ----------
    Q, D : arrays, shapes (n, d) and (m, d)
    A : array, shape (n, m), optional
        Any alignment without zeros; softmax(Q Dᵀ) over the query, the lemma's own, if left out.
    phi : function
        `elu_plus_one`, or the paper's `elu`.

    Examples
    --------
    >>> found = kernelise([[1.0, 0.0], [0.5, -0.5]], [[0.2, 1.0], [-1.0, 0.3]])
    >>> bool(np.isclose(found.relevance, found.kernelised)), found.relevance < found.bound
    (True, True)
    """
    q, d = (np.asarray(numbers(value, name, "kernelise"), np.float64) for value, name in ((Q, "Q"), (D, "D")))
    if q.ndim != 2 or d.ndim != 2 or q.shape[1] != d.shape[1] or not len(q) or not len(d):
        raise invalid("D", "kernelise", "of Q's dimension, both with at least one token", (q.shape, d.shape))
    S = q @ d.T  # (n, m)
    weights = softmax(S, axis=0) if A is None else np.asarray(numbers(A, "A", "kernelise"), np.float64)
    if weights.shape != S.shape or not (weights > 0).all():
        raise invalid("A", "kernelise", f"of shape {S.shape} and positive", weights.shape)
    of_q, of_d = phi(q), phi(d)
    kernel = of_q @ of_d.T
    p = kernel / weights
    traces = S * kernel
    some = bool((p != 0).all())
    positive = p > 0
    bound = np.nan
    if positive.all():
        by_query = np.linalg.norm(q, axis=1) * np.linalg.norm(of_q, axis=1) / np.sqrt(p.min(axis=1))
        by_document = np.linalg.norm(d, axis=1) * np.linalg.norm(of_d, axis=1) / np.sqrt(p.min(axis=0))
        bound = by_query.sum() * by_document.sum()
    return Kernelised(
        relevance=float((S * weights).sum()),
        kernelised=float((traces / p).sum()) if some else float("nan"),
        bound=float(bound),
        positive=float(positive.mean()),
    )
