"""Differentiable alignment: rows of Ã that spread over near ties, beside the hard top-k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from weft.alignment import Alignment
from weft.analysis.base import Experiment, Outcome
from weft.analysis.estimates import difference
from weft.analysis.experiments.common import NDCG, by_alignment, collections_table, measured_on, points
from weft.analysis.lab import Lab, Model
from weft.analysis.plots import bars, drawing
from weft.analysis.variants import train_variants
from weft.checks import check_positive
from weft.evaluation.baselines import slug


@dataclass(frozen=True)
class Differentiable(Experiment):
    """DA (eq. 9) at every k and at every ε, beside top-k; a model trained with da:1 where a recipe is given."""

    name: ClassVar[str] = "differentiable"
    title: ClassVar[str] = "Differentiable alignment"
    reproduces: ClassVar[str] = "ALIGNER table 13"
    trains: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "A model trained with differentiable alignment (k = 1, ε = 0.01) has 43.6 on average over 14 sets of BEIR; "
        "42.4 with k = 2, 24.7 with k = 8; 43.4 with ε = 0.06, 41.2 with 0.1. Tasks differ as with top-k: ArguAna "
        "rises from 30.8 to 50.1 with ε = 0.1, Touché-2020 from 37.4 to 52.0 with k = 4. Adaptation is still needed."
    )
    quick: ClassVar[dict[str, Any]] = {"k": (1, 2), "eps": (0.01, 0.1)}

    k: tuple[int, ...] = (1, 2, 4, 6, 8)
    eps: tuple[float, ...] = (0.01, 0.02, 0.04, 0.06, 0.1)
    """Weights of the entropy: the smaller, the nearer to top-k. The first is that of training and of every k."""

    def run(self, lab: Lab) -> Outcome:
        """Measure the given models, or one trained with da:1 beside the bundled one."""
        for eps in self.eps:
            check_positive(eps, "eps", self.name)
        models, pools = lab.models, lab.pools
        if not lab.given and (lab.options.recipe is not None or lab.options.quick):
            changes = {"loss.alignment": f"da:1,eps={self.eps[0]:g}"}
            models = [*models, *train_variants(lab, {"DA here": changes}, "a model trained with da:1").values()]
            pools = lab.held_out
        outcome = Outcome(notes=[measured_on(pools)])
        for model in models:
            found = {pool.name: by_alignment(lab, model, pool, self._named()) for pool in pools}
            title = f"{NDCG} of {model.name}, differentiable and hard"
            outcome.tables.append(collections_table(found, f"ndcg-{slug(model.name)}", title))
            self._draw(model, found, outcome)
            for k in self.k:
                hard, soft = ([values[name] for values in found.values()] for name in (f"top-{k}", f"DA-{k}"))
                outcome.findings.append(
                    f"{model.name}: DA less top-k at k = {k}: {points(difference(hard, soft))} points on average."
                )
        outcome.notes.append(
            f"DA: the entropy-regularised LP of each query token, ε = {self.eps[0]:g} unless another is named. Z = ΣA."
        )
        return outcome

    def _named(self) -> dict[str, Alignment]:
        named = {}
        for k in self.k:
            named[f"DA-{k}"] = Alignment.parse(f"da:{k},eps={self.eps[0]:g}")
            named[f"top-{k}"] = Alignment.parse(f"top-k:{k}")
        for eps in self.eps[1:]:
            named[f"DA-{self.k[0]}, ε = {eps:g}"] = Alignment.parse(f"da:{self.k[0]},eps={eps:g}")
        return named

    def _draw(self, model: Model, found: dict[str, dict[str, Any]], outcome: Outcome) -> None:
        from weft.analysis.estimates import macro

        caption = f"{model.name}: mean {NDCG} over collections by k, differentiable and hard."
        with drawing(f"ndcg-{slug(model.name)}", caption, outcome.plots) as axes:
            series = {
                way: [macro([values[f"{way}-{k}"] for values in found.values()]) for k in self.k]
                for way in ("DA", "top")
            }
            bars(axes[0, 0], [str(k) for k in self.k], series, xlabel="k", ylabel=f"{NDCG}, mean")
