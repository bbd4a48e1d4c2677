"""Intervals and tests against enumeration, formulas and simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import DataError, InvalidParameterError
from weft.evaluation.measures import Scores
from weft.evaluation.significance import bootstrap, compare, macro_average, randomisation_test


def exact_p(d):
    """Every assignment of signs."""
    means = [abs(np.dot(signs, d)) for signs in itertools.product([1, -1], repeat=len(d))]
    return np.mean([m >= abs(np.sum(d)) - 1e-12 for m in means])


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.75]), min_size=2, max_size=8))
def test_randomisation_is_the_enumeration(differences):
    a = np.array(differences) + 0.3
    b = np.full(len(a), 0.3)
    assert randomisation_test(a, b) == pytest.approx(exact_p(np.array(differences)), abs=1e-9)


def test_randomisation_of_many_is_near_the_normal():
    rng = np.random.default_rng(0)
    d = rng.normal(0.15, 1, 300)
    z = d.mean() / math.sqrt((d**2).mean() / len(d))
    assert randomisation_test(d, np.zeros(300)) == pytest.approx(math.erfc(abs(z) / math.sqrt(2)), abs=0.01)


def test_equal_runs_are_no_different():
    assert randomisation_test([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]) == 1.0


def test_intervals_are_near_the_normal():
    values = np.random.default_rng(1).random(400)
    interval = bootstrap(values)
    half = 1.96 * values.std(ddof=1) / math.sqrt(len(values))
    assert interval.value == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.1 * half)
    assert bootstrap(values) == interval  # a seed
    wide = bootstrap(values, level=0.99)
    assert wide.low < interval.low < interval.high < wide.high


def test_intervals_cover_what_they_should():
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(200):
        interval = bootstrap(rng.normal(0.5, 0.2, 40), resamples=500)
        inside += interval.low <= 0.5 <= interval.high
    assert 180 <= inside <= 199


def test_macro_average_weighs_collections_alike():
    rng = np.random.default_rng(3)
    many, few = rng.random(1000), rng.random(20) * 0.5
    interval = macro_average({"many": many, "few": few})
    assert interval.value == pytest.approx((many.mean() + few.mean()) / 2)
    spread = math.sqrt(many.var(ddof=1) / 1000 + few.var(ddof=1) / 20) / 2
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * spread, rel=0.1)


def test_a_single_query_has_no_interval():
    interval = bootstrap([0.5])
    assert interval.value == 0.5
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)


def test_comparisons():
    queries = [f"q{i}" for i in range(50)]
    rng = np.random.default_rng(4)
    b = rng.random(50) * 0.5
    a = b + 0.1
    a[:5] = b[:5]
    a[5] = b[5] - 0.3
    first, second = (Scores({"AP": dict(zip(queries, x.tolist(), strict=True))}) for x in (a, b))
    found = compare(first, second, "AP")
    assert (found.wins, found.ties, found.losses) == (44, 5, 1)
    assert found.difference.value == pytest.approx((a - b).mean())
    assert 0 < found.difference.low < found.difference.value < found.difference.high
    assert found.p_value < 0.001
    back = compare(second, first, "AP")
    assert back.difference.value == pytest.approx(-found.difference.value)
    assert back.p_value == pytest.approx(found.p_value)


def test_comparisons_need_the_same_queries():
    with pytest.raises(DataError, match="different queries"):
        compare(Scores({"AP": {"a": 0.1}}), Scores({"AP": {"b": 0.1}}), "AP")


@pytest.mark.parametrize("bad", [[], [[0.1]], [float("nan")]])
def test_bad_values(bad):
    with pytest.raises(InvalidParameterError, match="one a query"):
        bootstrap(bad)
    with pytest.raises(DataError, match="nothing to average"):
        macro_average({})
    with pytest.raises(InvalidParameterError, match="as many as the first"):
        randomisation_test([0.1, 0.2], [0.1])
