"""Quality when only the most salient tokens are kept: of documents (β_d) in the index, of queries (β_q) for probing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.analysis.base import Experiment, Outcome
from weft.analysis.estimates import Interval, difference, macro
from weft.analysis.experiments.common import NDCG, PerQuery, measured_on, own_alignment, points
from weft.analysis.lab import Lab, Model
from weft.analysis.plots import drawing, lines
from weft.analysis.variants import train_variants
from weft.checks import check_fraction
from weft.errors import invalid
from weft.evaluation.adaptation import Evidence, Folds, alignments_to_compare, fold_protocol
from weft.evaluation.pools import Encoded, Pool
from weft.evaluation.scoring import score_all
from weft.evaluation.tables import Cell, Table
from weft.storage.pruning import prune
from weft.types import TokenVectors

GATES = {
    "LP": ("lp:0.5,eps=0.002", "lp:0.4,eps=0.002"),
    "hard": ("hard:0.5", "hard:0.4"),
    "ReLU": ("relu", "relu"),
    "L1": ("l1:{}", "l1:{}"),
}
"""The four ways to make saliences sparse that figure 6 compares, with its α_q and α_d: of queries, of documents. L1 has
a coefficient to search for."""
TRAINED_WITH = "top-k:1"
"""Z = ΣA, as in ALIGNER's eq. 1: with saliences it is not the sum of max."""
Key = tuple[str, float, float]
"""(how tokens are chosen, β_q, β_d)"""


