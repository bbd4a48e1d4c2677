"""nDCG@10 under each top-k and top-p, for models that were trained with one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from weft.alignment import Alignment, TopK, TopP
from weft.analysis.base import Experiment, Outcome
from weft.analysis.estimates import difference, macro
from weft.analysis.experiments.common import NDCG, PerQuery, by_alignment, collections_table, measured_on, points, shown
from weft.analysis.lab import Lab, Model
from weft.analysis.plots import drawing, heatmap, lines
from weft.evaluation.baselines import slug


@dataclass(frozen=True)
class Alignments(Experiment):
    """Each alignment re-scores the same token vectors: nothing is trained, nothing encoded anew."""

    name: ClassVar[str] = "alignments"
    title: ClassVar[str] = "Quality by alignment at inference"
    reproduces: ClassVar[str] = "ALIGNER tables 3 and 7"
    paper: ClassVar[str] = (
        "A model trained with top-1 is best with top-1 on question answering, and loses heavily with more there "
        "(NQ 52.2 with top-1, 19.9 with top-8). Other tasks want more alignments: Touché-2020 gains 16 points of "
        "nDCG@10 with top-4, TREC-COVID 6 with top-2, ArguAna 19 with top-1.5 %. On average over 14 sets of BEIR "
        "(base model) top-1 has 47.3, top-2 46.3, top-8 27.0, top-0.5 % 47.1, top-2 % 35.9: alignments should be "
        "few."
    )
    quick: ClassVar[dict[str, Any]] = {"top_k": (1, 2, 4, 8), "top_p": (0.01, 0.02, 0.05)}

    top_k: tuple[int, ...] = (1, 2, 4, 6, 8, 16)
    top_p: tuple[float, ...] = (0.005, 0.01, 0.015, 0.02, 0.05)

    def run(self, lab: Lab) -> Outcome:
        """Measure every model."""
        outcome = Outcome(notes=[measured_on(lab.pools)])
        for model in lab.models:
            self._measure(lab, model, outcome)
        return outcome

    def _measure(self, lab: Lab, model: Model, outcome: Outcome) -> None:
        alignments: list[Alignment] = [*map(TopK, self.top_k), *map(TopP, self.top_p)]
        named = {shown(alignment): alignment for alignment in alignments}
        found = {pool.name: by_alignment(lab, model, pool, named) for pool in lab.pools}
        of = slug(model.name)
        outcome.tables.append(collections_table(found, f"ndcg-{of}", f"{NDCG} of {model.name} by alignment"))
        base = next(iter(named))
        self._draw(found, base, model, outcome)
        outcome.findings += _findings(model.name, found, base)

    def _draw(self, found: dict[str, dict[str, PerQuery]], base: str, model: Model, outcome: Outcome) -> None:
        columns = list(next(iter(found.values())))
        gains = np.array([[float((v[name] - v[base]).mean()) for name in columns] for v in found.values()])
        caption = f"{model.name}: {NDCG} less that of {base}, in points. Violet is better than {base}, orange worse."
        size = (2.4 + 0.8 * len(columns), 1.5 + 0.36 * len(found))
        with drawing(f"gain-{slug(model.name)}", caption, outcome.plots, size=size) as axes:
            heatmap(
                axes[0, 0],
                100 * gains,
                list(found),
                columns,
                xlabel="alignment at inference (document tokens for each query token)",
                ylabel="collection",
                title=f"{model.name}: {NDCG} against {base}",
                unit="points",
                difference=True,
                form="{:+.1f}",
            )
        against = {
            name: difference([v[base] for v in found.values()], [v[name] for v in found.values()]) for name in columns
        }
        scaled = {name: type(gain)(*(100 * x for x in gain)) for name, gain in against.items()}
        caption = (
            f"{model.name}: mean over {len(found)} collections of {NDCG} less that of {base}, paired by query; "
            "bands are 95 % intervals."
        )
        with drawing(f"average-{slug(model.name)}", caption, outcome.plots, columns=2, size=(4.8, 3.4)) as axes:
            label = f"{NDCG} against {base} (points)"
            left, right = axes[0]
            lines(
                left,
                self.top_k,
                {"": [scaled[shown(TopK(k))] for k in self.top_k]},
                xlabel="k (document tokens)",
                ylabel=label,
                title="top-k",
                log=True,
            )
            lines(
                right,
                [100 * p for p in self.top_p],
                {"": [scaled[shown(TopP(p))] for p in self.top_p]},
                xlabel="p (% of the document's tokens)",
                ylabel=label,
                title="top-p",
                first=1,
            )
            low, high = min(a.get_ylim()[0] for a in axes[0]), max(a.get_ylim()[1] for a in axes[0])
            for ax in axes[0]:
                ax.set_ylim(low, high)
                ax.axhline(0, color="#555555", linewidth=1)


def _findings(model: str, found: dict[str, dict[str, PerQuery]], base: str) -> list[str]:
    best = {pool: max(values, key=lambda name: values[name].mean()) for pool, values in found.items()}
    equal = sum(values[best[pool]].mean() <= values[base].mean() for pool, values in found.items())
    said = [f"{model}: no alignment is better than {base} on {equal} of {len(found)} collections."]
    for pool, name in best.items():
        gain = difference([found[pool][base]], [found[pool][name]])
        if gain.low > 0:
            best_of = len(found[pool])
            said.append(f"{model}, {pool}: {name}, the best of {best_of}, has {points(gain)} points over {base}.")
    average = {name: macro([values[name] for values in found.values()]) for name in next(iter(found.values()))}
    top = max(average, key=lambda name: average[name].value)
    said.append(f"{model}: on average {top} is best with {average[top]}; {base} has {average[base]}.")
    return said
