"""The native kernels that build codebooks, against NumPy.

``python tests/native/building.py`` runs a fixed sweep at the level of ``WEFT_SIMD`` and prints that level:
`test_simd_levels.py` starts it once for each level, because a process keeps the level it began with.
"""

from __future__ import annotations

import numpy as np

from weft import _native
from weft.kernels import simd_level


def distances(codes: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Squared distances of byte codes (t, dim) to centroids (k, dim) of signed bytes, (t, k)."""
    centred = codes.astype(np.int64) - 128
    return ((centred[:, None] - centroids[None].astype(np.int64)) ** 2).sum(axis=2)


def check_nearest(rng: np.random.Generator, tokens: int, dim: int, count: int, kind: str) -> None:
    codes = rng.integers(0, 256, (tokens, dim), dtype=np.uint8)
    centroids = rng.integers(-127, 128, (count, dim)).astype(np.int8)
    if kind == "ends":  # the greatest sums there are
        codes = rng.choice([0, 255], (tokens, dim)).astype(np.uint8)
        centroids = rng.choice([-127, 127], (count, dim)).astype(np.int8)
    elif kind == "ties":
        centroids[:] = centroids[rng.integers(0, max(count // 3, 1), count)]
    of, distance = np.empty(tokens, np.int32), np.empty(tokens, np.float32)
    _native.nearest(codes, centroids, of, distance)
    expected = distances(codes, centroids)
    np.testing.assert_array_equal(of, expected.argmin(axis=1))  # of equals the first
    np.testing.assert_allclose(distance, expected.min(axis=1), rtol=1e-6)

    improved = centroids.copy()
    _native.improve_centroids(codes, improved, 1)
    for c in range(count):
        inside = codes[of == c].astype(np.float64) - 128
        wanted = np.clip(inside.mean(axis=0), -127, 127) if len(inside) else centroids[c]
        assert np.abs(improved[c] - wanted).max() <= 0.5001


def check_sketches(rng: np.random.Generator, tokens: int, dim: int, kind: str) -> None:
    codes = rng.integers(0, 256, (tokens, dim), dtype=np.uint8)
    cells = rng.integers(1, 256, (7, dim), dtype=np.uint8)
    of = rng.integers(0, 7, tokens).astype(np.int32)
    books = rng.integers(-127, 128, (dim // 4, 16, 4)).astype(np.int8)
    if kind == "ties":
        books[:, 5:] = books[:, 4:5]
    out = np.empty((tokens, 2 + -(-dim // 8)), np.uint8)
    _native.sketches(codes, cells, of, books, out)
    residuals = np.clip(codes.astype(np.int64) - cells[of], -127, 127).reshape(tokens, -1, 1, 4)
    numbers = ((residuals - books[None]) ** 2).sum(axis=3).argmin(axis=2)
    halves = np.stack([out[:, 2:] & 15, out[:, 2:] >> 4], axis=2).reshape(tokens, -1)[:, : dim // 4]
    np.testing.assert_array_equal(halves, numbers)
    np.testing.assert_array_equal(out[:, 0] + 256 * out[:, 1].astype(int), of)

    trained = books.copy()
    _native.improve_codebooks(codes, cells, of, trained, 1)
    whole = (codes.astype(np.int64) - cells[of]).reshape(tokens, -1, 4)
    for s in range(dim // 4):
        for e in range(16):
            inside = whole[numbers[:, s] == e, s]
            wanted = np.clip(inside.mean(axis=0), -127, 127) if len(inside) else books[s, e]
            assert np.abs(trained[s, e] - wanted).max() <= 0.5001


def main() -> None:
    rng = np.random.default_rng(0)
    checked = 0
    for dim in (4, 8, 60, 128, 260, 300):
        for tokens in (1, 5, 13, 97, 200):
            for count in (1, 2, 15, 16, 17, 40, 100):
                for kind in ("any", "ends", "ties"):
                    check_nearest(rng, tokens, dim, count, kind)
                    checked += 1
            for kind in ("any", "ties"):
                check_sketches(rng, tokens, dim, kind)
                checked += 1
    print(simd_level(), checked)


if __name__ == "__main__":
    main()
