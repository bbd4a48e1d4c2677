"""Few-shot alignment adaptation (ALIGNER §3.1, §4.1): the alignment that suits these documents and these questions.

The vectors of an index stay as they are; the alignment is chosen by nDCG@10 on a few judged queries, over documents
that are already retrieved. The paper takes the best one on its examples. With eight of them that is often chance, and
where the alignment in use is already right, the paper's own table shows what chance costs (NQ −3.2, FiQA −3.6 points of
nDCG@10). So here the alignment in use stays unless the examples are strong evidence against it.

nDCG@10 is a coarse measure: for most of eight queries the ten best documents do not change places. So the evidence is a
finer one: how high the relevant documents rank when ranks are blurred (`blurred_gain`). A difference of 1 means that
they rank twice as high.

An alternative's advantage is the mean of its difference d over all queries to come; the examples are a sample of d. The
normal-inverse-gamma prior says that there is no advantage, with the weight of `Prior.examples` examples, and that d has
the standard deviation `Prior.spread`, with the weight of `Prior.of_spread`. The posterior of the advantage is Student's
t, and the *certainty* of an alternative is the share of it above 0. Of the alternatives with enough certainty, which
more examples improve than worsen, the one with the best nDCG@10 on the examples is taken. Few examples, or examples
that disagree, change nothing; many that agree outweigh the prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import DataError, invalid, missing_extra
from weft.evaluation.measures import evaluate
from weft.evaluation.runs import Qrels, Run

MEASURE = "nDCG@10"
ALIGNMENTS = (
    "sum-of-max",
    *(f"top-k:{k}" for k in (2, 4, 6, 8)),
    *(f"top-p:{p}" for p in (0.005, 0.01, 0.015, 0.02)),
    "xtr",
)
"""The paper's k ∈ {1, 2, 4, 6, 8} and p ∈ {0.5, 1, 1.5, 2 %}, and XTR's scoring. Without saliences k = 1 ranks as the
sum of max does; see `alignments_to_compare`."""
CERTAINTY = 0.95
"""The certainty that an alternative must reach."""
AGREEMENT = 0.7
"""The required certainty that nDCG@10 rises for more queries than it falls for: one outlier must not decide."""
FOLD = 8
BLUR = 0.3
"""Ranks are blurred as if scores had noise of this share of their standard deviation."""
BLURRED = 20
"""The number of best documents that are looked at."""


def alignments_to_compare(salience: bool) -> tuple[str, ...]:
    """Return the paper's alignments for a model with or without saliences that weigh.

    With them top-k:1, whose Z is the saliences of the pairs, ranks differently from the sum of max, whose Z is 1.

    Examples
    --------
    >>> alignments_to_compare(salience=True)[:3]
    ('sum-of-max', 'top-k:1', 'top-k:2')
    """
    first, *rest = ALIGNMENTS
    return (first, "top-k:1", *rest) if salience else ALIGNMENTS


class Prior(NamedTuple):
    """What is assumed before any example."""

    examples: float = 2.0
    """The weight of the prior that there is no advantage, in examples."""
    spread: float = 0.25
    """The standard deviation over queries of the difference between two alignments."""
    of_spread: float = 4.0
    """The weight of that prior, in examples."""


PRIOR = Prior()


@dataclass(frozen=True)
class Option:
    """An alignment as the examples show it."""

    alignment: str
    score: float
    """Mean nDCG@10 on the examples."""
    gain: float
    """Expected gain in nDCG@10 over the alignment in use on queries to come: the mean difference, shrunk."""
    certainty: float
    """How certain it is to be better at all, 0 … 1; 0.5 if nothing is known."""


@dataclass(frozen=True)
class Choice:
    """What `choose` concluded from some examples."""

    alignment: str
    """The one to use from now on."""
    current: str
    """The alignment in use before."""
    options: tuple[Option, ...]
    """All of them, in the order given; the one in use among them."""
    examples: int
    needed: float
    """The certainty that was asked for."""
    rule: str = "careful"
    """``"careful"`` (`choose`) or ``"paper"`` (`best_on_examples`)."""

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
        if self.rule == "paper":
            now = next(option.score for option in self.options if option.alignment == self.current)
            if not self.changed:
                return f"{self.current} stays: nothing scores better on the {of} than its {now:.3f}"
            return f"{best.alignment} scores best on the {of}: {best.score:.3f}, {self.current} has {now:.3f}"
        if self.changed:
            return (
                f"{best.alignment} is better than {self.current} with a certainty of {best.certainty:.0%} "
                f"({of}; expected gain {100 * best.gain:+.1f} points of nDCG@10)"
            )
        if best.alignment == self.current:
            return f"{self.current} stays: there is nothing to compare it with"
        if best.certainty >= self.needed:
            return (
                f"{self.current} stays: the most promising alternative, {best.alignment}, does not raise nDCG@10, or "
                f"lowers it on too many of the {of}"
            )
        return (
            f"{self.current} stays: the most promising alternative, {best.alignment}, is better with a certainty of "
            f"only {best.certainty:.0%} ({of}); {self.needed:.0%} would be needed"
        )


Values: TypeAlias = Mapping[str, ArrayLike]
"""{alignment: a number for each query}, the same queries in the same order for all."""


@dataclass(frozen=True)
class Evidence:
    """Judged queries under each alignment."""

    ndcg: Values
    """nDCG@10."""
    blurred: Values
    """`blurred_gain`: what certainty is computed from."""

    @classmethod
    def of(cls, runs: Mapping[str, Run], qrels: Qrels) -> Evidence:
        """Measure the runs of each alignment, {alignment: run}."""
        ndcg = {name: evaluate(run, qrels, [MEASURE]).values(MEASURE) for name, run in runs.items()}
        # An alignment must not gain by finding fewer documents: those not found rank behind equally many for all.
        most = {query: max(len(run.get(query, {})) for run in runs.values()) for query in qrels}
        blurred = {
            name: np.array([blurred_gain(run.get(query, {}), grades, most[query]) for query, grades in qrels.items()])
            for name, run in runs.items()
        }
        return cls(ndcg, blurred)


Rule: TypeAlias = Callable[[Evidence, str], "Choice"]


def blurred_gain(documents: Mapping[str, float], grades: Mapping[str, int], ranked: int = 0) -> float:
    """Return log₂ Σ g / r over the relevant documents of a query, g their grades and r their blurred ranks.

    A relevant document that was not found ranks behind all of them, and behind at least `ranked` documents.

    A blurred rank counts 1 for the document itself and σ((s′ − s) / 0.3 σ_s) for each other one, σ_s the standard
    deviation of the best 20 scores: a document with almost the same score counts half. It moves with every
    score, whereas a rank moves only when two documents change places. With one relevant document this is −log₂ r.

    Examples
    --------
    >>> far, near = {"good": 9.0, "bad": 1.0, "worse": 0.0}, {"good": 2.0, "bad": 1.9, "worse": 0.0}
    >>> round(blurred_gain(far, {"good": 1}), 2), round(blurred_gain(near, {"good": 1}), 2)
    (-0.0, -0.5)
    """
    relevant = {name: grade for name, grade in grades.items() if grade > 0}
    if not relevant:
        return 0.0
    scores = np.array(list(documents.values()), dtype=np.float64)
    noise = BLUR * float(np.sort(scores)[::-1][:BLURRED].std()) if len(scores) else 0.0
    total = 0.0
    for name, grade in relevant.items():
        rank = max(len(scores), ranked) + 1.0
        if name in documents:
            distance = scores - documents[name]
            ahead = 1 / (1 + np.exp(np.clip(-distance / noise, -50, 50))) if noise > 0 else np.full(len(scores), 0.5)
            rank = 0.5 + float(ahead.sum())  # its own 0.5 is among them
        total += grade / rank
    return math.log2(total)


def choose(examples: Evidence | Values, current: str, *, certainty: float = CERTAINTY, prior: Prior = PRIOR) -> Choice:
    """Choose an alignment by judged queries; see the module's first lines for the rule.

    Parameters
    ----------
    examples : Evidence, or {alignment: array (queries,)}
        With nDCG@10 alone the certainty is made of that. The alignment in use must be among them.
    current : str
        The alignment in use, which stays unless the evidence is strong.
    certainty : float
        How certain an advantage must be. 0.5 takes anything that looks better.
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
    ndcg, blurred = _arrays(examples, current)
    queries = len(ndcg[current])
    options = []
    for name, values in ndcg.items():
        gain = float((values - ndcg[current]).sum()) / (prior.examples + queries)
        sure = 0.5 if name == current else _certainty(blurred[name] - blurred[current], prior)
        options.append(Option(name, float(values.mean()), gain, sure))
    able = [  # never the one in use, whose gain is 0
        option
        for option in options
        if option.certainty >= certainty and option.gain > 0 and _agreed(ndcg[option.alignment] - ndcg[current])
    ]
    chosen = max(able, key=lambda option: (option.score, option.certainty)).alignment if able else current
    return Choice(chosen, current, tuple(options), queries, certainty)


