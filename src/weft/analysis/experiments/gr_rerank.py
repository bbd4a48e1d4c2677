"""Multi-vector and generative models rank the same candidates: which way they align, and what a logit is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.analysis.base import Experiment, Outcome
from weft.analysis.estimates import Interval, difference
from weft.analysis.experiments.common import measured_on, points
from weft.analysis.generative import D_TO_Q, PER_SEED, Q_TO_D, SEAL, Trained, Workshop, over_seeds
from weft.analysis.lab import Lab
from weft.analysis.plots import bars, drawing
from weft.evaluation.measures import evaluate
from weft.evaluation.tables import Cell, Table

MEASURES = ("R@1", "R@10", "MRR@10")
FORWARD, BACKWARD, GR = "MVDR (q→d)", "MVDR (q←d)", "GR, mean log p"
LOGITS, EQ_14 = "GR, raw logits (eq. 11)", "GR, Σ S∘A alone (eq. 14)"
PerQuery = dict[str, NDArray[np.float64]]
"""Values for each query, by name."""
Run = dict[str, dict[str, float]]


@dataclass(frozen=True)
class GRRerank(Experiment):
    """BM25's best and the relevant documents, ranked by models of one T5 trained alike."""

    name: ClassVar[str] = "gr-rerank"
    title: ClassVar[str] = "Multi-vector and generative retrieval in the re-ranking setting"
    reproduces: ClassVar[str] = "GR as MVDR table 5, and eq. 11–16 on real models"
    paper: ClassVar[str] = (
        "With T5-base on NQ320k and MS MARCO, MVDR(q→d) ranks the relevant document first for 61.3 % and 46.5 % of the "
        "queries, MVDR(q←d) for 53.2 % and 34.8 %, GR for 47.4 % and 35.3 %: aligning from the query to the document "
        "is better, and MVDR(q←d), which has GR's direction and MVDR's document vectors, lies between them or near GR."
    )
    trains: ClassVar[bool] = True
    quick: ClassVar[dict[str, Any]] = {"seeds": (1,), "depth": 15}

    seeds: tuple[int, ...] = (17, 18, 19)
    depth: int = 100
    """How many of BM25's best documents for a query are candidates."""
    spans: int = 3
    """Spans that GR reads of a candidate."""
    words: int = 0
    """Words of such a span, 10 in the paper; 0: as many tokens as in training."""
    sampled: bool = False
    """Draw spans at temperature 1, as the paper does, in place of the likeliest."""
    d_to_q: str = D_TO_Q.alignment
    """The alignment of MVDR(q←d), in training and ranking."""

    def run(self, lab: Lab) -> Outcome:
        """Rank, and take the logits of GR apart."""
        shop = Workshop(lab, self.seeds)
        outcome = Outcome(notes=[measured_on([shop.pool])])
        candidates = shop.candidates(self.depth)
        bm25 = {query: {d: shop.pool.bm25[query].get(d, 0.0) for d in names} for query, names in candidates.items()}
        found: dict[str, list[PerQuery]] = {"BM25": [_measure(shop, bm25)]}  # system → one for each seed
        models: dict[str, list[Trained]] = {}
        for name, kind in ((FORWARD, Q_TO_D), (BACKWARD, replace(D_TO_Q, alignment=self.d_to_q))):
            models[name] = shop.trained(kind)
            found[name] = [_measure(shop, _mvdr(shop, model, candidates)) for model in models[name]]
        models[GR] = shop.trained(SEAL)
        anatomy: list[PerQuery] = []
        for model in models[GR]:
            runs, parts = self._gr(shop, model, candidates)
            anatomy.append(parts)
            for system, run in runs.items():
                found.setdefault(system, []).append(_measure(shop, run))
        self._table(found, outcome)
        _budget(models, outcome)
        _anatomy(anatomy, outcome)
        _say(found, outcome)
        outcome.notes += [
            f"Candidates are BM25's best {self.depth} documents with the relevant ones. For a seed all models start "
            "from the same random T5 and see as many pairs; T5-ColBERT reads whole documents, T5-SEAL spans of them.",
            f"MVDR(q←d) is {self.d_to_q}: a softmax over the query's tokens for each document token. Z is ΣA / n, the "
            "document's length over the query's; the paper does not say what it takes.",
            f"GR reads {f'{self.spans} sampled' if self.sampled else f'the {self.spans} likeliest'} query-conditioned "
            f"spans of a candidate{f', of {self.words} words' if self.words else ''}. Mean log p is what the "
            "paper's published code ranks by, raw logits are eq. 11; eq. 14 is what cross-attention adds to the logits "
            "directly.",
        ]
        return outcome

    def _gr(self, shop: Workshop, model: Trained, candidates: dict[str, list[str]]) -> tuple[dict[str, Run], PerQuery]:
        """Return runs by what they rank by, and for each query the mean sizes of the parts of a logit."""
        from weft.generative.reranking import SpanReader

        drawn = model.seed or 0 if self.sampled else None
        reader = SpanReader(shop.generative(model), shop.pool.documents, self.spans, words=self.words, seed=drawn)
        runs: dict[str, Run] = {}
        sizes: dict[str, list[float]] = {}
        for query, text in shop.pool.queries.items():
            names = candidates[query]
            scores = reader.scores(text, names)
            cross = scores.parts["cross-attention"]
            for system, values in ((GR, scores.log_p), (LOGITS, scores.logit), (EQ_14, cross)):
                runs.setdefault(system, {})[query] = dict(zip(names, values.tolist(), strict=True))
            whole = np.abs(scores.logit).mean()
            of_query = {part: np.abs(values).mean() / whole for part, values in scores.parts.items()}
            of_query["gap"] = np.abs(scores.logit - cross).mean() / whole
            of_query["order"] = _agreement(cross, scores.logit)
            of_query["order, no RMSNorm"] = _agreement(scores.plain, scores.logit)
            for key, value in of_query.items():
                sizes.setdefault(key, []).append(float(value))
        return runs, {key: np.array(values) for key, values in sizes.items()}

    def _table(self, found: dict[str, list[PerQuery]], outcome: Outcome) -> None:
        cells = {name: [over_seeds([values[m] for values in seeds]) for m in MEASURES] for name, seeds in found.items()}
        rows: list[list[Cell]] = [[name, len(found[name]), *values] for name, values in cells.items()]
        columns = ["system", "models", *MEASURES]
        title = f"Re-ranking BM25's best {self.depth} with the relevant"
        outcome.tables.append(Table("table-5", title, columns, rows, PER_SEED, best="columns"))
        caption = f"{title}: multi-vector models in both directions, and a generative one by what it ranks by."
        with drawing("table-5", caption, outcome.plots, size=(8.0, 4.2)) as axes:
            series: dict[str, list[Interval | None]] = {name: list(values) for name, values in cells.items()}
            bars(axes[0, 0], list(MEASURES), series, xlabel="measure", ylabel="mean over queries")
            axes[0, 0].set_ylim(0, 1.05)  # intervals over few seeds may reach beyond what is possible


