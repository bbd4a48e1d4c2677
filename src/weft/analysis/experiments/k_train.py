"""XTR models trained with different k_train and batch sizes, by k′ at inference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from weft.alignment import XTR, Alignment, InBatchTokenRetrieval, SumOfMax
from weft.analysis.base import Experiment, NeedsError, Outcome
from weft.analysis.estimates import Interval, macro
from weft.analysis.experiments.common import MRR, NDCG, PerQuery, measured_on
from weft.analysis.lab import Lab, Model
from weft.analysis.plots import drawing, lines
from weft.analysis.scoring import xtr_matrices
from weft.analysis.variants import train_variants, trained_with
from weft.evaluation.tables import Cell, Table

Trained = tuple[int, int]
"""(k_train, batch size); k_train 0 of a ColBERT, batch size 0 where it is not known."""


@dataclass(frozen=True)
class KTrain(Experiment):
    """One model for each k_train and batch size and a ColBERT, each measured with every k′ by f_XTR′."""

    name: ClassVar[str] = "k-train"
    title: ClassVar[str] = "Tokens retrieved in training and at inference"
    reproduces: ClassVar[str] = "XTR figures 6 and 7"
    trains: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "All XTR models want a large k′. Those trained with a small k_train are better at small k′, those trained "
        "with a large one (320) overtake them as k′ grows; all are above a ColBERT scored from retrieved tokens. "
        "Larger batches are better throughout. MS MARCO wants a large k_train, ArguAna with its long queries a "
        "small one."
    )
    quick: ClassVar[dict[str, Any]] = {"k_train": (8, 64), "batch_sizes": (8,), "k_prime": (10, 100, 1000)}

    k_train: tuple[int, ...] = (16, 64, 256)
    batch_sizes: tuple[int, ...] = (16, 8)
    """The first one is also figure 6's."""
    k_prime: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000, 10_000)

    def run(self, lab: Lab) -> Outcome:
        """Measure the given models, or train them."""
        models = self._models(lab)
        pools = lab.held_out
        outcome = Outcome(notes=[measured_on(pools)])
        ks = sorted(self.k_prime)
        found: dict[tuple[Trained, int, str], list[PerQuery]] = {}
        by_pool: dict[tuple[Trained, str], PerQuery] = {}
        for trained, model in models.items():
            for pool in pools:
                for k, scores in zip(ks, xtr_matrices(lab.encoded(model, pool), [XTR(k) for k in ks]), strict=True):
                    measured = lab.measure(pool, scores, MRR, NDCG)
                    for one in (MRR, NDCG):
                        found.setdefault((trained, k, one), []).append(measured.values(one))
                    by_pool[trained, pool.name] = measured.values(NDCG)  # the last, greatest k′ stays: figure 7
        self._figure_6(list(models), ks, found, outcome)
        self._figure_7(list(models), ks[-1], [pool.name for pool in pools], by_pool, outcome)
        return outcome

    def _models(self, lab: Lab) -> dict[Trained, Model]:
        if not lab.given:
            pairs = [(0, self.batch_sizes[0]), *((k, size) for size in self.batch_sizes for k in self.k_train)]
            variants = {
                _said((k, size)): {"loss.alignment": _alignment(k), "training.batch_size": size} for k, size in pairs
            }
            made = train_variants(lab, variants, "models trained with different k_train")
            return dict(zip(pairs, made.values(), strict=True))
        models: dict[Trained, Model] = {}
        for model in lab.models:
            alignment = Alignment.parse(trained_with(model, self.name))
            if not isinstance(alignment, InBatchTokenRetrieval | SumOfMax):
                raise NeedsError(
                    f"k-train needs models trained with xtr-in-batch:K, and perhaps one with sum-of-max; {model.name} "
                    f"had {alignment}"
                )
            k_train = alignment.k_train if isinstance(alignment, InBatchTokenRetrieval) else 0
            models[k_train, int(model.recipe.get("training", {}).get("batch_size", 0))] = model
        if sum(k > 0 for k, _ in models) < 2:
            raise NeedsError("k-train compares models trained with different k_train or batch sizes: give two or more")
        return models

    def _figure_6(
        self,
        models: list[Trained],
        ks: list[int],
        found: dict[tuple[Trained, int, str], list[PerQuery]],
        outcome: Outcome,
    ) -> None:
        rows: list[list[Cell]] = []
        for trained in models:
            for k in ks:
                cells = [macro(found[trained, k, one]) for one in (MRR, NDCG)]
                rows.append([str(trained[0] or "ColBERT"), trained[1] or None, k, *cells])
        outcome.tables.append(
            Table(
                "k-train",
                "By k_train, batch size and k′ (means over collections)",
                ["k_train", "batch size", "k′", MRR, NDCG],
                rows,
                "± is half of the 95 % bootstrap interval over queries.",
            )
        )
        caption = f"{MRR} scored from retrieved tokens (f_XTR′) by k′; means over collections, 95 % bands."
        with drawing("k-prime", caption, outcome.plots, size=(6.6, 4.4)) as axes:
            series = {_said(t): [macro(found[t, k, MRR]) for k in ks] for t in models}
            xlabel = "k′ at inference (tokens a query token)"
            lines(axes[0, 0], ks, series, xlabel=xlabel, ylabel=f"{MRR}, mean of collections", log=True)
        for k in (ks[0], ks[-1]):
            best = max(models, key=lambda t: macro(found[t, k, MRR]).value)
            outcome.findings.append(f"k′ = {k:,}: {_said(best)} is best, {MRR} {macro(found[best, k, MRR])}.")

    def _figure_7(
        self,
        models: list[Trained],
        k_prime: int,
        pools: list[str],
        by_pool: dict[tuple[Trained, str], PerQuery],
        outcome: Outcome,
    ) -> None:
        k_trains = sorted({k for k, _ in models if k})
        sizes = sorted({size for k, size in models if k})
        shown = pools[:6]
        across = min(len(shown), 3)
        down = -(-len(shown) // across)
        caption = f"{NDCG} by k_train for each training batch size, k′ = {k_prime:,}; 95 % bands."
        with drawing("k-train", caption, outcome.plots, columns=across, rows=down, size=(4.6, 3.4)) as axes:
            for ax, pool in zip(axes.ravel(), shown, strict=False):
                series: dict[str, list[Interval | None]] = {}
                for size in sizes:
                    values = [by_pool.get(((k, size), pool)) for k in k_trains]
                    series[f"batch {size}" if size else "batch unknown"] = [
                        None if value is None else macro([value]) for value in values
                    ]
                lines(ax, k_trains, series, xlabel="k_train (tokens)", ylabel=NDCG, title=pool, log=True)
            for ax in axes.ravel()[len(shown) :]:
                ax.set_axis_off()
        for pool in pools:
            best = max(models, key=lambda t: float(by_pool[t, pool].mean()))
            outcome.findings.append(f"{pool}, k′ = {k_prime:,}: {_said(best)} is best.")


def _alignment(k_train: int) -> str:
    return f"xtr-in-batch:{k_train}" if k_train else "sum-of-max,z=query"


def _said(trained: Trained) -> str:
    name = f"k_train {trained[0]}" if trained[0] else "ColBERT"
    return name + (f", batch {trained[1]}" if trained[1] else "")
