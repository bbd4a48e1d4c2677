"""The entropy-regularised linear programme of ALIGNER (eq. 4-5, A.1): a relaxed, differentiable top-k.

    max_λ  sᵀλ + ε·H(λ)     subject to  1ᵀλ = k,  0 ≤ λ_i ≤ 1

Its solution is λ_i = min(1, exp((s_i + a)/ε)) for the one number a that makes λ sum to k. Writing
y = exp(−a/ε) and x_i = s_i/ε, eq. 5 is the map  y ← (r·y + U)/k, with r the number of saturated λ_i (= 1)
and U = Σ exp(x_i) over the others. It converges like (r/k)^t: hundreds of steps when most of the k chosen
tokens saturate, which is what a small ε is for. But while r stays the map is affine and its fixed point
y = U/(k − r) is known. Saturated tokens are the highest, so sorting gives all candidates for r at once, and
the right one is the first whose next token is not saturated. That is the default; eq. 5 is there as written.
All of it runs on logarithms, so ε = 0.002 neither overflows nor underflows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_torch_array

from weft.alignment.backend import Array, as_array, as_float, detach, device_of, kth_largest, like
from weft.checks import check_count, check_positive
from weft.errors import invalid

METHODS = ("exact", "eq5")
GRADIENTS = ("implicit", "iterations")


def entropy_lp(
    s: Array,
    k: Any,
    *,
    eps: float = 0.002,
    mask: Array | None = None,
    method: str = "exact",
    max_iterations: int = 100,
    tolerance: float = 1e-6,
    gradient: str = "implicit",
) -> Array:
    """Solve eq. 4 for every row of s.

    Parameters
    ----------
    s : array, shape (..., m)
        Token scores.
    k : number or array, shape (...) or broadcast to it
        Budget of each row. At most 0 real tokens' worth gives λ = 0; k at or above the number of real
        tokens gives λ = 1 on all of them.
    eps : float
        Weight of the entropy; the smaller, the closer to a hard top-k.
    mask : bool array, shape (..., m), optional
        True where a token is real; λ is 0 elsewhere.
    method : {"exact", "eq5"}
        ``"eq5"`` is the paper's coordinate ascent as written; ``"exact"`` its limit, by sorting.
    max_iterations, tolerance
        For ``"eq5"``: stop when every row has |Σλ − k| ≤ tolerance·k, or after this many iterations. Cut short
        it returns the paper's approximate λ, whose sum is below k.
    gradient : {"implicit", "iterations"}
        On torch: the derivative of the solution itself by the implicit function theorem, or
        back-propagation through the computation that was run.

    Returns
    -------
    array, shape (..., m)
        λ, each in [0, 1], rows summing to min(k, number of real tokens).

    Examples
    --------
    >>> import numpy as np
    >>> entropy_lp(np.array([0.9, 0.1, 0.8, 0.2]), 2).round(3)
    array([1., 0., 1., 0.])
    >>> entropy_lp(np.array([1.0, 1.0, 1.0, 0.0]), 2).round(3)  # ties share the budget
    array([0.667, 0.667, 0.667, 0.   ])
    """
    owner = "entropy_lp"
    check_positive(eps, "eps", owner)
    check_count(max_iterations, "max_iterations", owner)
    check_positive(tolerance, "tolerance", owner)
    if method not in METHODS:
        raise invalid("method", owner, f"one of {METHODS}", method)
    if gradient not in GRADIENTS:
        raise invalid("gradient", owner, f"one of {GRADIENTS}", gradient)
    given = as_array(s, "s", owner)
    s = as_float(given)  # half precision cannot tell scores apart that differ by ε
    xp = array_namespace(s)
    if s.ndim < 1:
        raise invalid("s", owner, "of shape (..., tokens)", s)
    k = xp.astype(like(k, s, "k", owner), s.dtype)
    if not _broadcasts(tuple(k.shape), tuple(s.shape[:-1])) or not bool(xp.all(k >= 0)):
        raise invalid("k", owner, f">= 0, a number or of shape {tuple(s.shape[:-1])}", k)
    mask = xp.ones_like(s, dtype=xp.bool) if mask is None else xp.astype(like(mask, s, "mask", owner), xp.bool)
    if not _broadcasts(tuple(mask.shape), tuple(s.shape)):
        raise invalid("mask", owner, f"of shape {tuple(s.shape)}", tuple(mask.shape))
    mask = xp.broadcast_to(mask, s.shape)
    if not bool(xp.all(xp.isfinite(s) | ~mask)):
        raise invalid("s", owner, "finite (no NaN, no infinity)", "scores with NaN or infinity")
    options = (eps, method, max_iterations, tolerance)
    if is_torch_array(s) and s.requires_grad and gradient == "implicit":
        from weft.alignment.lp_torch import ImplicitEntropyLP

        lam = ImplicitEntropyLP.apply(s, k[..., None], mask, *options)  # type: ignore[no-untyped-call]
    else:
        lam = _solve(s, k[..., None], mask, *options)
    return lam.to(given.dtype) if is_torch_array(given) and given.dtype.is_floating_point else lam


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(shape[::-1], to[::-1], strict=False))


def implicit_vjp(lam: Array, upstream: Array, eps: float) -> Array:
    """Pull a gradient back through the solution: ∂L/∂s from ∂L/∂λ, both of shape (..., m).

    Where λ < 1, dλ_i = (λ_i/ε)(ds_i + da), and Σ dλ = 0 gives da = −Σ λ_i ds_i / Σ λ_i over those tokens.
    Saturated and masked tokens do not move.
    """
    xp = array_namespace(lam)
    free = xp.where(lam < 1, lam, xp.zeros_like(lam))
    total = xp.sum(free, axis=-1, keepdims=True)
    mean = xp.sum(free * upstream, axis=-1, keepdims=True) / xp.where(total > 0, total, xp.ones_like(total))
    return free * (upstream - mean) / eps


def _solve(s: Array, k: Array, mask: Array, eps: float, method: str, max_iterations: int, tolerance: float) -> Array:
    xp = array_namespace(s)
    if 0 in s.shape:
        return s
    count = xp.sum(xp.astype(mask, s.dtype), axis=-1, keepdims=True)
    k = xp.broadcast_to(k, count.shape)
    # Rows whose answer is known (all or nothing) would put infinities into the iterations and NaN into
    # their gradients. They get a harmless stand-in, and their own answer at the end.
    trivial = (k <= 0) | (k >= count)
    solved_mask = mask | trivial
    k_safe = xp.where(trivial, 0.5 * xp.ones_like(k), k)
    minus_inf = xp.asarray(-xp.inf, dtype=s.dtype, device=device_of(s))
    s = xp.where(trivial | ~solved_mask, xp.zeros_like(s), s)
    # Centred on the k-th score: digits matter where λ is neither 0 nor 1, not at the top.
    masked = xp.where(solved_mask, detach(s), minus_inf)
    rank = xp.clip(xp.ceil(k_safe), 1, s.shape[-1])
    x = xp.where(solved_mask, (s - kth_largest(masked, xp.astype(rank, xp.int64))) / eps, minus_inf)
    if method == "exact":
        # Whatever stands this far above the k-th is saturated, and its exact height would only cost digits.
        room = k_safe - (rank - 1)
        x = xp.minimum(x, xp.log(s.shape[-1] / room) + 1)

    if method == "exact":
        log_y = _fixed_point(x, _exact_log_y(detach(x), k_safe), k_safe)
    else:
        log_y = _logsumexp(x) - xp.log(k_safe)  # eq. 5 with b = 0
        for _ in range(max_iterations - 1):
            total = xp.sum(xp.exp(xp.minimum(detach(x - log_y), xp.zeros_like(x))), axis=-1, keepdims=True)
            if bool(xp.all(xp.abs(total - k_safe) <= tolerance * k_safe)):
                break
            log_y = _eq5_step(x, log_y, k_safe)

    lam = xp.exp(xp.minimum(x - log_y, xp.zeros_like(x)))
    known = xp.astype(mask & (k >= count), s.dtype)
    return xp.where(trivial, known, lam)


def _exact_log_y(x: Array, k: Array) -> Array:
    """Find ln y with Σ min(1, exp(x_i − ln y)) = k by trying every r: (..., m) → (..., 1)."""
    xp = array_namespace(x)
    falling = xp.flip(xp.sort(x, axis=-1), axis=-1)
    r = xp.arange(x.shape[-1], dtype=x.dtype, device=device_of(x))
    left = k - r
    possible = left > 0
    candidates = _tail_logsumexp(falling) - xp.log(xp.where(possible, left, xp.ones_like(left)))  # ln U/(k − r)
    fits = possible & (falling <= candidates)  # the (r+1)-th token is not saturated
    # One r fits in exact arithmetic; if rounding at a tie hides it, the last possible one is as good.
    last = xp.sum(xp.astype(possible, xp.int64), axis=-1, keepdims=True) - 1
    first = xp.argmax(xp.astype(fits, xp.int64), axis=-1, keepdims=True)
    chosen = xp.where(xp.any(fits, axis=-1, keepdims=True), first, last)
    return xp.take_along_axis(candidates, chosen, axis=-1)


def _fixed_point(x: Array, log_y: Array, k: Array) -> Array:
    """Return the fixed point of eq. 5 for the tokens saturated at y, U/(k − r), with its gradient."""
    xp = array_namespace(x)
    saturated = detach(x) > log_y
    left = k - xp.sum(xp.astype(saturated, x.dtype), axis=-1, keepdims=True)
    log_u = _logsumexp(xp.where(saturated, xp.asarray(-xp.inf, dtype=x.dtype, device=device_of(x)), x))
    # In exact arithmetic r < k and U > 0; rounding at a tie can break either, and then y is already right.
    movable = (left > 0) & (log_u > -xp.inf)
    zero = xp.zeros_like(log_u)
    return xp.where(movable, xp.where(movable, log_u, zero) - xp.log(xp.where(movable, left, zero + 1)), log_y)


def _eq5_step(x: Array, log_y: Array, k: Array) -> Array:
    """Apply eq. 5 once: b_i = min(−s_i − a, 0), then a = ε ln k − ε ln Σ exp((s_i + b_i)/ε)."""
    return _logsumexp(array_namespace(x).minimum(x, log_y)) - array_namespace(x).log(k)


def _tail_logsumexp(x: Array) -> Array:
    """Log Σ_{i ≥ r} exp(x_i) for every r, (..., m) → (..., m); both libraries have it, under different names."""
    if is_torch_array(x):
        return x.flip(-1).logcumsumexp(-1).flip(-1)
    return np.logaddexp.accumulate(x[..., ::-1], axis=-1)[..., ::-1]


def _logsumexp(x: Array) -> Array:
    """Row-wise log Σ exp, −inf for rows of −inf, with a gradient that is never NaN; (..., m) → (..., 1)."""
    xp = array_namespace(x)
    top = xp.max(detach(x), axis=-1, keepdims=True)
    top = xp.where(top == -xp.inf, xp.zeros_like(top), top)
    total = xp.sum(xp.exp(x - top), axis=-1, keepdims=True)
    safe = xp.where(total > 0, total, xp.ones_like(total))
    return xp.where(total > 0, xp.log(safe) + top, xp.full_like(total, -xp.inf))
