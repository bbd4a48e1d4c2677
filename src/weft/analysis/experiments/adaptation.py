"""Choosing the alignment by a few judged queries: the paper's fold protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from weft.alignment import Alignment
from weft.analysis.base import Experiment, Outcome
from weft.analysis.estimates import Interval, estimate, macro
from weft.analysis.experiments.common import NDCG, PerQuery, measured_on, shown
from weft.analysis.lab import Lab, Model
from weft.analysis.plots import bars, drawing
from weft.evaluation.adaptation import ALIGNMENTS, Evidence, Folds, best_on_examples, choose, fold_protocol
from weft.evaluation.baselines import slug
from weft.evaluation.scoring import score_all
from weft.evaluation.tables import Cell, Table

RULES = {"paper": best_on_examples, "weft": choose}
"""What scores best on the examples, and the same only if the evidence is strong (`weft.evaluation.adaptation`)."""


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
    quick: ClassVar[dict[str, Any]] = {"sizes": (8, 16)}

    sizes: tuple[int, ...] = (8, 16)
    """Examples of a fold."""
    alignments: tuple[str, ...] = ALIGNMENTS
    current: str = "sum-of-max"
    """The alignment in use before adaptation."""

    def run(self, lab: Lab) -> Outcome:
        """Measure every model."""
        outcome = Outcome(notes=[measured_on(lab.pools)])
        for model in lab.models:
            self._measure(lab, model, outcome)
        outcome.notes.append(
            "adapted: mean ± standard deviation over folds, as in the paper; queries that make no full fold only "
            "measure. oracle: the best alignment on all queries, chosen and measured on the same. Rule paper takes "
            "what is best on the examples; rule weft keeps the alignment in use unless the examples speak clearly "
            "against it."
        )
        return outcome

    def _measure(self, lab: Lab, model: Model, outcome: Outcome) -> None:
        named = {text: Alignment.parse(text) for text in dict.fromkeys((self.current, *self.alignments))}
        found: dict[str, dict[str, PerQuery]] = {}
        evidence: dict[str, Evidence] = {}
        for pool in lab.pools:
            if len(pool.queries) < 2 * min(self.sizes):
                outcome.notes.append(f"{pool.name} is left out: {len(pool.queries)} queries make no folds.")
                continue
            runs = {
                text: lab.run(pool, score_all(lab.encoded(model, pool), alignment, threads=lab.options.threads))
                for text, alignment in named.items()
            }
            evidence[pool.name] = Evidence.of(runs, {query: pool.qrels[query] for query in pool.queries})
            found[pool.name] = {text: np.asarray(values) for text, values in evidence[pool.name].ndcg.items()}
        if not found:
            return
        folds: dict[tuple[str, str, int], Folds] = {}
        for pool_name, values in found.items():
            for rule, function in RULES.items():
                for size in self.sizes:
                    if len(values[self.current]) >= 2 * size:
                        folds[pool_name, rule, size] = fold_protocol(
                            evidence[pool_name], self.current, size=size, rule=function
                        )
        self._table(model, found, folds, outcome)
        self._draw(model, found, folds, outcome)
        self._say(model, found, folds, outcome)

    def _table(
        self,
        model: Model,
        found: dict[str, dict[str, PerQuery]],
        folds: dict[tuple[str, str, int], Folds],
        outcome: Outcome,
    ) -> None:
        kinds = [(rule, size) for rule in RULES for size in self.sizes]
        rows: list[list[Cell]] = []
        for pool, values in found.items():
            row: list[Cell] = [pool, estimate(values[self.current])]
            for rule, size in kinds:
                fold = folds.get((pool, rule, size))
                row.append(None if fold is None else f"{fold.mean:.3f} ±{fold.std:.3f}")
            best = max(values, key=lambda name: float(values[name].mean()))
            rows.append([*row, float(values[best].mean()), shown(best)])
        last: list[Cell] = ["average", macro([values[self.current] for values in found.values()])]
        for rule, size in kinds:
            known = [folds[pool, rule, size] for pool in found if (pool, rule, size) in folds]
            whole = len(known) == len(found)
            last.append(
                f"{np.mean([f.mean for f in known]):.3f} ±{np.mean([f.std for f in known]):.3f}" if whole else None
            )
        oracle = [max(float(v.mean()) for v in values.values()) for values in found.values()]
        if len(found) > 1:
            rows.append([*last, float(np.mean(oracle)), ""])
        columns = ["collection", "default", *(f"{r}, {s} examples" for r, s in kinds), "oracle", "best alignment"]
        note = (
            f"default: {self.current}, ± half of the 95 % bootstrap interval over queries. Adapted: mean ± standard "
            "deviation over folds."
        )
        outcome.tables.append(
            Table(f"adaptation-{slug(model.name)}", f"{NDCG} of {model.name}, adapted", columns, rows, note)
        )

    def _draw(
        self,
        model: Model,
        found: dict[str, dict[str, PerQuery]],
        folds: dict[tuple[str, str, int], Folds],
        outcome: Outcome,
    ) -> None:
        series: dict[str, list[Interval | None]] = {}
        for rule in RULES:
            for size in self.sizes:
                series[f"{rule}, {size} examples"] = [
                    self._gain(values, folds.get((pool, rule, size)), size) for pool, values in found.items()
                ]
        gains = [max(float((v - values[self.current]).mean()) for v in values.values()) for values in found.values()]
        series["oracle"] = [Interval(100 * g, 100 * g, 100 * g) for g in gains]
        caption = (
            f"{model.name}: points of {NDCG} that adaptation adds to {self.current}; whiskers are a standard deviation "
            "over folds to either side."
        )
        size_of = (max(6.5, 2.0 + 1.05 * len(found)), 4.2)
        with drawing(f"gain-{slug(model.name)}", caption, outcome.plots, size=size_of) as axes:
            bars(axes[0, 0], list(found), series, ylabel=f"{NDCG} against {self.current} (points)", xlabel="collection")
            axes[0, 0].axhline(0, color="#333333", linewidth=1)

    def _gain(self, values: dict[str, PerQuery], fold: Folds | None, size: int) -> Interval | None:
        """Return the gain in points, and a standard deviation of the folds' gains to either side."""
        if fold is None:
            return None
        kept = fold_protocol({self.current: values[self.current]}, self.current, size=size)  # of the same folds
        gains = 100 * (np.array(fold.scores) - np.array(kept.scores))
        return Interval(float(gains.mean()), float(gains.mean() - gains.std()), float(gains.mean() + gains.std()))

    def _say(
        self,
        model: Model,
        found: dict[str, dict[str, PerQuery]],
        folds: dict[tuple[str, str, int], Folds],
        outcome: Outcome,
    ) -> None:
        for rule in RULES:
            for size in self.sizes:
                known = {pool: folds[pool, rule, size] for pool in found if (pool, rule, size) in folds}
                if not known:
                    continue
                gains = {pool: 100 * fold.gain for pool, fold in known.items()}
                worst = min(gains, key=lambda pool: gains[pool])
                outcome.findings.append(
                    f"{model.name}, rule {rule}, {size} examples: {np.mean(list(gains.values())):+.2f} points on "
                    f"average over {len(gains)} collections; the worst is {worst} with {gains[worst]:+.2f}."
                )
