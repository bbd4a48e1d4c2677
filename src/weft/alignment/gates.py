"""Unary salience (ALIGNER eq. 3): u_i = λ_i · ReLU(W·x_i + b), with a gate λ that keeps few tokens.

The paper compares four gates (figure 6): the entropy-regularised LP, a hard top-k, no gate but the ReLU,
and the ReLU with an L1 penalty on u in the loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from array_api_compat import array_namespace

from weft.alignment.backend import Array, as_array, as_float, like, top_mask
from weft.alignment.lp import GRADIENTS, METHODS, entropy_lp
from weft.alignment.pairwise import ROUNDING
from weft.alignment.spec import Spec
from weft.checks import check_count, check_fraction, check_positive
from weft.errors import invalid


class Gate(Spec, ABC, family="gate"):
    """From token scores s ≥ 0 to gates λ in [0, 1]; a string such as ``"lp:0.4,eps=0.002"`` parses into one."""

    @abstractmethod
    def __call__(self, s: Array, mask: Array) -> Array:
        """Return λ for scores s; both and the mask have shape (..., m)."""

    def penalty(self, u: Array, mask: Array) -> Any:  # noqa: ARG002
        """Return what this gate adds to the training loss for saliences u (..., m); nothing unless it says so."""
        return 0.0


def budget(alpha: float, mask: Array) -> Array:
    """Return k = ⌈α·m⌉ for rows of m real tokens (§3.2), in decimal: ⌈0.1 · 30⌉ is 3. Shape (..., m) → (...)."""
    xp = array_namespace(mask)
    m = xp.astype(xp.sum(xp.astype(mask, xp.int64), axis=-1), xp.float64)
    return xp.astype(xp.ceil(alpha * m - ROUNDING), xp.int64)


@dataclass(frozen=True)
class EntropyLPGate(Gate):
    """λ from the entropy-regularised LP with budget ⌈α·m⌉ (eq. 4-5).

    ``method="eq5"`` is the paper's coordinate ascent as written, cut off after `iterations` steps;
    ``gradient="iterations"`` goes back through it.
    """

    name: ClassVar[str] = "lp"
    alpha: float
    eps: float = 0.002
    gradient: str = "implicit"
    method: str = "exact"
    iterations: int = 100

    def __post_init__(self) -> None:
        self._settle(alpha=check_fraction(self.alpha, "alpha", type(self).__name__))
        self._settle(eps=check_positive(self.eps, "eps", type(self).__name__))
        if self.gradient not in GRADIENTS:
            raise invalid("gradient", type(self).__name__, f"one of {GRADIENTS}", self.gradient)
        if self.method not in METHODS:
            raise invalid("method", type(self).__name__, f"one of {METHODS}", self.method)
        self._settle(iterations=check_count(self.iterations, "iterations", type(self).__name__))

    def __call__(self, s: Array, mask: Array) -> Array:
        return entropy_lp(
            s,
            budget(self.alpha, mask),
            eps=self.eps,
            mask=mask,
            method=self.method,
            max_iterations=self.iterations,
            gradient=self.gradient,
        )


@dataclass(frozen=True)
class HardGate(Gate):
    """λ = 1 on the ⌈α·m⌉ highest scores, 0 elsewhere: the LP without its entropy."""

    name: ClassVar[str] = "hard"
    alpha: float

    def __post_init__(self) -> None:
        self._settle(alpha=check_fraction(self.alpha, "alpha", type(self).__name__))

    def __call__(self, s: Array, mask: Array) -> Array:
        xp = array_namespace(s)
        return xp.astype(top_mask(s, budget(self.alpha, mask)[..., None], mask), s.dtype)


@dataclass(frozen=True)
class ReLUGate(Gate):
    """No gate: λ = 1, sparsity only from the ReLU of eq. 3."""

    name: ClassVar[str] = "relu"

    def __call__(self, s: Array, mask: Array) -> Array:
        return array_namespace(s).astype(mask, s.dtype)


@dataclass(frozen=True)
class L1Gate(Gate):
    """No gate, but a penalty: coefficient · mean over texts of Σ_i |u_i| joins the loss."""

    name: ClassVar[str] = "l1"
    coefficient: float

    def __post_init__(self) -> None:
        self._settle(coefficient=check_positive(self.coefficient, "coefficient", type(self).__name__))

    def __call__(self, s: Array, mask: Array) -> Array:
        return array_namespace(s).astype(mask, s.dtype)

    def penalty(self, u: Array, mask: Array) -> Any:
        xp = array_namespace(u)
        return self.coefficient * xp.mean(xp.sum(xp.abs(u) * xp.astype(mask, u.dtype), axis=-1))


def salience(vectors: Array, weight: Array, bias: Any, gate: Gate | str, mask: Array | None = None) -> Array:
    """Compute u (eq. 3) for token vectors.

    Parameters
    ----------
    vectors : array, shape (..., m, dim)
    weight : array, shape (dim,)
        W of eq. 3.
    bias : number or 0-d array
        b of eq. 3.
    gate : Gate or its string
    mask : bool array, shape (..., m), optional

    Returns
    -------
    array, shape (..., m)

    Examples
    --------
    >>> import numpy as np
    >>> salience(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]), np.array([2.0, 1.0]), 0.5, "hard:0.34")
    array([2.5, 1.5, 0. ])
    """
    owner = "salience"
    vectors = as_float(as_array(vectors, "vectors", owner))
    weight = as_float(like(weight, vectors, "weight", owner))
    xp = array_namespace(vectors)
    if vectors.ndim < 2:
        raise invalid("vectors", owner, "of shape (..., tokens, dim)", tuple(vectors.shape))
    if weight.ndim != 1 or weight.shape[0] != vectors.shape[-1]:
        raise invalid("weight", owner, f"a vector of the tokens' dimension, {vectors.shape[-1]}", tuple(weight.shape))
    if mask is None:
        mask = xp.ones_like(vectors[..., 0], dtype=xp.bool)
    else:
        mask = xp.astype(like(mask, vectors, "mask", owner), xp.bool)
        if tuple(mask.shape) != tuple(vectors.shape[:-1]):
            raise invalid("mask", owner, f"of shape {tuple(vectors.shape[:-1])}", tuple(mask.shape))
    if not bool(xp.all(xp.isfinite(vectors) | ~mask[..., None])):
        raise invalid("vectors", owner, "finite (no NaN, no infinity)", "a vector with NaN or infinity")
    vectors = xp.where(mask[..., None], vectors, xp.zeros_like(vectors))
    s = vectors @ weight + bias
    s = xp.where(mask & (s > 0), s, xp.zeros_like(s))  # f = ReLU
    return Gate.parse(gate)(s, mask) * s
