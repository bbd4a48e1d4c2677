"""Native scores against loops over float64, for the tests of this folder.

``python tests/native/parity.py`` runs a fixed sweep at the level of ``WEFT_SIMD`` and prints that level:
`test_simd_levels.py` starts it once for each level, because a process keeps the level it began with.
"""

from __future__ import annotations

import math

import numpy as np

from weft.kernels import score_ragged, simd_level
from weft.types import TokenVectors

KINDS = ("normal", "negative", "ties", "tiny")


def brute_force(queries: TokenVectors, documents: TokenVectors, count) -> tuple[np.ndarray, np.ndarray]:
    """Σ S∘A and ΣA of every pair, by loops; `count(m)` document tokens align with each query token."""
    totals = np.zeros((len(queries), len(documents)))
    masses = np.zeros_like(totals)
    for b, query in enumerate(queries):
        for d, document in enumerate(documents):
            for i, q in enumerate(query.astype(np.float64)):
                row = [float(q @ t) for t in document.astype(np.float64)]
                best = sorted(range(len(row)), key=lambda j, row=row: (-row[j], j))[: count(len(row))]
                for j in best:
                    u = salience(queries, b, i) * salience(documents, d, j)
                    totals[b, d] += u * row[j]
                    masses[b, d] += u
    return totals, masses


def salience(texts: TokenVectors, text: int, token: int) -> float:
    return 1.0 if texts.salience is None else float(texts.salience[texts.offsets[text] + token])


def counts(alignment: str):
    """How many document tokens align, from the alignment's string."""
    name, _, value = alignment.partition(",")[0].partition(":")
    if name == "top-k":
        return lambda m: min(int(value), m)
    if name == "top-p":
        hundredths = round(float(value) * 100)  # integers, so that ⌊p·m⌋ has no rounding of its own
        return lambda m: min(max(hundredths * m // 100, 1), m)
    return lambda m: min(1, m)


def check(queries: TokenVectors, documents: TokenVectors, alignment: str, threads: int = 1) -> None:
    """Compare `score_ragged` with the loops, for the alignment's own Z and for the bare sum."""
    totals, masses = brute_force(queries, documents, counts(alignment))
    z = {"sum-of-max": np.ones_like(masses)}.get(alignment, masses)
    expected = np.divide(totals, z, out=np.zeros_like(totals), where=z > 0)
    # Rounding grows with the length of the vectors, not with the score, which may cancel to nothing.
    norms = [np.sqrt((side.values.astype(np.float64) ** 2).sum(axis=1)).max(initial=0) for side in (queries, documents)]
    scale = math.prod(norms) * max(1.0, masses.max(initial=0)) * (1 + queries.dim / 16)
    for form, want in ((alignment, expected), (f"{alignment},z=one", totals)):
        got = score_ragged(queries, documents, form, threads=threads)
        assert got.dtype == np.float32
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-7 * scale + 1e-30, err_msg=form)


def vectors(rng: np.random.Generator, lengths, dim: int, kind: str, *, side: str, dtype=np.float32) -> list[np.ndarray]:
    """One (m, dim) array per length. "negative": every similarity of a query and a document is below 0."""
    sign = -1.0 if side == "document" else 1.0
    made = []
    for m in lengths:
        x = rng.standard_normal((m, dim))
        if kind == "negative":
            x = sign * (np.abs(x) + 0.1)
        elif kind == "ties":  # small integers: exact in every type, and equal similarities everywhere
            x = rng.integers(-1, 2, (m, dim)).astype(float)
            if m > 1:
                x[m // 2 :] = x[: m - m // 2]
        elif kind == "tiny" and side == "document":  # subnormal as float16, normal as float32
            x = x * 2.0**-22
        made.append(x.astype(dtype))
    return made


def weights(rng: np.random.Generator, lengths) -> list[np.ndarray]:
    """Saliences in quarters, zeros among them."""
    return [rng.integers(0, 5, m) / 4 for m in lengths]


def make(
    rng: np.random.Generator, query_lengths, lengths, dim: int, kind: str, *, dtype=np.float32, salient=False
) -> tuple[TokenVectors, TokenVectors]:
    """Queries (float32) and documents (`dtype`) of a kind."""
    sides = []
    for side, ls, kept in (("query", query_lengths, np.float32), ("document", lengths, dtype)):
        u = weights(rng, ls) if salient else None
        values = [v.astype(kept) for v in vectors(rng, ls, dim, kind, side=side, dtype=kept)]
        offsets = np.concatenate([[0], np.cumsum(ls)]).astype(np.int64)
        flat = np.concatenate([np.zeros((0, dim), kept), *values])
        joined = None if u is None else np.concatenate([np.zeros(0), *u])
        sides.append(TokenVectors(flat, offsets, None, joined))
    return sides[0], sides[1]


def main() -> None:
    rng = np.random.default_rng(0)
    lengths = [0, 1, 2, 5, 6, 7, 0, 12, 13, 31, 80, 1, 0]
    cases = 0
    for dim in (1, 3, 8, 31, 67, 128):
        for query_lengths in ([0], [1], [7, 8, 9], [16], [17, 0, 33], [64]):
            kind = KINDS[cases % len(KINDS)]
            for alignment in ("sum-of-max", "top-k:1", "top-k:3", "top-k:8", "top-k:11", "top-k:70", "top-p:0.13"):
                for dtype in (np.float32, np.float16):
                    salient = bool(cases % 3 == 0)
                    exact = "ties" if salient else kind  # which token wins must not hang on the last bit
                    check(*make(rng, query_lengths, lengths, dim, exact, dtype=dtype, salient=salient), alignment)
                    cases += 1
    print(f"{simd_level()} {cases}")


if __name__ == "__main__":
    main()