@dataclass(frozen=True)
class Pruning(Experiment):
    """Pruned tokens rank all documents; the best of them are then scored with all tokens, as in the paper."""

    name: ClassVar[str] = "pruning"
    title: ClassVar[str] = "Quality with few tokens"
    reproduces: ClassVar[str] = "ALIGNER figures 6 and 7"
    trains: ClassVar[bool] = True
    paper: ClassVar[str] = (
        "With half of the query tokens and 40 % of the document tokens (as in training) MRR@10 on MS MARCO is "
        "38.1, with all of them 38.8; with 10 % of the document tokens 37.3. β_q = 30 % costs little, 10 % more. "
        "The entropy-regularised LP and a tuned L1 penalty hold up where a plain ReLU falls off below 40 %, and a "
        "hard top-k is worse everywhere. On most of BEIR β_d = 20 % costs next to nothing, and goes together with "
        "adaptation."
    )
    quick: ClassVar[dict[str, Any]] = {
        "beta_q": (1.0, 0.5, 0.3),
        "beta_d": (1.0, 0.4, 0.2, 0.1),
        "gates": ("LP", "L1"),
        "l1": (0.001,),
        "depth": 20,
    }

    beta_q: tuple[float, ...] = (1.0, 0.5, 0.3, 0.1)
    beta_d: tuple[float, ...] = (1.0, 0.6, 0.4, 0.2, 0.1, 0.05)
    gates: tuple[str, ...] = ("LP", "hard", "ReLU", "L1")
    l1: tuple[float, ...] = (0.0001, 0.001, 0.01)
    """Coefficients of the L1 gate: a model is trained with each."""
    depth: int = 50
    """Documents of each query that are scored again with all tokens."""

    def run(self, lab: Lab) -> Outcome:
        """Measure models with saliences; by idf and at random for comparison."""
        for name in ("beta_q", "beta_d"):
            for beta in getattr(self, name):
                check_fraction(beta, name, self.name)
        for gate in self.gates:
            if gate not in GATES:
                raise invalid("gates", self.name, f"of {', '.join(GATES)}", gate)
        models, pools = self._models(lab)
        outcome = Outcome(notes=[measured_on(pools)])
        alone: dict[str, dict[Key, PerQuery]] = {pool.name: {} for pool in pools}
        refined: dict[str, dict[Key, PerQuery]] = {pool.name: {} for pool in pools}
        adapted: dict[str, dict[float, Folds | None]] = {pool.name: {} for pool in pools}
        for model in models:
            for pool in pools:
                self._measure(lab, model, pool, model is models[0], alone, refined, adapted)
        self._tables(alone, refined, outcome)
        self._draw(alone, refined, outcome)
        self._adaptation(models[0], refined, adapted, outcome)
        if not any(model.encoder.has_salience for model in models):
            outcome.notes.append("No model with saliences was given: tokens are chosen by idf and at random only.")
        outcome.notes.append(
            "Models with saliences are scored as they were trained, "
            + ", ".join(f"{model.name} with {own_alignment(model)}" for model in models)
            + "."
        )
        outcome.notes.append(
            f"Refined: the best {self.depth} documents by the pruned tokens, scored with all tokens. Figures for "
            "documents are those of the pruned index alone and refined; β_q = β_d = 100 % leaves nothing out."
        )
        return outcome

    def _models(self, lab: Lab) -> tuple[list[Model], list[Pool]]:
        salient = [model for model in lab.models if model.encoder.has_salience]
        if lab.given or (lab.options.recipe is None and not lab.options.quick):
            return salient or lab.models[:1], lab.pools
        gates: dict[str, tuple[str, str]] = {}
        for name in self.gates:
            query, document = GATES[name]
            if name != "L1":
                gates[f"{name} gate"] = query, document
                continue
            for c in self.l1:
                gates[f"L1 gate {c:g}"] = query.format(f"{c:g}"), document.format(f"{c:g}")
        variants = {
            name: {"model.query_gate": q, "model.document_gate": d, "loss.alignment": TRAINED_WITH}
            for name, (q, d) in gates.items()
        }
        trained = train_variants(lab, variants, "models with saliences")
        return [*salient, *trained.values()], lab.held_out

    def _measure(
        self,
        lab: Lab,
        model: Model,
        pool: Pool,
        first: bool,
        alone: dict[str, dict[Key, PerQuery]],
        refined: dict[str, dict[Key, PerQuery]],
        adapted: dict[str, dict[float, Folds | None]],
    ) -> None:
        encoded = lab.encoded(model, pool)
        own = own_alignment(model)
        whole = score_all(encoded, own, threads=lab.options.threads)
        every = self._every(lab, encoded, own) if first else {}
        ways = {model.name: encoded} if encoded.documents.salience is not None else {}
        if first:
            ways |= {"idf": _by(encoded, idf), "random": _by(encoded, at_random)}
        for way, texts in ways.items():
            for beta_q in self.beta_q if way == model.name else self.beta_q[:2]:
                queries = prune(texts.queries, beta_q)
                for beta_d in self.beta_d:
                    pruned = Encoded(queries, prune(texts.documents, beta_d), texts.salience_weighs)
                    by = own if way == model.name else "sum-of-max"  # idf and chance choose tokens, and weigh none
                    scores = score_all(pruned, by, threads=lab.options.threads)
                    key = (way, beta_q, beta_d)
                    alone[pool.name][key] = lab.measure(pool, scores, NDCG).values(NDCG)
                    kept = _best(scores, self.depth)
                    refined[pool.name][key] = lab.measure(pool, np.where(kept, whole, -np.inf), NDCG).values(NDCG)
                    if first and way == next(iter(ways)) and beta_q == self.beta_q[min(1, len(self.beta_q) - 1)]:
                        adapted[pool.name][beta_d] = self._adapted(lab, pool, every, kept, own)

    def _every(self, lab: Lab, encoded: Encoded, own: str) -> dict[str, NDArray[np.float32]]:
        """Score all documents with all tokens under each alignment that adaptation chooses from."""
        weighs = encoded.salience_weighs and encoded.documents.salience is not None
        wanted = dict.fromkeys([own, *alignments_to_compare(weighs)])
        return {text: score_all(encoded, text, threads=lab.options.threads) for text in wanted}

    def _adapted(
        self, lab: Lab, pool: Pool, every: Mapping[str, NDArray[np.float32]], kept: NDArray[np.bool_], own: str
    ) -> Folds | None:
        """Return what few-shot adaptation makes of the candidates that pruned tokens found (ALIGNER figure 7, AA)."""
        if len(pool.queries) < 16:
            return None
        runs = {text: lab.run(pool, np.where(kept, scores, -np.inf)) for text, scores in every.items()}
        return fold_protocol(Evidence.of(runs, {query: pool.qrels[query] for query in pool.queries}), own)

    def _tables(
        self, alone: dict[str, dict[Key, PerQuery]], refined: dict[str, dict[Key, PerQuery]], outcome: Outcome
    ) -> None:
        keys = list(next(iter(alone.values())))
        rows: list[list[Cell]] = []
        for way, beta_q, beta_d in keys:
            key = (way, beta_q, beta_d)
            rows.append(
                [
                    way,
                    f"{beta_q:.0%}",
                    f"{beta_d:.0%}",
                    f"{beta_q * beta_d:.1%}",
                    macro([values[key] for values in alone.values()]),
                    macro([values[key] for values in refined.values()]),
                ]
            )
        columns = ["tokens chosen by", "β_q", "β_d", "comparisons left", f"{NDCG}, pruned", f"{NDCG}, refined"]
        note = "Comparisons left: query tokens × document tokens, of brute force. Means over collections."
        outcome.tables.append(Table("pruning", f"{NDCG} by pruning", columns, rows, note))
        per: list[list[Cell]] = []
        for pool, values in refined.items():
            for way in dict.fromkeys(key[0] for key in keys):
                beta_q = self.beta_q[min(1, len(self.beta_q) - 1)]
                row: list[Cell] = [pool, way, f"{beta_q:.0%}"]
                per.append(row + [macro([values[way, beta_q, beta_d]]) for beta_d in self.beta_d])
        columns = ["collection", "tokens chosen by", "β_q", *(f"β_d {beta:.0%}" for beta in self.beta_d)]
        outcome.tables.append(Table("collections", f"{NDCG} by collection, refined", columns, per))

    def _draw(
        self, alone: dict[str, dict[Key, PerQuery]], refined: dict[str, dict[Key, PerQuery]], outcome: Outcome
    ) -> None:
        keys = list(next(iter(alone.values())))
        ways = list(dict.fromkeys(key[0] for key in keys))
        x = [100 * beta for beta in self.beta_d]

        def line(found: Mapping[str, Mapping[Key, PerQuery]], way: str, beta_q: float) -> list[Interval]:
            return [macro([values[way, beta_q, beta_d] for values in found.values()]) for beta_d in self.beta_d]

        caption = f"{ways[0]}: mean {NDCG} by the share of query and document tokens kept; bands are 95 % intervals."
        found = {"pruned tokens alone": alone, "best refined with all tokens": refined}
        with drawing("beta", caption, outcome.plots, columns=2, size=(5.2, 4.0)) as axes:
            for ax, (title, values) in zip(axes[0], found.items(), strict=True):
                known = [b for b in self.beta_q if (ways[0], b, self.beta_d[0]) in keys]
                series = {f"β_q = {beta:.0%}": line(values, ways[0], beta) for beta in known}
                _lines(ax, x, series, title)
            _same_height(axes[0])
        beta_q = self.beta_q[min(1, len(self.beta_q) - 1)]
        caption = f"Ways to choose tokens, β_q = {beta_q:.0%}: mean {NDCG}; bands are 95 % intervals."
        with drawing("ways", caption, outcome.plots, columns=2, size=(5.2, 4.0)) as axes:
            for ax, (title, values) in zip(axes[0], found.items(), strict=True):
                _lines(ax, x, {way: line(values, way, beta_q) for way in ways}, title)
            _same_height(axes[0])
        for way in ways:
            for beta_d in self.beta_d[1:]:
                whole = [values[way, self.beta_q[0], self.beta_d[0]] for values in refined.values()]
                loss = difference(whole, [values[way, beta_q, beta_d] for values in refined.values()])
                outcome.findings.append(
                    f"{way}, β_q {beta_q:.0%}, β_d {beta_d:.0%}: {points(loss)} points against all tokens, refined."
                )

    def _adaptation(
        self,
        model: Model,
        refined: dict[str, dict[Key, PerQuery]],
        adapted: dict[str, dict[float, Folds | None]],
        outcome: Outcome,
    ) -> None:
        beta_q = self.beta_q[min(1, len(self.beta_q) - 1)]
        way = next(iter(next(iter(refined.values()))))[0]
        rows: list[list[Cell]] = []
        for pool, of in adapted.items():
            for beta_d, folds in of.items():
                plain = macro([refined[pool][way, beta_q, beta_d]])
                said = None if folds is None else f"{folds.mean:.3f} ±{folds.std:.3f}"
                rows.append([pool, f"{beta_d:.0%}", plain, said])
        note = (
            f"Tokens chosen by {way}, β_q = {beta_q:.0%}, the best {self.depth} documents scored with all tokens of "
            f"{model.name}. Adapted: mean ± standard deviation over folds of 8 examples, see the experiment adaptation."
        )
        title = f"{NDCG}, pruned and refined, with few-shot adaptation"
        outcome.tables.append(Table("adapted", title, ["collection", "β_d", "own alignment", "adapted"], rows, note))


