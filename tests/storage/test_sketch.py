"""Sketches against loops and definitions."""

import numpy as np
import pytest

from weft.storage.codecs import sketch


@pytest.mark.parametrize("dim", [4, 12, 128])
def test_sketches_name_the_nearest_entries(dim):
    rng = np.random.default_rng(dim)
    codes = rng.integers(0, 256, (40, dim), dtype=np.uint8)
    cells = rng.integers(1, 256, (300, dim), dtype=np.uint8)
    of_cells = rng.integers(0, 300, 40)
    codebooks = rng.integers(-30, 30, (dim // 4, 16, 4)).astype(np.int8)
    sketches = sketch.encode(codes, of_cells, cells, codebooks)
    assert sketches.dtype == np.uint8
    assert sketches.shape == (40, sketch.width(dim)) == (40, 2 + -(-dim // 8))
    residuals = np.clip(codes.astype(int) - cells[of_cells], -127, 127)
    for t in range(40):
        assert sketches[t, :2].tolist() == [of_cells[t] % 256, of_cells[t] // 256]
        for s in range(dim // 4):
            number = sketches[t, 2 + s // 2] >> (4 if s % 2 else 0) & 15
            distances = ((residuals[t, 4 * s : 4 * s + 4] - codebooks[s]) ** 2).sum(axis=1)
            assert number == distances.argmin()


def test_codebooks_explain_what_they_were_trained_on():
    rng = np.random.default_rng(0)
    centres = rng.integers(-40, 41, (8, 16, 4))
    numbers = rng.integers(0, 16, (4000, 8))
    residuals = (
        np.rint(centres[np.arange(8), numbers] + rng.standard_normal((4000, 8, 4))).reshape(4000, 32).astype(int)
    )
    cells = np.full((1, 32), 128, np.uint8)
    codes, of_cells = (128 + residuals).astype(np.uint8), np.zeros(4000, np.int64)
    codebooks = sketch.train(codes, of_cells, cells)
    packed = sketch.encode(codes, of_cells, cells, codebooks)[:, 2:]
    found = np.stack([packed & 15, packed >> 4], axis=2).reshape(4000, 8)
    left = residuals.reshape(4000, 8, 4) - codebooks[np.arange(8), found]
    assert (left**2).sum() < 0.15 * (residuals**2).sum()
    assert np.array_equal(codebooks, sketch.train(codes, of_cells, cells))
