"""How near the attention of a generative model is to rank one, head by head, and what the lemma's bound is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.analysis.base import Experiment, Outcome
from weft.analysis.estimates import Interval
from weft.analysis.experiments.common import measured_on
from weft.analysis.generative import PER_SEED, SEAL, Workshop, over_seeds
from weft.analysis.lab import Lab
from weft.analysis.plots import bars, drawing, finish, style
from weft.evaluation.tables import Cell, Table
from weft.generative.low_rank import low_rank

if TYPE_CHECKING:
    from weft.generative.model import GenerativeModel

FIELDS = ("distance", "tanh", "largest", "bound", "norm", "relative", "best", "vacuous")
Head = tuple[int, int, int]
"""(tokens, layer, head)"""


@dataclass(frozen=True)
class LowRankExperiment(Experiment):
    """Every head's alignment against the one of the decoder's mean state."""

    name: ClassVar[str] = "low-rank"
    title: ClassVar[str] = "Low rank of the attention alignment"
    reproduces: ClassVar[str] = "GR as MVDR Lemma 5.1 and figure 4"
    paper: ClassVar[str] = (
        "A = softmax(DᵀWQ) is within 4γ‖W‖ of a matrix R of rank one. On MS MARCO ‖A − R‖ is far below ‖W‖, and the "
        "relative error of R is low on average: the alignment of GR is nearly of rank one, as is MVDR's with saliences."
    )
    trains: ClassVar[bool] = True
    quick: ClassVar[dict[str, Any]] = {"seeds": (1,), "candidates": 2}

    seeds: tuple[int, ...] = (17, 18, 19)
    candidates: int = 3
    """Documents looked at for each query, the relevant first."""
    tokens: tuple[int, ...] = (10, 40)
    """Tokens of a document that are decoded: as many as a span has, and more."""

    def run(self, lab: Lab) -> Outcome:
        """Measure every head of every model."""
        shop = Workshop(lab, self.seeds)
        names = {query: found[: self.candidates] for query, found in shop.candidates(self.candidates).items()}
        models = [
            self._measure(shop, shop.generative(model), names) for model in shop.trained(SEAL)
        ]  # each: head → field → a value for each pair
        outcome = Outcome(notes=[measured_on([shop.pool])])
        self._table(models, outcome)
        self._draw(models, outcome)
        self._say(models, outcome)
        outcome.notes += [
            "Distances are ‖·‖₁ of a document token's row, the largest of a pair: at most 2, whatever the matrices. "
            "States are those that cross-attention reads, after its norm; T5 has no 1/√d. Relative error is ‖A − R‖ / "
            "‖A‖ in Frobenius norms; the best is that of the nearest rank-one matrix (singular values).",
            "4γ‖W‖, the lemma's bound, is vacuous from 2 on. 2 tanh(δ/4), δ the range of a row of (D − x̄)WQ, is the "
            "sharpest bound by those logits.",
        ]
        return outcome

    def _measure(
        self, shop: Workshop, model: GenerativeModel, names: dict[str, list[str]]
    ) -> dict[Head, dict[str, NDArray[np.float64]]]:
        from weft.generative.reranking import SpanReader

        found: dict[Head, dict[str, list[float]]] = {}
        norms: dict[tuple[int, int], float] = {}
        for length in self.tokens:
            reader = SpanReader(model, shop.pool.documents, spans=1, length=length)
            for query, text in shop.pool.queries.items():
                traced, _ = reader.trace(text, names[query])
                for layer in range(traced.layers):
                    W = traced.interaction(layer).numpy()
                    for row in range(len(traced.mask)):
                        D = traced.states[layer][row][traced.mask[row]].numpy()
                        for head in range(traced.heads):
                            if (layer, head) not in norms:
                                norms[layer, head] = float(np.linalg.norm(W[head].astype(np.float64), 2))
                            one = low_rank(traced.query[row].numpy(), D, W[head], norm=norms[layer, head])
                            into = found.setdefault((length, layer, head), {field: [] for field in FIELDS})
                            for field in FIELDS:
                                into[field].append(float(getattr(one, field)))
        return {head: {field: np.array(v) for field, v in fields.items()} for head, fields in found.items()}

    def _table(self, models: list[dict[Head, dict[str, NDArray[np.float64]]]], outcome: Outcome) -> None:
        rows: list[list[Cell]] = []
        for head in models[0]:
            cells = {field: over_seeds([model[head][field] for model in models]) for field in FIELDS}
            row: list[Cell] = [head[0], head[1] + 1, head[2] + 1, cells["norm"].value, cells["distance"]]
            row += [cells["tanh"].value, cells["largest"].value, cells["bound"].value, cells["vacuous"].value]
            rows.append([*row, cells["relative"], cells["best"]])
        columns = ["tokens", "layer", "head", "‖W‖", "‖A − R‖", "2 tanh(δ/4)", "max|E|", "4γ‖W‖", "vacuous"]
        columns += ["relative error", "best of rank one"]
        outcome.tables.append(Table("heads", "Each head against rank one, means over pairs", columns, rows, PER_SEED))

    def _draw(self, models: list[dict[Head, dict[str, NDArray[np.float64]]]], outcome: Outcome) -> None:
        layers = sorted({layer for _, layer, _ in models[0]})
        caption = (
            "Left: ‖A − R‖ of each pair against the size of the head's W; the lemma bounds it by 4γ‖W‖, beyond the "
            "plot. Right: the bound 2 tanh(δ/4) against what it bounds; nothing lies above the line."
        )
        with drawing("figure-4a", caption, outcome.plots, columns=2, size=(4.8, 3.8)) as axes:
            left, right = axes[0]
            for layer in layers:
                points = [model[head] for model in models for head in model if head[1] == layer]
                look = {key: value for key, value in style(layer).items() if key != "linestyle"}
                every = {field: np.concatenate([point[field] for point in points]) for field in FIELDS}
                named = f"layer {layer + 1}"
                left.plot(every["norm"], every["distance"], linestyle="", alpha=0.35, label=named, **look)
                right.plot(every["tanh"], every["distance"], linestyle="", alpha=0.35, **look)
            right.plot([0, 2], [0, 2], color="#555555", linewidth=1, linestyle=":")
            finish(left, "‖W‖₂ of the head", "‖A − R‖ (largest row, L1)")
            finish(right, "2 tanh(δ/4)", "‖A − R‖ (largest row, L1)")
        caption = "Relative error of R, of each head, beside that of the nearest matrix of rank one."
        with drawing("figure-4b", caption, outcome.plots, columns=len(self.tokens), size=(4.8, 3.8)) as axes:
            for ax, length in zip(axes[0], self.tokens, strict=True):
                heads = [head for head in models[0] if head[0] == length]
                series: dict[str, list[Interval | None]] = {
                    name: [over_seeds([model[head][field] for model in models]) for head in heads]
                    for name, field in (("R of the lemma", "relative"), ("best of rank one", "best"))
                }
                names = [f"{layer + 1}.{head + 1}" for _, layer, head in heads]
                bars(
                    ax,
                    names,
                    series,
                    xlabel="layer.head",
                    ylabel="‖A − R‖ / ‖A‖ (Frobenius)",
                    title=f"{length} tokens decoded",
                )

    def _say(self, models: list[dict[Head, dict[str, NDArray[np.float64]]]], outcome: Outcome) -> None:
        for length in self.tokens:
            mean = {
                field: over_seeds(
                    [np.concatenate([of[field] for head, of in model.items() if head[0] == length]) for model in models]
                )
                for field in FIELDS
            }
            every = [of for model in models for head, of in model.items() if head[0] == length]
            below = float(np.mean(np.concatenate([of["distance"] < of["norm"] for of in every])))
            outcome.findings.append(
                f"{length} tokens: relative error {mean['relative']} over all heads, {mean['best']} for the best of "
                f"rank one. ‖A − R‖ is {mean['distance'].value:.2f} of 2 that are possible, under a sharpest bound of "
                f"{mean['tanh'].value:.2f}, and below ‖W‖ for {below:.0%} of the pairs; the lemma's bound, "
                f"{mean['bound'].value:.3g}, is vacuous for "
                f"{mean['vacuous'].value:.0%} of them."
            )
