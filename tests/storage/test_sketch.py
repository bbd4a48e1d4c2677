"""Sketches against loops and definitions."""

import numpy as np
import pytest

from weft.storage.codecs import clustering as codec
from weft.storage.codecs import sketch


@pytest.mark.parametrize("dim", [4, 12, 128])
def test_sketches_name_the_nearest_entries(dim):
    rng = np.random.default_rng(dim)
    residuals = (10 * rng.standard_normal((40, dim))).astype(np.float32)
    cells = rng.integers(0, 65536, 40)
    codebooks = rng.integers(-30, 30, (dim // 4, 16, 4)).astype(np.int8)
    sketches = sketch.encode(residuals, cells, codebooks)
    assert sketches.dtype == np.uint8
    assert sketches.shape == (40, sketch.width(dim)) == (40, 2 + -(-dim // 8))
    for t in range(40):
        assert sketches[t, :2].tolist() == [cells[t] % 256, cells[t] // 256]
        for s in range(dim // 4):
            number = sketches[t, 2 + s // 2] >> (4 if s % 2 else 0) & 15
            distances = ((residuals[t, 4 * s : 4 * s + 4] - codebooks[s]) ** 2).sum(axis=1)
            assert distances[number] <= distances.min() + 1e-3


def test_codebooks_explain_what_they_were_trained_on():
    rng = np.random.default_rng(0)
    centres = rng.integers(-40, 41, (8, 16, 4))
    numbers = rng.integers(0, 16, (4000, 8))
    residuals = (
        (centres[np.arange(8), numbers] + rng.standard_normal((4000, 8, 4))).reshape(4000, 32).astype(np.float32)
    )
    codebooks = sketch.train(residuals)
    packed = sketch.encode(residuals, np.zeros(4000, np.int64), codebooks)[:, 2:]
    found = np.stack([packed & 15, packed >> 4], axis=2).reshape(4000, 8)
    left = residuals.reshape(4000, 8, 4) - codebooks[np.arange(8), found]
    assert (left**2).sum() < 0.15 * (residuals**2).sum()
    assert np.array_equal(codebooks, sketch.train(residuals))


def test_spread_is_the_root_mean_squared_distance_to_the_cell():
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((2000, 12)).astype(np.float32)
    clusters = codec.cluster(vectors)
    of_cells = clusters.cells_of(np.arange(2000))
    for cell in range(len(clusters.cells)):
        inside = vectors[of_cells == cell]
        expected = np.sqrt(((inside - clusters.cells[cell]) ** 2).sum(axis=1).mean()) if len(inside) else 0
        assert clusters.spread[cell] == pytest.approx(expected, rel=1e-4)
