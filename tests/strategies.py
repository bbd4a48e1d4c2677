"""Hypothesis strategies for ragged token vectors, rich in the cases that break late interaction."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st


@st.composite
def collections(draw, *, min_texts=0, max_texts=5, max_tokens=6, dim=None, kinds=("normal", "negative", "ties")):
    """A list of (m, dim) float32 arrays: empty and one-token texts, odd dimensions, ties.

    The kind "negative" makes every similarity to a query of the same kind negative (see `problems`).
    """
    d = draw(st.integers(1, 9)) if dim is None else dim
    lengths = draw(st.lists(st.integers(0, max_tokens), min_size=min_texts, max_size=max_texts))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(kinds))
    return [vectors(rng, m, d, kind) for m in lengths]


def vectors(rng, m, d, kind):
    if kind == "ties":  # small integers: many exactly equal similarities, exact in any precision
        return rng.integers(-2, 3, (m, d)).astype(np.float32)
    x = rng.standard_normal((m, d)).astype(np.float32)
    return -np.abs(x) - np.float32(0.1) if kind == "negative" else x


@st.composite
def problems(draw, *, max_texts=5, max_tokens=6):
    """One query (n, dim) and documents; n may be 0; with optional saliences and vocabulary ids."""
    d = draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["normal", "negative", "ties"]))
    Q = vectors(rng, draw(st.integers(0, 5)), d, kind)
    if kind == "negative":
        Q = -Q  # positive query against negative documents: all similarities below 0
    lengths = draw(st.lists(st.integers(0, max_tokens), min_size=1, max_size=max_texts))
    D = [vectors(rng, m, d, kind) for m in lengths]
    salient = draw(st.booleans())
    u_q = rng.integers(0, 3, len(Q)).astype(np.float32) if salient else None
    u_d = [rng.random(m).astype(np.float32) * rng.integers(0, 2, m) for m in lengths] if salient else None
    u_d = [u.astype(np.float32) for u in u_d] if salient else None
    ids_q = rng.integers(0, 4, len(Q))
    ids_d = [rng.integers(0, 4, m) for m in lengths]
    return Q, D, u_q, u_d, ids_q, ids_d
