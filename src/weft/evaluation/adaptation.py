"""Few-shot alignment adaptation (ALIGNER §3.1, §4.1): the alignment that suits these documents and these questions.

The vectors of an index stay as they are; the alignment is chosen by nDCG@10 on a few judged queries, over documents
that are already retrieved. The paper takes the best one on its examples. With eight of them that is often chance, and
where the alignment in use is already right the paper's own table shows what chance costs (NQ −3.2, FiQA −3.6, nDCG
points). So here the alignment in use stays unless the examples are evidence enough against it.

The evidence is weighed as follows. An alternative's gain is the mean over all queries to come of its difference d in
nDCG@10; the examples are a sample of d. Before the examples an alternative is thought to gain nothing, with the weight
of `PRIOR.examples` examples, and differences to scatter with `PRIOR.spread`, with the weight of `PRIOR.of_spread`
examples. That is the normal-inverse-gamma prior, the posterior of the gain is Student's t, and the *certainty* of an
alternative is the share of it above 0. Of those with enough certainty the one with the greatest expected gain is taken.
Few examples, or examples that disagree, leave everything as it is; many that agree outweigh the prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import DataError, invalid, missing_extra

MEASURE = "nDCG@10"
ALIGNMENTS = (
    "sum-of-max",
    *(f"top-k:{k}" for k in (2, 4, 6, 8)),
    *(f"top-p:{p}" for p in (0.005, 0.01, 0.015, 0.02)),
)
"""The paper's k ∈ {1, 2, 4, 6, 8} and p ∈ {0.5, 1, 1.5, 2 %}; k = 1 ranks as the sum of max does."""
CERTAINTY = 0.9
"""So sure must one be that an alternative is better."""
FOLD = 8


class Prior(NamedTuple):
    """What is thought before any example."""

    examples: float = 2.0
    """That there is no gain weighs as so many examples."""
    spread: float = 0.2
    """Differences between two alignments on a query scatter so much in nDCG@10."""
    of_spread: float = 4.0
    """And that weighs as so many examples."""


PRIOR = Prior()


@dataclass(frozen=True)
class Option:
    """An alignment as the examples show it."""

    alignment: str
    score: float
    """Mean nDCG@10 on the examples."""
    gain: float
    """Expected gain over the alignment in use on queries to come: the mean difference, shrunk by the prior."""
    certainty: float
    """How sure it is that there is a gain at all, 0 … 1; 0.5 where nothing is known."""


@dataclass(frozen=True)
class Choice:
    """What `choose` made of some examples."""

    alignment: str
    """The one to use from now on."""
    current: str
    """The one in use until now."""
    options: tuple[Option, ...]
    """All of them, in the order given; the one in use among them."""
    examples: int
    needed: float
    """The certainty that was asked for."""

    @property
    def changed(self) -> bool:
        """Whether another alignment than the one in use was chosen."""
        return self.alignment != self.current

    @property
    def best(self) -> Option:
        """The most promising alternative: the chosen one, else the one with the greatest certainty."""
        others = [option for option in self.options if option.alignment != self.current]
        if self.changed or not others:
            return next(option for option in self.options if option.alignment == self.alignment)
        return max(others, key=lambda option: (option.certainty, option.gain))

    @property
    def reason(self) -> str:
        """One sentence for people."""
        of = f"{self.examples} example" + ("" if self.examples == 1 else "s")
        best = self.best
        if self.changed:
            return (
                f"{best.alignment} is better than {self.current} with a certainty of {best.certainty:.0%} "
                f"({of}; expected gain {100 * best.gain:+.1f} points of nDCG@10)"
            )
        if best.alignment == self.current:
            return f"{self.current} stays: there is nothing to compare it with"
        return (
            f"{self.current} stays: the most promising alternative, {best.alignment}, is better with a certainty of "
            f"only {best.certainty:.0%} ({of}); {self.needed:.0%} would be needed"
        )


Values: TypeAlias = Mapping[str, ArrayLike]
"""{alignment: nDCG@10 of each query}, the same queries in the same order for all."""
Rule: TypeAlias = Callable[[Values, str], Choice]