def best_on_examples(examples: Evidence | Values, current: str) -> Choice:
    """Choose as the paper does: what scores best on the examples; among equals the alignment in use, then the first."""
    ndcg, _ = _arrays(examples, current)
    options = tuple(
        Option(name, float(values.mean()), float((values - ndcg[current]).mean()), 0.5) for name, values in ndcg.items()
    )
    top = max(option.score for option in options)
    equals = [option.alignment for option in options if option.score >= top - 1e-12]
    chosen = current if current in equals else equals[0]
    return Choice(chosen, current, options, len(ndcg[current]), 0.5, "paper")


def _agreed(d: NDArray[np.float64]) -> bool:
    """The certainty that a change raises more queries than it lowers, with a uniform prior on the share."""
    risen, fallen = int((d > 1e-12).sum()), int((d < -1e-12).sum())
    return float(_special().betainc(1 + fallen, 1 + risen, 0.5)) >= AGREEMENT


def _special() -> Any:
    try:
        from scipy import special
    except ImportError:
        raise missing_extra("scipy", "eval", "adapting an alignment") from None
    return special


def _certainty(d: NDArray[np.float64], prior: Prior) -> float:
    """Return the probability that the mean of all differences to come is above 0."""
    if not np.any(d):  # the same ranking for every example: nothing is known
        return 0.5
    n, mean = len(d), float(d.mean())
    weight, freedom = prior.examples + n, prior.of_spread + n
    scatter = float(((d - mean) ** 2).sum())
    variance = (prior.of_spread * prior.spread**2 + scatter + prior.examples * n * mean**2 / weight) / freedom
    return float(_special().stdtr(freedom, n * mean / weight / math.sqrt(variance / weight)))


