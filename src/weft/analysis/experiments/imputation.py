"""XTR's score from retrieved tokens alone, under each imputation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from weft.alignment import XTR
from weft.analysis.base import Experiment, Outcome
from weft.analysis.estimates import Interval, difference, macro
from weft.analysis.experiments.common import MRR, NDCG, PerQuery, measured_on, points
from weft.analysis.lab import Lab
from weft.analysis.plots import bars, drawing
from weft.analysis.scoring import xtr_matrices
from weft.analysis.variants import compared
from weft.evaluation.scoring import score_all
from weft.evaluation.tables import Cell, Table

GATHERED = "sum of max"
"""All tokens of all documents, where nothing is imputed."""


@dataclass(frozen=True)
class Imputation(Experiment):
    """Every imputation sees the same retrieved tokens."""

    name: ClassVar[str] = "imputation"
    title: ClassVar[str] = "Imputing similarities that were not retrieved"
    reproduces: ClassVar[str] = "XTR table 5"
    paper: ClassVar[str] = (
        "On MS MARCO (k′ = 40,000, MRR@10) XTR scored from retrieved tokens alone has 22.6 without imputation, "
        "36.2 with m = 0, 36.4 with m = 0.2 and 37.4 with each query token's last retrieved similarity. A model "
        "trained as ColBERT has 0.0 without and 27.7 with that imputation: the training objective matters as much."
    )
    quick: ClassVar[dict[str, Any]] = {"k_prime": (100,)}

    k_prime: tuple[int, ...] = (100, 1000)
    imputations: tuple[str, ...] = ("none", "zero", "0.2", "kth")
    recall: int = 100

    def run(self, lab: Lab) -> Outcome:
        """Measure the models that are compared."""
        models, pools = compared(lab)
        outcome = Outcome(notes=[measured_on(pools)])
        measures = (MRR, NDCG, f"Recall@{self.recall}")
        rows: list[list[Cell]] = []
        kinds = [XTR(k, impute) for k in self.k_prime for impute in self.imputations]
        for model in models:
            found: dict[str, dict[str, list[PerQuery]]] = {}
            for pool in pools:
                encoded = lab.encoded(model, pool)
                scored = {GATHERED: score_all(encoded, "sum-of-max", threads=lab.options.threads)}
                scored |= {str(kind): s for kind, s in zip(kinds, xtr_matrices(encoded, kinds), strict=True)}
                for name, scores in scored.items():
                    measured = lab.measure(pool, scores, *measures, depth=max(100, self.recall))
                    for one in measures:
                        found.setdefault(name, {}).setdefault(one, []).append(measured.values(one))
            rows.append([model.name, "all tokens", "sum of max", *(macro(found[GATHERED][m]) for m in measures)])
            for kind in kinds:
                cells = [macro(found[str(kind)][m]) for m in measures]
                rows.append([model.name, f"{kind.k_prime:,}", _said(kind.impute), *cells])
            self._draw(model.name, found, outcome)
            self._say(model.name, found, outcome)
        outcome.tables.append(
            Table(
                "imputation",
                "Scored from retrieved tokens, by imputation (means over collections)",
                ["model", "k′", "imputation", *measures],
                rows,
                "± is half of the 95 % bootstrap interval over queries. none: the mean over what was retrieved "
                "(eq. 2).",
            )
        )
        outcome.notes.append(
            "k′ is small beside the paper's 40,000, for so are the collections: with k′ as large as all tokens, every "
            "imputation would equal the sum of max."
        )
        return outcome

    def _draw(self, model: str, found: dict[str, dict[str, list[PerQuery]]], outcome: Outcome) -> None:
        from weft.evaluation.baselines import slug

        groups = [f"k′ = {k:,}" for k in self.k_prime]
        series: dict[str, list[Interval | None]] = {
            _said(impute): [macro(found[str(XTR(k, impute))][MRR]) for k in self.k_prime] for impute in self.imputations
        }
        whole = macro(found[GATHERED][MRR])
        caption = f"{model}: {MRR} scored from retrieved tokens alone; the line is the sum of max over all tokens."
        with drawing(f"imputation-{slug(model)}", caption, outcome.plots, size=(6.8, 3.8)) as axes:
            bars(
                axes[0, 0], groups, series, ylabel=f"{MRR}, mean of collections", title=model, xlabel="tokens retrieved"
            )
            axes[0, 0].axhline(whole.value, color="#333333", linewidth=1.2, linestyle="--", label=GATHERED)

    def _say(self, model: str, found: dict[str, dict[str, list[PerQuery]]], outcome: Outcome) -> None:
        for k in self.k_prime:
            values = {i: macro(found[str(XTR(k, i))][MRR]) for i in self.imputations}
            best = max(values, key=lambda i: values[i].value)
            against = difference(found[GATHERED][MRR], found[str(XTR(k, best))][MRR])
            outcome.findings.append(
                f"{model}, k′ = {k:,}: {_said(best)} is best, {MRR} {values[best]}, {points(against)} points "
                "against the sum of max over all tokens."
            )
            if "none" in values and "kth" in values:
                gain = difference(found[str(XTR(k, "none"))][MRR], found[str(XTR(k, "kth"))][MRR])
                outcome.findings.append(
                    f"{model}, k′ = {k:,}: the last retrieved similarity brings {points(gain)} points over no "
                    "imputation."
                )


def _said(impute: str) -> str:
    names = {"none": "none", "zero": "m = 0", "kth": "last retrieved (k′-th)"}
    return names.get(impute, f"m = {impute}")
