"""How many tokens must be retrieved: quality and recall by k′."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.alignment import XTR
from weft.analysis.base import Experiment, Outcome
from weft.analysis.estimates import Interval, difference, macro
from weft.analysis.experiments.common import MRR, NDCG, PerQuery, measured_on, points
from weft.analysis.lab import Lab, Model
from weft.analysis.plots import drawing, lines
from weft.analysis.scoring import xtr_scores
from weft.analysis.variants import compared
from weft.evaluation.pools import Pool
from weft.evaluation.scoring import score_all
from weft.evaluation.tables import Cell, Table

XTR_SCORE, COLBERT_SCORE = "f_XTR′", "f_ColBERT"


@dataclass(frozen=True)
class KPrime(Experiment):
    """The same candidates scored from retrieved tokens (f_XTR′) and from all of their tokens (f_ColBERT)."""

    name: ClassVar[str] = "k-prime"
    title: ClassVar[str] = "Quality by the number of retrieved tokens"
    reproduces: ClassVar[str] = "XTR figures 5 and 6, table D.2"
    paper: ClassVar[str] = (
        "Recall@100 rises with k′ for every model; XTR scored from retrieved tokens alone is above a ColBERT "
        "scored the same way for all k′, and reaches ColBERT with gathered tokens. With k′ = 1,000 in place of "
        "40,000 the base XTR has 47.9 in place of 49.1 points of nDCG@10 on average over BEIR, and Recall@100 67.1 "
        "in place of 68.0; on small collections (ArguAna, SciFact, SCIDOCS) the smaller k′ is even better."
    )
    quick: ClassVar[dict[str, Any]] = {"k_prime": (10, 100, 1000, 4000), "recall": 10}

    k_prime: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000, 10_000)
    recall: int = 100

    def run(self, lab: Lab) -> Outcome:
        """Measure the models that are compared."""
        models, pools = compared(lab)
        outcome = Outcome(notes=[measured_on(pools)])
        ks = sorted(self.k_prime)
        found: dict[tuple[str, str, int, str], list[PerQuery]] = {}
        counts: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
        for model in models:
            for pool in pools:
                self._measure(lab, model, pool, ks, found, counts)
        measures = self._measures
        rows: list[list[Cell]] = []
        for model in models:
            for k in ks:
                for score in (XTR_SCORE, COLBERT_SCORE):
                    candidates, tokens, imputed = (float(x) for x in np.mean(counts[model.name, k], axis=0))
                    values = [macro(found[model.name, score, k, m]) for m in measures]
                    extra: list[Cell] = [candidates, tokens, f"{imputed:.0%}" if score == XTR_SCORE else None]
                    rows.append([model.name, k, score, *values, *extra])
        outcome.tables.append(
            Table(
                "k-prime",
                "By the number of tokens that each query token retrieves (means over collections)",
                ["model", "k′", "scored by", *measures, "candidates", "tokens of a candidate", "imputed"],
                rows,
                "± is half of the 95 % bootstrap interval over queries. Candidates: documents with a retrieved "
                "token, a query. Imputed: share of (candidate, query token) pairs for which nothing was retrieved.",
            )
        )
        self._draw(models, ks, found, outcome)
        for model in models:
            smaller = next((k for k in reversed(ks[:-1]) if k <= 1000), ks[0])
            loss = difference(found[model.name, XTR_SCORE, ks[-1], NDCG], found[model.name, XTR_SCORE, smaller, NDCG])
            outcome.findings.append(
                f"{model.name}, {XTR_SCORE}: k′ = {smaller:,} in place of {ks[-1]:,} changes {NDCG} by "
                f"{points(loss)} points."
            )
            gap = difference(
                found[model.name, COLBERT_SCORE, smaller, NDCG], found[model.name, XTR_SCORE, smaller, NDCG]
            )
            outcome.findings.append(
                f"{model.name}, k′ = {smaller:,}: {XTR_SCORE} is {points(gap)} points of {NDCG} against "
                f"{COLBERT_SCORE} on the same candidates."
            )
        return outcome

    @property
    def _measures(self) -> tuple[str, ...]:
        return (NDCG, MRR, f"Recall@{self.recall}")

    def _measure(
        self,
        lab: Lab,
        model: Model,
        pool: Pool,
        ks: list[int],
        found: dict[tuple[str, str, int, str], list[PerQuery]],
        counts: dict[tuple[str, int], list[tuple[float, float, float]]],
    ) -> None:
        encoded = lab.encoded(model, pool)
        gathered = score_all(encoded, "sum-of-max", threads=lab.options.threads)
        alignments = [XTR(k) for k in ks]
        scores: list[list[NDArray[np.float32]]] = [[] for _ in ks]
        seen: list[list[tuple[float, float, float]]] = [[] for _ in ks]
        for number, of_query, tokens in xtr_scores(encoded, alignments):
            n = len(encoded.queries[number])
            for i, (row, hit) in enumerate(zip(of_query, tokens, strict=True)):
                scores[i].append(row)
                candidates = max(int((hit.tokens > 0).sum()), 1)
                mean = float(hit.tokens.sum()) / candidates
                seen[i].append((candidates, mean, 1 - float(hit.pairs) / (candidates * max(n, 1))))
        for i, k in enumerate(ks):
            of_xtr = np.stack(scores[i])
            both = {XTR_SCORE: of_xtr, COLBERT_SCORE: np.where(np.isfinite(of_xtr), gathered, -np.inf)}
            for name, matrix in both.items():
                measured = lab.measure(pool, matrix, *self._measures, depth=max(100, self.recall))
                for one in self._measures:
                    found.setdefault((model.name, name, k, one), []).append(measured.values(one))
            counts.setdefault((model.name, k), []).append(tuple(np.mean(seen[i], axis=0)))

    def _draw(
        self,
        models: list[Model],
        ks: list[int],
        found: dict[tuple[str, str, int, str], list[PerQuery]],
        outcome: Outcome,
    ) -> None:
        caption = (
            f"By k′, the document tokens that each query token retrieves: {XTR_SCORE} scores candidates from "
            f"retrieved tokens alone, {COLBERT_SCORE} from all of their tokens. Means over collections, 95 % bands."
        )
        measures = (self._measures[2], MRR)
        with drawing("k-prime", caption, outcome.plots, columns=2, size=(5.4, 4.6)) as axes:
            for ax, one in zip(axes[0], measures, strict=True):
                series: dict[str, list[Interval | None]] = {}
                for model in models:
                    for score in (XTR_SCORE, COLBERT_SCORE):
                        series[f"{model.name}, {score}"] = [macro(found[model.name, score, k, one]) for k in ks]
                lines(
                    ax,
                    ks,
                    series,
                    xlabel="k′ (tokens a query token)",
                    ylabel=f"{one}, mean",
                    title=one,
                    log=True,
                    together=2,
                )
