"""Byte codes: the nearest ones, but for a few coordinates that take the error along the vector out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import _native
from weft.storage.codecs.clustering import encode

ENOUGH = 1 / 64


def vectors(seed, count, dim):
    made = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def along(x, error):
    return (error * x).sum(axis=1) / np.linalg.norm(x, axis=1)


@given(st.integers(0, 2**32 - 1), st.sampled_from([4, 32, 128, 132]), st.sampled_from([0.0, 3.0, 60.0, 280.0, 900.0]))
def test_no_coordinate_is_further_off_than_the_code_on_its_other_side(seed, dim, scale):
    x = vectors(seed, 40, dim)
    codes = encode(x, scale)
    exact = x.astype(np.float64) * np.float32(scale)
    rounded = np.clip(np.rint(exact), -127, 127)
    mine = codes.astype(np.float64) - 128
    assert codes.min() >= 1
    assert (np.abs(mine - rounded) <= 1 + 1e-9).all()
    assert (np.abs(mine - exact) <= np.maximum(np.abs(rounded - exact), 0.75 + 1e-4)).all()
    inside = np.abs(exact).max(axis=1) < 127
    before, after = (np.abs(along(x, c - exact)) for c in (rounded, mine))
    assert (after <= before + 1e-3)[inside].all()


def test_hardly_any_error_is_left_along_the_vector():
    x = vectors(0, 2000, 128)
    exact = x.astype(np.float64) * 280
    mine = encode(x, 280.0).astype(np.float64) - 128
    assert np.abs(along(x, np.rint(exact) - exact)).mean() > 0.2
    assert np.abs(along(x, mine - exact)).mean() < ENOUGH
    grown = np.square(mine - exact).sum() / np.square(np.rint(exact) - exact).sum()
    assert grown < 1.03  # the whole error stays what it was


@given(st.integers(0, 2**32 - 1))
def test_codes_stay_as_they_are(seed):
    codes = np.random.default_rng(seed).integers(1, 256, (20, 16)).astype(np.uint8)
    again = encode((codes.astype(np.float32) - 128) / np.float32(280.5), 280.5)
    assert (again == codes).all()


def test_zeros_and_nothing():
    assert encode(np.zeros((3, 8), np.float32), 100.0).tolist() == [[128] * 8] * 3
    assert encode(np.zeros((0, 8), np.float32), 100.0).shape == (0, 8)


def test_what_cannot_be_rounded_is_refused():
    codes = np.zeros((1, 4), np.uint8)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="finite"):
            _native.round_to_bytes(np.full((1, 4), bad, np.float32), 1.0, codes)
    with pytest.raises(ValueError, match="shape"):
        _native.round_to_bytes(np.zeros((1, 3), np.float32), 1.0, codes)
