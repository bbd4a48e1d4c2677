"""Quality by the size of the model, with and without adaptation of the alignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from weft.analysis.base import Experiment, Outcome
from weft.analysis.estimates import Interval, macro
from weft.analysis.experiments.common import NDCG, measured_on, own_alignment, shown
from weft.analysis.lab import Lab, Model
from weft.analysis.plots import bars, drawing
from weft.evaluation.adaptation import Evidence, alignments_to_compare, best_on_examples, choose, fold_protocol
from weft.evaluation.scoring import score_all
from weft.evaluation.tables import Cell, Table


@dataclass(frozen=True)
class ModelSizes(Experiment):
    """Each model with its own alignment and adapted by few examples; give them as -m NAME=FOLDER, small to large."""

    name: ClassVar[str] = "model-sizes"
    title: ClassVar[str] = "Quality by the size of the model"
    reproduces: ClassVar[str] = "ALIGNER figure 3 (and tables 8 to 10)"
    paper: ClassVar[str] = (
        "The mean over 14 sets of BEIR rises with the model, with top-1 from 47.3 (base) over 49.5 (large) and 50.3 "
        "(xl) to 51.3 (xxl), more than that of single-vector models; adaptation by eight examples improves every size."
    )
    quick: ClassVar[dict[str, Any]] = {"divisions": 2}

    examples: int = 8
    divisions: int = 20

    def run(self, lab: Lab) -> Outcome:
        """Measure every model."""
        outcome = Outcome(notes=[measured_on(lab.pools)])
        rows: list[list[Cell]] = []
        series: dict[str, list[Interval | None]] = {"own alignment": [], "adapted, paper's rule": [], "adapted": []}
        for model in lab.models:
            values = self._measure(lab, model)
            for name, value in zip(series, values, strict=True):
                series[name].append(value)
            rows.append([model.name, parameters(model), shown(own_alignment(model)), *values])
        note = (
            "Means over collections, ± half of the 95 % bootstrap interval over queries. Adapted: folds of "
            f"{self.examples} examples choose, the other queries measure, {self.divisions} divisions. Tables 8 to 10, "
            "by alignment and collection, are those of the experiment alignments for the same models."
        )
        columns = ["model", "parameters, M", "alignment", *series]
        outcome.tables.append(Table("sizes", f"{NDCG} by model", columns, rows, note, best="columns"))
        names = [model.name for model in lab.models]
        with drawing("sizes", f"Mean {NDCG} over collections, by model.", outcome.plots) as axes:
            bars(axes[0, 0], names, series, xlabel="model", ylabel=f"{NDCG}, mean of collections")
        for name, own in zip(names, series["own alignment"], strict=True):
            outcome.findings.append(f"{name}: {own} with its own alignment.")
        if len(names) < 2:
            outcome.notes.append("One model has no sizes to compare: give several, -m small=FOLDER -m large=FOLDER.")
        return outcome

    def _measure(self, lab: Lab, model: Model) -> list[Interval]:
        own = own_alignment(model)
        found: list[list[Any]] = [[], [], []]
        for pool in lab.pools:
            encoded = lab.encoded(model, pool)
            weighs = encoded.salience_weighs and encoded.documents.salience is not None
            runs = {
                text: lab.run(pool, score_all(encoded, text, threads=lab.options.threads))
                for text in dict.fromkeys([own, *alignments_to_compare(weighs)])
            }
            evidence = Evidence.of(runs, {query: pool.qrels[query] for query in pool.queries})
            plain = np.asarray(evidence.ndcg[own], dtype=np.float64)
            found[0].append(plain)
            for place, rule in enumerate((best_on_examples, choose), 1):
                if len(pool.queries) < 2 * self.examples:
                    found[place].append(plain)
                    continue
                folds = fold_protocol(evidence, own, size=self.examples, rule=rule, divisions=self.divisions)
                found[place].append(plain + folds.by_query)
        return [macro(values) for values in found]


def parameters(model: Model) -> float | None:
    """Return the millions of parameters of a torch model; None of a light one."""
    module = getattr(model.encoder.backend, "model", None)
    if module is None or not hasattr(module, "parameters"):
        return None
    return round(sum(int(p.numel()) for p in module.parameters()) / 1e6, 1)
