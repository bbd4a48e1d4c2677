"""The implicit derivative of the entropy-regularised LP as a torch function. Imported only when torch is in use."""

from __future__ import annotations

from typing import Any

import torch

from weft.alignment.lp import _solve, implicit_vjp


class ImplicitEntropyLP(torch.autograd.Function):
    """Forward: solve eq. 4 without a graph. Backward: `implicit_vjp`, whatever the number of iterations was."""

    @staticmethod
    def forward(ctx: Any, s: Any, k: Any, mask: Any, eps: float, *options: Any) -> Any:
        """Solve; (..., m) → (..., m)."""
        lam = _solve(s, k, mask, eps, *options)
        ctx.save_for_backward(lam, mask)
        ctx.eps = eps
        return lam

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        """Pull the gradient of λ back to s; k and the options get none."""
        lam, mask = ctx.saved_tensors
        return (
            torch.where(mask, implicit_vjp(lam, upstream[0], ctx.eps), 0),
            None,
            None,
            None,
            None,
            None,
            None,
        )
