"""Arrays and calls that could lead the engine out of bounds are refused."""

import numpy as np
import pytest

from native import engine_oracle as oracle
from weft import _native


def wrong(**changes):
    bits = changes.pop("bits", 8)
    made = oracle.problem(np.random.default_rng(2), [2, 0, 1, 3], 8, bits=bits)
    made.lists[0] = np.array([0, 2])
    arguments = made.arguments(steps=changes.pop("steps", False))
    return {**arguments, **{name: change(arguments[name]) for name, change in changes.items()}}


def put(index, value):
    def change(array):
        array = array.copy()
        array[index] = value
        return array

    return change


@pytest.mark.parametrize(
    "changes",
    [
        {"offsets": put(0, 1)},
        {"offsets": put(1, -1)},
        {"offsets": put(2, 5)},
        {"offsets": put(-1, 7)},
        {"offsets": put(-1, 2**62)},
        {"offsets": lambda x: x[:0]},
        {"codes": lambda x: x[:-1]},
        {"codes": lambda x: np.ascontiguousarray(x[:, :4])},
        {"codes": lambda x: np.ascontiguousarray(x[:, :6])},
        {"codes": lambda x: x[:, :0]},
        {"scale": lambda x: 0.0},
        {"scale": lambda x: -1.0},
        {"scale": lambda x: float("nan")},
        {"scale": lambda x: float("inf")},
        {"norm": lambda x: float("nan")},
        {"norm": lambda x: -1.0},
        {"cell_codes": lambda x: x[:-1]},
        {"cell_codes": lambda x: np.ascontiguousarray(x[:, :4])},
        {"cell_codes": lambda x: np.zeros((len(x), 32768), np.uint8)},
        {"cell_starts": put(1, 10**6)},
        {"cell_starts": put(-1, 10**6)},
        {"cell_starts": put(0, -3)},
        {"cell_starts": lambda x: x[:-1]},
        {"cell_blocks": put(-1, 10**6)},
        {"cell_blocks": put(-2, 0)},
        {"cell_blocks": lambda x: x[:-1]},
        {"centroid_codes": lambda x: x[:-1]},
        {"centroid_codes": lambda x: x[: -8 * 8]},
        {"list_starts": put(-1, 10**6)},
        {"list_starts": put(1, -5)},
        {"list_starts": lambda x: x[:0]},
        {"list_starts": lambda x: x[:-1]},
        {"lists": put(0, 4)},
        {"lists": put(0, -1)},
        {"lists": lambda x: x[:-1]},
        {"lists": lambda x: x.astype(np.int64)},
        {"steps": True, "lists": put(0, 6)},
        {"steps": True, "lists": put(1, 0)},
        {"bits": 4, "levels": lambda x: x[:3]},
        {"bits": 4, "levels": lambda x: np.ascontiguousarray(x[:, :4])},
        {"bits": 2, "levels": lambda x: np.zeros((4, 16), np.int8)},
        {"bits": 4, "token_centroids": lambda x: x[:-1]},
        {"bits": 4, "token_centroids": lambda x: np.ascontiguousarray(x[:, :2])},
        {"bits": 4, "token_centroids": lambda x: None},
        {"bits": 4, "centroid_rows": lambda x: x[:-1]},
        {"bits": 4, "centroid_rows": lambda x: np.ascontiguousarray(x[:, :4])},
        {"bits": 4, "centroid_rows": lambda x: None},
        {"bits": 4, "levels": lambda x: None},
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes):
    with pytest.raises(ValueError, match=r"must|at most|go with"):
        _native.Engine(**wrong(**changes))


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_the_same_arrays_unchanged_are_accepted(bits):
    assert isinstance(_native.Engine(**wrong(bits=bits)), _native.Engine)
    assert isinstance(_native.Engine(**wrong(bits=bits, steps=True)), _native.Engine)


def test_a_label_beyond_the_centroids_reads_the_last_one():
    arguments = wrong(bits=4, token_centroids=lambda x: np.full_like(x, 255))
    out = np.empty((6, 8), dtype=np.float32)
    _native.Engine(**arguments).decode(np.array([0, 1, 2, 3], dtype=np.int32), out)
    assert np.isfinite(out).all()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("spread", np.ones(4, np.float32), "spread must have an entry per cell"),
        ("spread", np.array([1, 1, -1, 1, 1], np.float32), "spread must be finite"),
        ("spread", np.array([1, 1, np.nan, 1, 1], np.float32), "spread must be finite"),
        ("codebooks", None, "codebooks must have 16 entries"),
        ("codebooks", np.zeros((1, 16, 4), np.int8), "codebooks must have 16 entries"),
        ("sketches", None, "codebooks go with sketches"),
        ("sketches", np.zeros((5, 3), np.uint8), "sketches must have two bytes"),
        ("sketches", np.zeros((6, 4), np.uint8), "sketches must have two bytes"),
    ],
)
def test_wrong_sketches_are_refused(name, value, message):
    arguments = oracle.problem(np.random.default_rng(0), [2, 0, 1, 3], 8).arguments()
    good = {"spread": np.ones(5, np.float32), "codebooks": np.zeros((2, 16, 4), np.int8),
            "sketches": np.zeros((6, 3), np.uint8)}  # fmt: skip
    assert isinstance(_native.Engine(**{**arguments, **good}), _native.Engine)
    with pytest.raises(ValueError, match=message):
        _native.Engine(**{**arguments, **good, name: value})


def test_bad_calls_are_refused():
    engine = oracle.problem(np.random.default_rng(0), [2, 0, 1, 3], 8).engine()
    q, listed = np.ones((2, 8), dtype=np.float32), np.array([0, 3], dtype=np.int32)
    for bad in (np.ones((2, 4), np.float32), np.full((1, 8), np.nan, np.float32), np.full((1, 8), np.inf, np.float32)):
        with pytest.raises(ValueError, match="the query must"):
            engine.candidates(bad, None, 1, 1, 1)
        with pytest.raises(ValueError, match="the query must"):
            engine.rerank(bad, listed, 1, 0)
    for bad in ([-1], [4], [0, 2**31 - 1]):
        with pytest.raises(ValueError, match="listed must name documents"):
            engine.rerank(q, np.array(bad, dtype=np.int32), 1, 0)
        with pytest.raises(ValueError, match="listed must name documents"):
            engine.decode(np.array(bad, dtype=np.int32), np.empty((1, 8), np.float32))
    with pytest.raises(ValueError, match="out must have a row per token"):
        engine.decode(listed, np.empty((4, 8), np.float32))
    with pytest.raises(ValueError, match="allowed must have an entry per document"):
        engine.candidates(q, np.ones(3, np.uint8), 1, 1, 1)
    for bad, message in (([0.5], "an entry per query token"), ([0.5, np.nan], "finite"), ([np.inf, 0], "finite")):
        with pytest.raises(ValueError, match=message):
            engine.best(q, listed, 1, 0, np.array(bad, np.float32))
        with pytest.raises(ValueError, match=message):
            engine.probe(q, None, 1, 1, 1, 1, None, 0.0, 0.0, np.array(bad, np.float32))
    assert engine.candidates(q, None, -1, -1, -1).tolist() == []
    assert engine.rerank(q, listed, -1, -1)[0].tolist() == []
