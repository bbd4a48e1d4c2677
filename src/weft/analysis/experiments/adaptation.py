"""Choosing the alignment by a few judged queries: the paper's fold protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from weft.alignment import Alignment
from weft.analysis.base import Experiment, Outcome
from weft.analysis.estimates import Interval, estimate, macro
from weft.analysis.experiments.common import NDCG, measured_on, own_alignment, points, shown
from weft.analysis.lab import Lab, Model
from weft.analysis.plots import bars, drawing
from weft.evaluation.adaptation import (
    ALIGNMENTS,
    Evidence,
    Folds,
    alignments_to_compare,
    best_on_examples,
    choose,
    fold_protocol,
)
from weft.evaluation.baselines import slug
from weft.evaluation.scoring import score_all
from weft.evaluation.tables import Cell, Table

RULES = {"paper": best_on_examples, "weft": choose}
"""What scores best on the examples, and the same only if the evidence is strong (`weft.evaluation.adaptation`)."""
Kind: TypeAlias = tuple[str, int]
"""(rule, examples of a fold)"""


@dataclass(frozen=True)
class Measured:
    """A collection under every alignment, and what folds of its queries make of them."""

    default: Interval
    oracle: Interval
    """The best alignment on all queries, chosen and measured on the same."""
    best: str
    """Which that is."""
    folds: dict[Kind, Folds]
    """Without those sizes for which there are too few queries."""


@dataclass(frozen=True)
class Adaptation(Experiment):
    """Each fold of examples chooses an alignment, all other queries measure it."""

    name: ClassVar[str] = "adaptation"
    title: ClassVar[str] = "Few-shot adaptation of the alignment"
    reproduces: ClassVar[str] = "ALIGNER table 2 (right) and figure 5"
    paper: ClassVar[str] = (
        "Eight judged queries raise the base model's mean over 13 sets of BEIR from 47.1 to 49.2 ±3.0 points of "
        "nDCG@10 (xxl: 51.1 to 52.6 ±3.1). Argument retrieval gains most (ArguAna 28.8 to 46.2, Touché 34.8 to "
        "49.9). Where top-1 is right already, choosing by chance costs: NQ 52.2 to 49.0, FiQA 33.4 to 29.8. "
        "Sixteen examples are better and steadier."
    )
    quick: ClassVar[dict[str, Any]] = {"divisions": 3}

    sizes: tuple[int, ...] = (8, 16)
    """Examples of a fold."""
    divisions: int = 20
    """How often the queries are divided into folds, each time in another order."""
    alignments: tuple[str, ...] = ALIGNMENTS
    current: str = ""
    """The alignment in use before adaptation; by default what the model was trained with."""

    def run(self, lab: Lab) -> Outcome:
        """Measure every model."""
        outcome = Outcome(notes=[measured_on(lab.pools)])
        for model in lab.models:
            mine = self._of(model)
            found = mine._measure(lab, model, outcome)
            if found:
                mine._tables(model, found, outcome)
                mine._draw(model, found, outcome)
                mine._say(model, found, outcome)
        outcome.notes.append(
            f"Adapted: mean ± standard deviation over the folds of one division, as in the paper, but the mean of "
            f"{self.divisions} divisions; queries that make no full fold only measure. Oracle: the best alignment on "
            "all queries, chosen and measured on the same. Rule paper takes what is best on the examples; rule weft "
            "keeps the alignment in use unless the examples speak clearly against it."
        )
        return outcome

    def _of(self, model: Model) -> Adaptation:
        """Return the experiment for one model: its own alignment in use, and top-k:1 compared if saliences weigh."""
        weighs = model.encoder.has_salience and model.encoder.salience_weighs
        listed = alignments_to_compare(weighs) if self.alignments == ALIGNMENTS else self.alignments
        return replace(self, current=self.current or own_alignment(model), alignments=listed)

    @property
    def _kinds(self) -> list[Kind]:
        return [(rule, size) for size in self.sizes for rule in RULES]

    def _measure(self, lab: Lab, model: Model, outcome: Outcome) -> dict[str, Measured]:
        named = {text: Alignment.parse(text) for text in dict.fromkeys((self.current, *self.alignments))}
        found: dict[str, Measured] = {}
        for pool in lab.pools:
            queries = len(pool.queries)
            if queries < 2 * min(self.sizes):
                outcome.notes.append(f"{pool.name} is left out: {queries} queries make no folds.")
                continue
            runs = {
                text: lab.run(pool, score_all(lab.encoded(model, pool), alignment, threads=lab.options.threads))
                for text, alignment in named.items()
            }
            evidence = Evidence.of(runs, {query: pool.qrels[query] for query in pool.queries})
            ndcg = {text: np.asarray(values, dtype=np.float64) for text, values in evidence.ndcg.items()}
            best = max(ndcg, key=lambda text: float(ndcg[text].mean()))
            found[pool.name] = Measured(
                estimate(ndcg[self.current]),
                estimate(ndcg[best] - ndcg[self.current]),
                shown(best),
                {
                    (rule, size): fold_protocol(
                        evidence, self.current, size=size, rule=RULES[rule], divisions=self.divisions
                    )
                    for rule, size in self._kinds
                    if queries >= 2 * size
                },
            )
        return found

    def _tables(self, model: Model, found: dict[str, Measured], outcome: Outcome) -> None:
        kinds = [_said(kind) for kind in self._kinds]
        scores: list[list[Cell]] = []
        gains: list[list[Cell]] = []
        for pool, of in found.items():
            folds = [of.folds.get(kind) for kind in self._kinds]
            adapted: list[Cell] = [None if fold is None else f"{fold.mean:.3f} ±{fold.std:.3f}" for fold in folds]
            added: list[Cell] = [None if fold is None else _points(estimate(fold.by_query)) for fold in folds]
            scores.append([pool, of.default, *adapted, of.default.value + of.oracle.value, of.best])
            gains.append([pool, *added, _points(of.oracle), of.best])
        if len(found) > 1:
            averages = [self._average(found, kind) for kind in self._kinds]
            adapted = [None if a is None else f"{a[0]:.3f} ±{a[1]:.3f}" for a in averages]
            default = float(np.mean([of.default.value for of in found.values()]))
            oracle = float(np.mean([of.oracle.value for of in found.values()]))
            scores.append(["average", default, *adapted, default + oracle, ""])
            added = [None if a is None else _points(a[2]) for a in averages]
            gains.append(["average", *added, 100 * oracle, ""])
        name, of_model = slug(model.name), f"of {model.name}, adapted"
        columns = ["collection", "default", *kinds, "oracle", "best alignment"]
        note = (
            f"default: {self.current}, ± half of the 95 % bootstrap interval over queries. Adapted: mean ± standard "
            "deviation over folds."
        )
        outcome.tables.append(Table(f"adaptation-{name}", f"{NDCG} {of_model}", columns, scores, note))
        columns = ["collection", *kinds, "oracle", "best alignment"]
        note = (
            f"Points that adaptation adds to {self.current}, ± half of the 95 % bootstrap interval over the queries "
            "that measure; what the folds chose is taken as it is."
        )
        outcome.tables.append(Table(f"gains-{name}", f"Points of {NDCG} gained, {model.name}", columns, gains, note))

    def _average(self, found: dict[str, Measured], kind: Kind) -> tuple[float, float, Interval] | None:
        """Return the average score, standard deviation and gain, if all collections have enough queries."""
        folds = [of.folds[kind] for of in found.values() if kind in of.folds]
        if len(folds) < len(found):
            return None
        gain = macro([fold.by_query for fold in folds])
        return float(np.mean([fold.mean for fold in folds])), float(np.mean([fold.std for fold in folds])), gain

    def _draw(self, model: Model, found: dict[str, Measured], outcome: Outcome) -> None:
        series: dict[str, list[Interval | None]] = {
            _said(kind): [_whiskers(of.folds.get(kind)) for of in found.values()] for kind in self._kinds
        }
        best = [100 * of.oracle.value for of in found.values()]
        series["oracle"] = [Interval(value, value, value) for value in best]
        caption = (
            f"{model.name}: points of {NDCG} that adaptation adds to {self.current}; whiskers are a standard deviation "
            "over folds to either side."
        )
        size_of = (min(max(6.5, 2.0 + 0.7 * len(found)), 13), 5.0)
        with drawing(f"gain-{slug(model.name)}", caption, outcome.plots, size=size_of) as axes:
            bars(axes[0, 0], list(found), series, ylabel=f"points of {NDCG} gained", xlabel="collection")
            axes[0, 0].axhline(0, color="#333333", linewidth=1)

    def _say(self, model: Model, found: dict[str, Measured], outcome: Outcome) -> None:
        for rule, size in self._kinds:
            known = {pool: of.folds[rule, size] for pool, of in found.items() if (rule, size) in of.folds}
            if not known:
                continue
            worst = min(known, key=lambda pool: known[pool].gain)
            folds = sum(sum(fold.chosen.values()) for fold in known.values())
            kept = sum(fold.chosen.get(self.current, 0) for fold in known.values())
            outcome.findings.append(
                f"{model.name}, rule {rule}, {size} examples: {points(macro([f.by_query for f in known.values()]), 2)} "
                f"points on average over {len(known)} collections; the worst is {worst} with "
                f"{100 * known[worst].gain:+.2f}; {kept / folds:.0%} of the folds keep {self.current}."
            )


def _said(kind: Kind) -> str:
    return f"{kind[0]}, {kind[1]} examples"


def _points(gain: Interval) -> Interval:
    return Interval(*(100 * bound for bound in gain))


def _whiskers(fold: Folds | None) -> Interval | None:
    """Return the gain in points, and a standard deviation of the folds' gains to either side."""
    if fold is None:
        return None
    gains = 100 * np.array(fold.gains)
    return Interval(float(gains.mean()), float(gains.mean() - gains.std()), float(gains.mean() + gains.std()))