def choose(values: Values, current: str, *, certainty: float = CERTAINTY, prior: Prior = PRIOR) -> Choice:
    """Choose an alignment by what each of them scores on judged queries; see the module's first lines for the rule.

    Parameters
    ----------
    values : {alignment: array (queries,)}
        nDCG@10 of each query; the alignment in use must be among them.
    current : str
        The alignment in use, which stays unless the evidence is strong.
    certainty : float
        How sure one must be of a gain. 0.5 takes whatever looks better at all.
    prior : Prior

    Examples
    --------
    >>> import pytest; _ = pytest.importorskip("scipy")
    >>> clear = {"sum-of-max": [0.2, 0.3, 0.1, 0.4, 0.2, 0.3], "top-p:0.015": [0.6, 0.5, 0.5, 0.7, 0.4, 0.8]}
    >>> choose(clear, "sum-of-max").alignment
    'top-p:0.015'
    >>> unclear = {"sum-of-max": [0.2, 0.9, 0.1, 0.4], "top-p:0.015": [0.6, 0.5, 0.5, 0.4]}
    >>> choose(unclear, "sum-of-max").alignment
    'sum-of-max'
    """
    if not 0.5 <= certainty < 1:
        raise invalid("certainty", "choose", "a number from 0.5 up to 1", certainty)
    arrays = _arrays(values, current)
    d = {name: scores - arrays[current] for name, scores in arrays.items()}
    options = tuple(
        Option(name, float(arrays[name].mean()), *(_posterior(d[name], prior) if name != current else (0.0, 0.5)))
        for name in arrays
    )
    sure = [option for option in options if option.alignment != current and option.certainty >= certainty]
    chosen = max(sure, key=lambda option: option.gain).alignment if sure else current
    return Choice(chosen, current, options, len(arrays[current]), certainty)


def best_on_examples(values: Values, current: str) -> Choice:
    """Choose as the paper does: what scores best on the examples; of equals the alignment in use, then the first."""
    arrays = _arrays(values, current)
    options = tuple(
        Option(name, float(scores.mean()), float((scores - arrays[current]).mean()), 0.5)
        for name, scores in arrays.items()
    )
    top = max(option.score for option in options)
    equals = [option.alignment for option in options if option.score >= top - 1e-12]
    chosen = current if current in equals else equals[0]
    return Choice(chosen, current, options, len(arrays[current]), 0.5)


def _posterior(d: NDArray[np.float64], prior: Prior) -> tuple[float, float]:
    """Return the expected gain, and the probability of a gain above 0."""
    if not np.any(d):  # the same ranking for every example: nothing is known
        return 0.0, 0.5
    try:
        from scipy.special import stdtr
    except ImportError:
        raise missing_extra("scipy", "eval", "adapting an alignment") from None
    n, mean = len(d), float(d.mean())
    weight = prior.examples + n
    gain = n * mean / weight
    freedom = prior.of_spread + n
    scatter = float(((d - mean) ** 2).sum())
    variance = (prior.of_spread * prior.spread**2 + scatter + prior.examples * n * mean**2 / weight) / freedom
    return gain, float(stdtr(freedom, gain / math.sqrt(variance / weight)))


def _arrays(values: Values, current: str) -> dict[str, NDArray[np.float64]]:
    if current not in values:
        raise invalid("current", "choose", f"one of the alignments compared: {', '.join(values)}", current)
    arrays = {name: np.asarray(scores, dtype=np.float64) for name, scores in values.items()}
    if len({array.shape for array in arrays.values()}) != 1 or arrays[current].ndim != 1 or not len(arrays[current]):
        raise invalid("values", "choose", "one number a query, at least one, for each alignment", values)
    return arrays


# -- the paper's protocol ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folds:
    """What adaptation is worth on a collection: each fold chooses, the rest of the queries measures (ALIGNER §4.1)."""

    mean: float
    """Of the scores on the rest, one a fold."""
    std: float
    default: float
    """The mean of the alignment in use, on the same queries."""
    oracle: float
    """The mean of the alignment that is best on all queries."""
    chosen: dict[str, int]
    """How many folds chose which alignment."""
    scores: tuple[float, ...]
    """On the rest, one a fold."""

    @property
    def gain(self) -> float:
        """What adaptation adds to the alignment in use."""
        return self.mean - self.default


def fold_protocol(
    values: Values, current: str = "sum-of-max", *, size: int = FOLD, rule: Rule = choose, seed: int = 5
) -> Folds:
    """Split the queries into folds of `size` examples; choose on each, measure on all the others.

    Parameters
    ----------
    values : {alignment: array (queries,)}
        nDCG@10 of each query under each alignment.
    current : str
        The alignment in use.
    size : int
        Examples of a fold. Queries that make no full fold only measure.
    rule : function
        `choose`, or `best_on_examples` for the paper's own.
    seed : int
        Of the order in which queries are dealt out.
    """
    arrays = _arrays(values, current)
    queries = len(arrays[current])
    if size < 1 or queries < 2 * size:
        raise DataError(f"folds of {size} need at least {2 * size} queries; there are {queries}")
    order = np.random.default_rng(seed).permutation(queries)
    chosen: dict[str, int] = {}
    scores, defaults = [], []
    for start in range(0, queries - size + 1, size):
        mine = order[start : start + size]
        rest = np.setdiff1d(order, mine)
        name = rule({key: array[mine] for key, array in arrays.items()}, current).alignment
        chosen[name] = chosen.get(name, 0) + 1
        scores.append(float(arrays[name][rest].mean()))
        defaults.append(float(arrays[current][rest].mean()))
    oracle = max(float(array.mean()) for array in arrays.values())
    return Folds(float(np.mean(scores)), float(np.std(scores)), float(np.mean(defaults)), oracle, chosen, tuple(scores))
