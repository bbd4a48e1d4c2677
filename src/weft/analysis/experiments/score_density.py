"""How high the similarities of retrieved tokens are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.analysis.base import Experiment, Outcome
from weft.analysis.estimates import Interval, curve, macro
from weft.analysis.experiments.common import measured_on
from weft.analysis.experiments.token_ranks import real_tokens
from weft.analysis.lab import Lab, Model
from weft.analysis.plots import drawing, lines
from weft.analysis.variants import compared
from weft.evaluation.pools import Pool
from weft.evaluation.scoring import Owners, top_tokens
from weft.evaluation.tables import Cell, Table

BINS = np.linspace(-0.2, 1.0, 61)
SHARE = 0.1
"""At most this share of a collection's tokens is retrieved: 4,000 would be nearly all tokens of a small one."""


@dataclass(frozen=True)
class ScoreDensity(Experiment):
    """The distribution of each query token's best similarities."""

    name: ClassVar[str] = "score-density"
    title: ClassVar[str] = "Density of token retrieval scores"
    reproduces: ClassVar[str] = "XTR figure 2"
    paper: ClassVar[str] = (
        "Of 4,000 tokens retrieved for each query token, a model trained with the sum of max gives very many a "
        "cosine near 1, relevant or not; XTR's training spreads them out at lower values, since a high similarity "
        "of a wrong token now costs something."
    )

    tokens: int = 4000
    """Retrieved for each query token."""

    def run(self, lab: Lab) -> Outcome:
        """Measure the models that are compared."""
        models, pools = compared(lab)
        outcome = Outcome(notes=[measured_on(pools)])
        densities: dict[str, list[NDArray[np.float64]]] = {}
        gold: dict[str, list[NDArray[np.float64]]] = {}
        rows: list[list[Cell]] = []
        for model in models:
            high: dict[str, list[NDArray[np.float64]]] = {}
            for pool in pools:
                of_all, of_gold, summary = self._measure(lab, model, pool)
                densities.setdefault(model.name, []).append(of_all)
                gold.setdefault(model.name, []).append(of_gold)
                rows.append([pool.name, model.name, *(macro([value]) for value in summary.values())])
                for name, value in summary.items():
                    high.setdefault(name, []).append(value)
            if len(pools) > 1:
                rows.append(["average", model.name, *(macro(values) for values in high.values())])
            outcome.findings.append(
                f"{model.name}: the mean similarity of retrieved tokens is {macro(high['mean'])}; "
                f"{macro(high['above 0.8']).value:.1%} lie above 0.8."
            )
        outcome.tables.append(
            Table(
                "density",
                "Similarities of retrieved tokens",
                ["collection", "model", "mean", "median", "last", "above 0.8", "mean, gold", "mean, others"],
                rows,
                "± is half of the 95 % bootstrap interval over queries. last: of the tokens retrieved, what "
                "imputation uses.",
            )
        )
        self._draw(models, densities, gold, outcome)
        outcome.notes.append(
            f"{self.tokens:,} tokens for each query token, but at most {SHARE:.0%} of a collection's: of a small "
            "collection that is a greater share than of MS MARCO, so densities compare models, not papers. Special "
            "tokens are left out."
        )
        return outcome

    def _measure(
        self, lab: Lab, model: Model, pool: Pool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], dict[str, NDArray[np.float64]]]:
        """Return densities (queries, bins) of all and of gold tokens, and a few numbers of each query."""
        encoded = lab.encoded(model, pool)
        k = max(1, min(self.tokens, round(SHARE * encoded.documents.n_tokens)))
        owner = Owners(encoded.documents).document
        densities, of_gold, numbers = [], [], []
        for number, query in enumerate(pool.queries):
            own = real_tokens(encoded, number)
            if not len(own):
                continue
            found, similarity = top_tokens(encoded.queries[number][own], encoded.documents, k)
            relevant = np.array([pool.qrels[query].get(name, 0) > 0 for name in pool.documents])[owner[found]]
            densities.append(_density(similarity))
            of_gold.append(_density(similarity[relevant]))
            every = float(similarity.mean())
            numbers.append(
                [
                    every,
                    float(np.median(similarity)),
                    float(similarity[:, -1].mean()),
                    float((similarity > 0.8).mean()),
                    float(similarity[relevant].mean()) if relevant.any() else every,
                    float(similarity[~relevant].mean()) if not relevant.all() else every,
                ]
            )
        table = np.array(numbers)
        names = ("mean", "median", "last", "above 0.8", "mean, gold", "mean, others")
        return np.stack(densities), np.stack(of_gold), {name: table[:, i] for i, name in enumerate(names)}

    def _draw(
        self,
        models: list[Model],
        densities: dict[str, list[NDArray[np.float64]]],
        gold: dict[str, list[NDArray[np.float64]]],
        outcome: Outcome,
    ) -> None:
        middles = (BINS[:-1] + BINS[1:]) / 2
        caption = (
            "Density of the similarities of retrieved tokens: all of them, and those of gold documents alone. "
            "Means over queries and collections, 95 % bands."
        )
        with drawing("density", caption, outcome.plots, columns=2, size=(5.2, 4.0)) as axes:
            for ax, (title, found) in zip(axes[0], {"all": densities, "of gold documents": gold}.items(), strict=True):
                series: dict[str, list[Interval]] = {model.name: curve(found[model.name]) for model in models}
                lines(
                    ax,
                    [float(x) for x in middles],
                    series,
                    xlabel="similarity (cosine)",
                    ylabel="density (share of tokens per unit)",
                    title=f"retrieved tokens, {title}",
                    marked=False,
                )
                ax.set_ylim(bottom=0)
                known = np.any([np.any([group.any(axis=0) for group in found[m.name]], axis=0) for m in models], axis=0)
                ax.set_xlim(left=float(BINS[int(np.argmax(known))]) - 0.04, right=1.01)


def _density(similarity: NDArray[Any]) -> NDArray[np.float64]:
    """Return a histogram that integrates to 1; zeros, if there is nothing."""
    counts, _ = np.histogram(similarity, BINS)
    total = counts.sum() * (BINS[1] - BINS[0])
    return counts / total if total else counts.astype(np.float64)