def idf(texts: TokenVectors, documents: TokenVectors) -> NDArray[np.float32]:
    """Return each token's inverse document frequency in the pool, at least 0; needs vocabulary ids. Shape (T,)."""
    assert texts.token_ids is not None
    assert documents.token_ids is not None
    owner = np.repeat(np.arange(len(documents)), documents.lengths)
    pairs = np.unique(np.stack([documents.token_ids.astype(np.int64), owner]), axis=1)
    most = int(max(documents.token_ids.max(initial=0), texts.token_ids.max(initial=0))) + 1
    count = np.bincount(pairs[0], minlength=most)
    values = np.log((1 + len(documents)) / (1 + count[texts.token_ids]))
    return np.maximum(values, 0).astype(np.float32)


def at_random(texts: TokenVectors, documents: TokenVectors) -> NDArray[np.float32]:  # noqa: ARG001
    """Return random numbers, the same each time. Shape (T,)."""
    return np.random.default_rng(texts.n_tokens).random(texts.n_tokens, dtype=np.float32)


def _by(encoded: Encoded, score: Any) -> Encoded:
    """Return the texts with other saliences, which choose tokens and weigh none."""
    queries, documents = encoded.queries, encoded.documents
    return Encoded(
        replace(queries, salience=score(queries, documents)),
        replace(documents, salience=score(documents, documents)),
        salience_weighs=False,
    )


def _best(scores: NDArray[np.floating[Any]], depth: int) -> NDArray[np.bool_]:
    """Mark the best `depth` documents of each query."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    kept = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(kept, order, True, axis=1)
    found: NDArray[np.bool_] = kept & np.isfinite(scores)
    return found


def _lines(ax: Any, x: list[float], series: dict[str, list[Interval]], title: str) -> None:
    lines(ax, x, series, xlabel="β_d (% of document tokens kept)", ylabel=f"{NDCG}, mean", title=title, log=True)


def _same_height(axes: Any) -> None:
    low, high = min(ax.get_ylim()[0] for ax in axes), max(ax.get_ylim()[1] for ax in axes)
    for ax in axes:
        ax.set_ylim(low, high)