def _measure(shop: Workshop, run: Run) -> PerQuery:
    scores = evaluate(run, {query: shop.pool.qrels[query] for query in shop.pool.queries}, MEASURES)
    return {measure: scores.values(measure) for measure in MEASURES}


def _mvdr(shop: Workshop, model: Trained, candidates: dict[str, list[str]]) -> Run:
    from weft.generative.reranking import VectorReader

    reader = VectorReader(shop.multivector(model), shop.pool.documents)
    return {
        query: dict(zip(candidates[query], reader.scores(text, candidates[query]).tolist(), strict=True))
        for query, text in shop.pool.queries.items()
    }


def _budget(models: dict[str, list[Trained]], outcome: Outcome) -> None:
    rows: list[list[Cell]] = []
    for name, trained in models.items():
        logs = [model.log for model in trained if model.log]
        if logs:
            mean = {key: float(np.mean([log[key] for log in logs])) for key in ("step", "loss", "seconds")}
            rows.append([name.removesuffix(", mean log p"), round(mean["step"]), mean["loss"], mean["seconds"]])
    if rows:
        note = "Means over seeds. Losses of different kinds are not comparable."
        columns = ["model", "steps", "last loss", "seconds"]
        outcome.tables.append(Table("budget", "What training took", columns, rows, note))


def _anatomy(anatomy: list[PerQuery], outcome: Outcome) -> None:
    """Say how much of a logit is eq. 14's sum."""
    cells = {key: over_seeds([values[key] for values in anatomy]) for key in anatomy[0]}
    names = {
        "embedding": "residual (embedding)",
        "self-attention": "self-attention",
        "cross-attention": "cross-attention: Σ S∘A",
        "feed-forward": "feed-forward",
        "gap": "logit − Σ S∘A",
    }
    rows: list[list[Cell]] = [[shown, cells[key]] for key, shown in names.items()]
    outcome.tables.append(
        Table(
            "logit",
            "What a logit of a real T5 is made of",
            ["part", "mean size, of the logit's"],
            rows,
            "Parts as RMSNorm scales them; they sum to the logit, with signs, so that sizes may sum to more than 1. "
            f"Means over candidates, then queries. {PER_SEED}",
        )
    )
    caption = "Mean size of what each part of the decoder adds to a logit, relative to the mean size of the logit."
    with drawing("logit", caption, outcome.plots, size=(7.2, 3.8)) as axes:
        bars(
            axes[0, 0],
            list(names.values()),
            {"size": [cells[key] for key in names]},
            xlabel="part of the logit",
            ylabel="mean |part| / mean |logit|",
        )
        axes[0, 0].set_ylim(bottom=0)
    outcome.findings.append(
        "Eq. 14 is not the whole of a T5's logit: cross-attention's own part is "
        f"{cells['cross-attention'].value:.2f} of its size, and what is left without that part "
        f"{cells['gap'].value:.2f}. Ordered by Σ S∘A alone, a query's candidates agree with the order by logits by "
        f"a rank correlation of {cells['order'].value:.2f} ({cells['order, no RMSNorm'].value:.2f} if RMSNorm is left "
        "out as well)."
    )


def _say(found: dict[str, list[PerQuery]], outcome: Outcome) -> None:
    mean = {name: np.mean([values["R@1"] for values in seeds], axis=0) for name, seeds in found.items()}
    for first, second in ((BACKWARD, FORWARD), (GR, FORWARD), (GR, BACKWARD), (LOGITS, GR)):
        gain = difference([mean[first]], [mean[second]])
        outcome.findings.append(f"R@1 of {second} less that of {first}: {points(gain)} points.")
    order = sorted((FORWARD, BACKWARD, GR), key=lambda name: -float(mean[name].mean()))
    agrees = order[0] == FORWARD
    outcome.findings.append(
        f"By R@1: {' > '.join(order)}. The paper's order, MVDR(q→d) first, is {'found' if agrees else 'not found'}."
    )


def _agreement(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Spearman's rank correlation; 0 where one side is constant or there is but one document."""
    from scipy.stats import rankdata

    a, b = rankdata(first), rankdata(second)
    if a.std() == 0 or b.std() == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])