Arrays: TypeAlias = dict[str, NDArray[np.float64]]


def _arrays(examples: Evidence | Values, current: str) -> tuple[Arrays, Arrays]:
    given = examples if isinstance(examples, Evidence) else Evidence(examples, examples)
    ndcg, blurred = (
        {name: np.asarray(values, dtype=np.float64) for name, values in part.items()}
        for part in (given.ndcg, given.blurred)
    )
    if current not in ndcg:
        raise invalid("current", "choose", f"one of the alignments compared: {', '.join(ndcg)}", current)
    shapes = {array.shape for array in (*ndcg.values(), *blurred.values())}
    if len(shapes) != 1 or ndcg[current].ndim != 1 or not len(ndcg[current]) or list(ndcg) != list(blurred):
        raise invalid("examples", "choose", "one number a query, at least one, for each alignment", examples)
    return ndcg, blurred


# -- the paper's protocol ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folds:
    """What adaptation is worth on a collection: each fold chooses, the rest of the queries measures (ALIGNER §4.1)."""

    mean: float
    """Of the scores on the rest, one a fold."""
    std: float
    """Over the folds of one division, the mean of all divisions."""
    default: float
    """The mean of the alignment in use, on the same queries."""
    oracle: float
    """The mean of the alignment that is best on all queries."""
    chosen: dict[str, int]
    """How many folds chose which alignment."""
    scores: tuple[float, ...]
    """On the rest, one a fold."""
    gains: tuple[float, ...]
    """What the choice adds to the alignment in use there."""
    by_query: NDArray[np.float64]
    """(queries,): the mean gain of each query over the folds that it is not in; for a bootstrap over queries."""

    @property
    def gain(self) -> float:
        """What adaptation adds to the alignment in use."""
        return self.mean - self.default


def fold_protocol(
    examples: Evidence | Values,
    current: str = "sum-of-max",
    *,
    size: int = FOLD,
    rule: Rule = choose,
    divisions: int = 1,
    seed: int = 5,
) -> Folds:
    """Split the queries into folds of `size` examples; choose on each, measure on all the others.

    Parameters
    ----------
    examples : Evidence, or {alignment: array (queries,)}
        All queries of a collection.
    current : str
        The alignment in use.
    size : int
        Examples of a fold. Queries left over from full folds only measure.
    rule : function
        `choose`, or `best_on_examples` for the paper's own.
    divisions : int
        The paper divides the queries once. A division of a hundred queries has only twelve folds; the mean over several
        divisions, each in another order, estimates the expected gain more exactly.
    seed : int
        Of the order in which queries are dealt out; those of further divisions are the next ones.

    Examples
    --------
    >>> found = fold_protocol({"sum-of-max": [0.4] * 20, "top-k:2": [0.6] * 20}, rule=best_on_examples)
    >>> round(found.gain, 3), found.std, found.chosen
    (0.2, 0.0, {'top-k:2': 2})
    """
    ndcg, blurred = _arrays(examples, current)
    queries = len(ndcg[current])
    if size < 1 or queries < 2 * size:
        raise DataError(f"folds of {size} need at least {2 * size} queries; there are {queries}")
    if divisions < 1:
        raise invalid("divisions", "fold_protocol", "at least 1", divisions)
    chosen: dict[str, int] = {}
    scores, defaults = [], []
    added, measured = np.zeros(queries), np.zeros(queries)
    for division in range(divisions):
        order = np.random.default_rng(seed + division).permutation(queries)
        for start in range(0, queries - size + 1, size):
            mine = order[start : start + size]
            rest = np.setdiff1d(order, mine)
            fold = Evidence(*({name: array[mine] for name, array in part.items()} for part in (ndcg, blurred)))
            name = rule(fold, current).alignment
            chosen[name] = chosen.get(name, 0) + 1
            scores.append(float(ndcg[name][rest].mean()))
            defaults.append(float(ndcg[current][rest].mean()))
            added[rest] += ndcg[name][rest] - ndcg[current][rest]
            measured[rest] += 1
    return Folds(
        mean=float(np.mean(scores)),
        std=float(np.reshape(scores, (divisions, -1)).std(axis=1).mean()),
        default=float(np.mean(defaults)),
        oracle=max(float(array.mean()) for array in ndcg.values()),
        chosen=chosen,
        scores=tuple(scores),
        gains=tuple(float(gain) for gain in np.subtract(scores, defaults)),
        by_query=added / measured,
    )
