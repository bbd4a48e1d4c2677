"""Models trained with different alignments, each measured under all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from weft.alignment import Alignment, SumOfMax, TopK, TopP
from weft.analysis.base import Experiment, NeedsError, Outcome
from weft.analysis.estimates import Interval, difference, macro
from weft.analysis.experiments.common import NDCG, PerQuery, by_alignment, measured_on, points, shown
from weft.analysis.lab import Lab, Model
from weft.analysis.plots import bars, drawing, heatmap
from weft.analysis.variants import train_variants, trained_with
from weft.evaluation.tables import Cell, Table


@dataclass(frozen=True)
class TrainingAlignments(Experiment):
    """One model for each training alignment, a matrix of training × inference."""

    name: ClassVar[str] = "training-alignments"
    title: ClassVar[str] = "Alignments in training and at inference"
    reproduces: ClassVar[str] = "ALIGNER figure 4 (and tables 11 and 12)"
    trains: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "Of models trained with top-1, 2, 4, 8 and top-0.5 % to top-4 %, those trained with top-1 and top-0.5 % "
        "are best, and more alignments in training hurt. Choosing the inference alignment for each collection "
        "(oracle) improves every one of them over its training alignment (default). A model trained with top-4 is "
        "best at top-4 or top-2 on most sets: inference should stay near training."
    )
    quick: ClassVar[dict[str, Any]] = {
        "trained": ("top-k:1", "top-k:4", "top-p:0.05"),
        "inferred": ("top-k:1", "top-k:4", "top-p:0.05"),
    }

    trained: tuple[str, ...] = ("top-k:1", "top-k:2", "top-k:4", "top-k:8", "top-p:0.005", "top-p:0.01", "top-p:0.04")
    inferred: tuple[str, ...] = ("top-k:1", "top-k:2", "top-k:4", "top-k:8", "top-p:0.005", "top-p:0.01", "top-p:0.04")

    def run(self, lab: Lab) -> Outcome:
        """Measure the given models, or train them."""
        models = self._models(lab)
        inferred = {shown(text): Alignment.parse(text) for text in self.inferred}
        for text, alignment in inferred.items():
            if not isinstance(alignment, SumOfMax | TopK | TopP):
                raise NeedsError(f"training-alignments infers with sum-of-max, top-k and top-p, not {text}")
        found: dict[str, dict[str, dict[str, PerQuery]]] = {}  # training → collection → inference → a value a query
        for trained, model in models.items():
            own = _at_inference(trained)
            named = {shown(own): own} | inferred
            found[shown(trained)] = {p.name: by_alignment(lab, model, p, named) for p in lab.held_out}
        outcome = Outcome(notes=[measured_on(lab.held_out)])
        self._matrix(found, list(inferred), outcome)
        self._figure_4({shown(t): shown(_at_inference(t)) for t in models}, found, outcome)
        outcome.notes.append("Oracle chooses on the queries it is measured on: the most that adaptation could reach.")
        return outcome

    def _models(self, lab: Lab) -> dict[str, Model]:
        if lab.given:
            models = {trained_with(model, self.name): model for model in lab.models}
            if len(models) < 2:
                raise NeedsError(
                    "training-alignments compares models trained with different alignments: give two or more"
                )
            return models
        variants = {text: {"loss.alignment": text} for text in self.trained}
        return train_variants(lab, variants, "models trained with different alignments")

    def _matrix(self, found: dict[str, dict[str, dict[str, PerQuery]]], inferred: list[str], outcome: Outcome) -> None:
        cells = {t: {i: macro([v[i] for v in pools.values()]) for i in inferred} for t, pools in found.items()}
        rows: list[list[Cell]] = [[trained, *of.values()] for trained, of in cells.items()]
        outcome.tables.append(
            Table(
                "matrix",
                f"Mean {NDCG} over collections, by training and inference",
                ["trained with", *inferred],
                rows,
                "± is half of the 95 % bootstrap interval over queries; the best of each row is bold.",
                best="rows",
            )
        )
        size = (2.6 + 0.8 * len(inferred), 1.7 + 0.5 * len(found))
        caption = f"Mean {NDCG} over collections of models trained with one alignment (rows) and used with another."
        with drawing("matrix", caption, outcome.plots, size=size) as axes:
            heatmap(
                axes[0, 0],
                np.array([[cell.value for cell in of.values()] for of in cells.values()]),
                list(cells),
                inferred,
                xlabel="alignment at inference",
                ylabel="alignment in training",
                title=f"{NDCG}, mean of collections",
                unit=NDCG,
                form="{:.3f}",
            )
        for trained, of in cells.items():
            top = max(of, key=lambda i: of[i].value)
            outcome.findings.append(f"Trained with {trained}: best at inference with {top}, {of[top]}.")

    def _figure_4(
        self, own: dict[str, str], found: dict[str, dict[str, dict[str, PerQuery]]], outcome: Outcome
    ) -> None:
        default: dict[str, Interval] = {}
        oracle: dict[str, Interval] = {}
        for trained, pools in found.items():
            default[trained] = macro([values[own[trained]] for values in pools.values()])
            oracle[trained] = macro([max(values.values(), key=lambda v: float(v.mean())) for values in pools.values()])
        rows: list[list[Cell]] = [[trained, default[trained], oracle[trained]] for trained in found]
        outcome.tables.append(
            Table(
                "default-oracle",
                f"Mean {NDCG}: default and oracle",
                ["trained with", "default", "oracle"],
                rows,
                best="columns",
            )
        )
        caption = (
            "Each model with the alignment it was trained with (default) and the best for each collection (oracle)."
        )
        with drawing("default-oracle", caption, outcome.plots, size=(2.5 + 0.8 * len(found), 3.8)) as axes:
            series = {"default": [default[t] for t in found], "oracle": [oracle[t] for t in found]}
            bars(axes[0, 0], list(found), series, xlabel="alignment in training", ylabel=f"{NDCG}, mean of collections")
        best = max(default, key=lambda t: default[t].value)
        outcome.findings.append(f"With its own alignment the model trained with {best} is best, {default[best]}.")
        outcome.findings += [self._against(best, t, own, found) for t in found if t != best]
        gained = sum(oracle[t].value > default[t].value for t in found)
        outcome.findings.append(f"The oracle improves {gained} of {len(found)} models.")

    def _against(
        self, best: str, trained: str, own: dict[str, str], found: dict[str, dict[str, dict[str, PerQuery]]]
    ) -> str:
        """Compare two models query by query, each under its own alignment, and both under the best one's."""

        def gain(alignment: str) -> str:
            first = [values[own[best]] for values in found[best].values()]
            return points(difference(first, [values[alignment] for values in found[trained].values()]))

        both = f", {gain(own[best])} where both are scored with {own[best]}" if own[best] in self._shown() else ""
        return f"Trained with {trained} less trained with {best}: {gain(own[trained])} points, each with its own{both}."

    def _shown(self) -> set[str]:
        return {shown(text) for text in self.inferred}


def _at_inference(trained: str) -> Alignment:
    """Return what to score with by default: the training alignment, or top-1 for one that is for batches only."""
    alignment = Alignment.parse(trained)
    return alignment if isinstance(alignment, SumOfMax | TopK | TopP) else TopK(1)
