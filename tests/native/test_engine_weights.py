"""Weighed finding and re-ranking against NumPy, with arguments that lead nowhere refused."""

import numpy as np
import pytest

from native import engine_oracle as oracle
from weft import _native


def weighed(seed, *, steps=False, bits=8):
    """A segment with saliences, and a query."""
    rng = np.random.default_rng(seed)
    made = oracle.problem(rng, [3, 1, 0, 4, 2, 5], 16, bits=bits)
    arguments = made.arguments(steps=steps)
    listed = arguments["lists"]
    saliences = rng.random(len(made.rows)).astype(np.float32)
    arguments |= {
        "saliences": saliences,
        "mean_weights": rng.random(6).astype(np.float32),
        "list_weights": rng.integers(0, 256, len(listed)).astype(np.uint8),
        "weight_unit": 1 / 255,
    }
    query = rng.standard_normal((int(rng.integers(1, 40)), 16)).astype(np.float32)
    return made, arguments, query, rng.random(len(query)).astype(np.float32)


def scores_of(made, saliences, query, weights, divides):
    """Of all documents, by their rows: the query's weights are in its vectors. NaN where tokens are equally near, all
    but: which of them is the nearest to a query rounded to bytes is not known."""
    scores = np.zeros(len(made.offsets) - 1)
    for d, (a, b) in enumerate(zip(made.offsets, made.offsets[1:], strict=False)):
        if a == b:
            continue
        S = query.astype(np.float64) @ ((made.rows[a:b].astype(np.float64) - 128) / made.scale).T
        nearest = S.argmax(axis=1)
        near = S.max(axis=1, keepdims=True) - 0.03 * np.abs(S).max()
        if ((near <= S).sum(axis=1) > 1).any():
            scores[d] = np.nan
            continue
        u = saliences[a:b][nearest]
        z = (weights * u).sum() if divides else 1
        scores[d] = (u * S.max(axis=1)).sum() / z
    return scores


@pytest.mark.parametrize("divides", [False, True])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("seed", range(4))
def test_re_ranking_weighs_by_the_nearest_token(seed, bits, divides):
    made, arguments, query, weights = weighed(seed, bits=bits)
    engine = _native.Engine(**arguments)
    every = np.arange(6, dtype=np.int32)
    found, scores = engine.rerank_weighed(query, every, 6, weights, divides)
    truth = scores_of(made, arguments["saliences"], query, weights, divides)
    by_document = np.empty(6)
    by_document[found] = scores
    assert (np.diff(scores) <= 0).all()
    told = np.isfinite(truth)
    assert told.sum() >= 2
    assert by_document[told] == pytest.approx(truth[told], abs=0.05 * np.abs(truth[told]).max() + 1e-3)
    assert engine.rerank_weighed(query, every, 2, weights, divides)[0].tolist() == found[:2].tolist()


@pytest.mark.parametrize("steps", [False, True])
def test_probing_brings_the_weight_of_the_nearest_centroid(steps):
    """Documents at one centroid that is near, with another that is not: the heavier ones are found first."""
    rng = np.random.default_rng(8)
    made = oracle.problem(rng, [1] * 6, 16)
    made.spread = made.numbers = None
    near = oracle.coded(rng, 1, 16)
    made.cells = np.repeat(near, 1, axis=0)
    made.centroids = np.concatenate([near, 255 - near])
    made.cell_starts = np.array([0, 2], np.int32)
    made.lists = [np.arange(6), np.zeros(0, np.int64)]
    query = (near.astype(np.float32) - 128) / made.scale
    weights = np.array([30, 200, 10, 90, 250, 60], np.uint8)
    if steps:  # document d is d + 1 steps after −1: no fillers
        assert len(made.arguments(steps=True)["lists"]) == 6
    engine = _native.Engine(
        **made.arguments(steps=steps), saliences=np.ones(6, np.float32), mean_weights=np.zeros(6, np.float32),
        list_weights=weights, weight_unit=1 / 255,
    )  # fmt: skip
    found = engine.probe(query, None, 1, 2, 3, 0, None, weighs=True)[0]  # below the nearest centroid nothing is near
    assert found.tolist() == [4, 1, 3]


@pytest.mark.parametrize(
    "changes",
    [
        {"saliences": lambda x: x[:-1]},
        {"mean_weights": lambda x: x[:-1]},
        {"mean_weights": lambda x: x * np.float32(np.nan)},
        {"mean_weights": lambda x: None},
        {"list_weights": lambda x: x[:-1]},
        {"list_weights": lambda x: None},
        {"weight_unit": lambda x: float("nan")},
    ],
)
def test_wrong_weights_are_refused(changes):
    _, arguments, _, _ = weighed(1)
    with pytest.raises(ValueError, match=r"weight|salienc"):
        _native.Engine(**arguments | {name: change(arguments[name]) for name, change in changes.items()})


def test_wrong_calls_are_refused():
    made, arguments, query, weights = weighed(1)
    engine, plain = _native.Engine(**arguments), _native.Engine(**made.arguments())
    every = np.arange(6, dtype=np.int32)
    with pytest.raises(ValueError, match="per query token"):
        engine.rerank_weighed(query, every, 6, weights[:-1] if len(weights) > 1 else np.ones(2, np.float32), False)
    with pytest.raises(ValueError, match="not negative"):
        engine.rerank_weighed(query, every, 6, -weights, False)
    with pytest.raises(ValueError, match="have saliences"):
        plain.rerank_weighed(query, every, 6, weights, False)
    with pytest.raises(ValueError, match="have list_weights"):
        plain.probe(query, None, 1, 1, 1, 0, None, weighs=True)
