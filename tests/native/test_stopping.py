"""Scoring in the order of estimates ends where no further document can be expected among the best."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from native import engine_oracle as oracle

INF = float("inf")
FIRST = 16
"""So many documents are scored before estimates are believed (native/reranking.cpp)."""


def scored_by_definition(estimates, scores, sure, wanted, least):
    """How many documents are scored: see native/stopping.hpp."""
    first = max(FIRST, wanted + 2) if least == -INF else FIRST // 2
    for i in range(first, len(estimates)):
        off = (scores[:i] - estimates[:i]).astype(np.float64)
        kth = np.sort(scores[:i])[-wanted] if i >= wanted else -INF
        if estimates[i] < max(kth, least) - (off.mean() + sure * off.std()):
            return i
    return len(estimates)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.sampled_from([0.0, 1.0, 3.0]), st.booleans())
def test_no_more_documents_are_scored_than_can_be_expected_to_matter(seed, wanted, sure, barred):
    rng = np.random.default_rng(seed)
    made = oracle.problem(rng, rng.integers(1, 4, 60).tolist(), 8, scale=40.0)
    q = oracle.query(rng, 3, 8)
    engine = made.engine()
    every = np.arange(60, dtype=np.int32)
    order, integers, _ = engine.rerank(q, every, 60, 0)
    of = dict(zip(order.tolist(), integers.tolist(), strict=True))
    guesses = np.array([of[d] for d in every.tolist()], np.float32)
    guesses += rng.normal(0, 0.3 * guesses.std() + 1e-6, 60).astype(np.float32)
    listed = every[np.argsort(-guesses, kind="stable")]
    estimates = guesses[listed]
    scores = np.array([of[d] for d in listed.tolist()], np.float32)
    least = float(np.median(scores)) if barred else -INF
    best, *_, count = engine.best(q, listed, 60, 0, None, least, estimates, sure, wanted)
    assert count == scored_by_definition(estimates, scores, sure, wanted, least)
    assert set(best.tolist()) <= set(listed[:count].tolist())


def test_without_estimates_or_with_an_infinite_allowance_all_are_scored():
    rng = np.random.default_rng(3)
    made = oracle.problem(rng, [2] * 40, 8, scale=40.0)
    q, listed = oracle.query(rng, 3, 8), np.arange(40, dtype=np.int32)
    falling = np.linspace(1, -1000, 40).astype(np.float32)
    engine = made.engine()
    for more in ((), (falling,), (falling, INF, 3), (None, 1.0, 3), (falling, 1.0, 0)):
        *_, count = engine.best(q, listed, 5, 0, None, -INF, *more)
        assert count == 40
    *_, count = engine.best(q, listed, 5, 0, None, -INF, falling, 0.0, 3)
    assert count < 40


def test_sketching_stops_by_the_promises_of_the_lists():
    rng = np.random.default_rng(5)
    made = next(
        one
        for seed in range(50)
        if (one := oracle.problem(np.random.default_rng(seed), [3] * 300, 16, cells=4)).numbers is not None
    )
    q = oracle.query(rng, 4, 16)
    engine = made.engine()
    *_, estimates = engine.probe(q, None, 3, 9, 300, 40, None)
    assert (np.diff(estimates) <= 0).all()
    checked = np.zeros(300, np.uint8)
    asked = 0
    while True:  # sketches are asked for as far as they are read
        found, ready, *_ = engine.probe(q, None, 3, 9, 300, 40, checked, -INF, -INF, None, None, 0.0, 3)
        if ready:
            break
        assert not checked[found].any()
        checked[found] = 1
        asked += len(found)
    assert asked <= 300
    alone, *_ = engine.probe(q, None, 3, 9, 300, 40, None, -INF, -INF, None, None, 0.0, 3)
    assert found.tolist() == alone.tolist()
    assert set(alone.tolist()) <= set(engine.probe(q, None, 3, 9, 300, 0, None)[0].tolist())


def test_what_is_no_number_is_refused():
    rng = np.random.default_rng(1)
    made = oracle.problem(rng, [2] * 4, 8, scale=40.0)
    q, listed = oracle.query(rng, 3, 8), np.arange(4, dtype=np.int32)
    engine = made.engine()
    with pytest.raises(ValueError, match="sure"):
        engine.best(q, listed, 2, 0, None, 0.0, None, float("nan"), 3)
    with pytest.raises(ValueError, match="estimates"):
        engine.best(q, listed, 2, 0, None, 0.0, np.zeros(3, np.float32))
