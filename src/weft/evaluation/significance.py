"""Whether a difference is more than chance: paired bootstrap intervals, randomisation tests, macro averages.

Queries are the sample: intervals and p-values are about another draw of queries. Everything goes through `scipy.stats`
with a seed, so the same numbers give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import DataError, invalid, missing_extra
from weft.evaluation.measures import Scores

RESAMPLES = 10_000
LEVEL = 0.95
SEED = 5
_BATCH = 4_000_000
"""At most this many numbers of resamples are held in memory."""


class Interval(NamedTuple):
    """A mean and the bounds of its confidence interval; the bounds of a single query's are NaN."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same queries: `difference` is the first minus the second."""

    measure: str
    first: float
    second: float
    difference: Interval
    """Its mean, with a paired bootstrap interval."""
    p_value: float
    """Two-sided, of a randomisation test: how often so large a difference arises if the labels are exchanged at
    random."""
    wins: int
    ties: int
    losses: int

    @property
    def queries(self) -> int:
        """How many queries were compared."""
        return self.wins + self.ties + self.losses


def bootstrap(values: ArrayLike, *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = SEED) -> Interval:
    """Return the mean of one value a query, with its percentile bootstrap interval.

    Examples
    --------
    >>> import pytest; _ = pytest.importorskip("scipy")
    >>> interval = bootstrap([0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    >>> interval.value, interval.low < 0.75 < interval.high
    (0.75, True)
    """
    return _bootstrap([_sample(values)], level, resamples, seed)


def macro_average(
    samples: Mapping[str, ArrayLike], *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = SEED
) -> Interval:
    """Return the mean over collections of their means over queries, with its interval.

    Queries are drawn anew within each collection; the collections are taken as they are.
    """
    if not samples:
        raise DataError("there is nothing to average")
    return _bootstrap([_sample(values) for values in samples.values()], level, resamples, seed)


def randomisation_test(first: ArrayLike, second: ArrayLike, *, resamples: int = RESAMPLES, seed: int = SEED) -> float:
    """Return the two-sided p-value of a paired randomisation test on the difference of means.

    Each query's two values are exchanged or not: in all ways if there are few enough, else in `resamples` random ones.

    Examples
    --------
    >>> import pytest; _ = pytest.importorskip("scipy")
    >>> round(randomisation_test([0.9, 0.8, 0.7, 0.9, 0.8], [0.1, 0.2, 0.3, 0.1, 0.2]), 4)  # 2 of 2⁵ ways
    0.0625
    """
    a, b = _pair(first, second)
    difference = a - b
    if not np.any(difference):
        return 1.0
    found = _stats().permutation_test(
        (difference,),
        lambda x, axis: np.mean(x, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, _BATCH // len(difference)),
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def compare(
    first: Scores,
    second: Scores,
    measure: str,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Comparison:
    """Compare two runs that were measured with the same judgements."""
    if first.queries != second.queries:
        raise DataError("the two runs were measured on different queries: use the same judgements for both")
    a, b = first.values(measure), second.values(measure)
    d = a - b
    interval = bootstrap(d, level=level, resamples=resamples, seed=seed)
    p = randomisation_test(a, b, resamples=resamples, seed=seed)
    wins, losses = int((d > 0).sum()), int((d < 0).sum())
    return Comparison(measure, float(a.mean()), float(b.mean()), interval, p, wins, len(d) - wins - losses, losses)


def _bootstrap(samples: Sequence[NDArray[np.float64]], level: float, resamples: int, seed: int) -> Interval:
    if not 0 < level < 1:
        raise invalid("level", "bootstrap", "a number in (0, 1)", level)
    value = float(np.mean([sample.mean() for sample in samples]))
    if any(len(sample) < 2 for sample in samples):  # one query tells nothing about others
        return Interval(value, float("nan"), float("nan"))

    def mean_of_means(*drawn: Any, axis: int = -1) -> Any:
        return np.mean([np.mean(part, axis=axis) for part in drawn], axis=0)

    statistic: Callable[..., Any] = mean_of_means
    found = _stats().bootstrap(
        samples,
        statistic,
        vectorized=True,
        confidence_level=level,
        n_resamples=resamples,
        batch=max(1, _BATCH // max(map(len, samples))),
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = found.confidence_interval
    return Interval(value, float(low), float(high))


def _sample(values: ArrayLike) -> NDArray[np.float64]:
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or not len(sample) or not np.isfinite(sample).all():
        raise invalid("values", "significance", "finite numbers, one a query", values)
    return sample


def _pair(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b = _sample(first), _sample(second)
    if a.shape != b.shape:
        raise invalid("second", "significance", f"of {len(a)} values, as many as the first", len(b))
    return a, b


def _stats() -> Any:
    try:
        from scipy import stats
    except ImportError:
        raise missing_extra("scipy", "eval", "testing for significance") from None
    return stats
