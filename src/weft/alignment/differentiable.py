"""ALIGNER's differentiable alignment with sparsity constraints (A.2, eq. 9): each row of Ã solves the LP of eq. 4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weft.alignment.backend import Array
from weft.alignment.base import Alignment, Pairs
from weft.alignment.lp import GRADIENTS, entropy_lp
from weft.checks import check_count, check_positive
from weft.errors import invalid


@dataclass(frozen=True)
class DifferentiableAlignment(Alignment):
    """DA: rows of Ã in [0, 1] that sum to k and spread over near ties as ε grows; ε → 0 is top-k (eq. 9)."""

    name: ClassVar[str] = "da"
    aliases: ClassVar[tuple[str, ...]] = ("differentiable",)
    reference: ClassVar[str] = "ALIGNER A.2, eq. 9"
    k: int
    eps: float = 0.01
    gradient: str = "implicit"
    z: str = "sum"

    def _check(self) -> None:
        self._settle(k=check_count(self.k, "k", type(self).__name__))
        self._settle(eps=check_positive(self.eps, "eps", type(self).__name__))
        if self.gradient not in GRADIENTS:
            raise invalid("gradient", type(self).__name__, f"one of {GRADIENTS}", self.gradient)

    def pairwise(self, pairs: Pairs) -> Array:
        return entropy_lp(pairs.S, self.k, eps=self.eps, mask=pairs.valid, gradient=self.gradient)
