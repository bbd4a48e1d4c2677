"""Generative retrievers end to end: n-grams, digits, titles; plain, prefix-aware and contextual document vectors."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.analysis.base import Experiment, NeedsError, Outcome
from weft.analysis.estimates import Interval, difference
from weft.analysis.experiments.common import measured_on, points
from weft.analysis.generative import PER_SEED, Q_TO_D, SEAL, Kind, Trained, Workshop, over_seeds
from weft.analysis.lab import Lab
from weft.analysis.plots import bars, drawing
from weft.evaluation.measures import evaluate
from weft.evaluation.pools import Encoded
from weft.evaluation.scoring import score_all
from weft.evaluation.tables import Cell, Table
from weft.search import Index
from weft.types import Document

MEASURES = ("R@1", "R@10")
TOP = 10
MODELS = (
    *("T5-ColBERT", "T5-ColBERT-index", "DSI", "DSI-PAWA", "T5-SEAL"),
    *("T5-GENRE", "T5-GENRE-NP-BASE", "T5-GENRE-NP-ASYNC"),
)
"""T5-ColBERT scores every document; T5-ColBERT-index is the same model through an index at its default effort."""


@dataclass(frozen=True)
class GREncodings(Experiment):
    """One T5, one corpus, seven retrievers over the whole of it."""

    name: ClassVar[str] = "gr-encodings"
    title: ClassVar[str] = "Document encodings of generative retrievers, end to end"
    reproduces: ClassVar[str] = "GR as MVDR table 6"
    paper: ClassVar[str] = (
        "R@1 / R@10 on NQ320k: T5-ColBERT 61.1 / 88.4, DSI 55.2 / 67.4, DSI-PAWA 60.2 / 80.2, T5-SEAL 44.7 / 75.5, "
        "T5-GENRE 53.7 / 64.7, T5-GENRE-NP 62.2 / 78.8: prefix-aware and contextual vectors in the decoder's head come "
        "near a multi-vector model in R@1, not in R@10. The figures were taken from several papers; another has DSI at "
        "27.4 / 56.6."
    )
    trains: ClassVar[bool] = True
    quick: ClassVar[dict[str, Any]] = {"seeds": (1,), "beams": 10}

    seeds: tuple[int, ...] = (17, 18, 19)
    models: tuple[str, ...] = MODELS
    beams: int = 15
    scoring: str = "log-odds"
    """How SEAL weighs n-grams: log-odds or lm."""
    documents: float = 0.5
    """DSI: share of the examples that are of a document alone; without them it never sees most documents."""

    def run(self, lab: Lab) -> Outcome:
        """Search for every held-out query."""
        unknown = set(self.models) - set(MODELS)
        if unknown:
            raise NeedsError(f"{sorted(unknown)[0]!r} is not a model of gr-encodings, which has {', '.join(MODELS)}")
        shop = Workshop(lab, self.seeds)
        outcome = Outcome(notes=[measured_on([shop.pool])])
        found: dict[str, list[dict[str, NDArray[np.float64]]]] = {}
        for name in self.models:
            for model in shop.trained(self._kind(name)):
                if name.startswith("T5-ColBERT"):
                    run = _vectors(shop, model, through_index=name.endswith("-index"))
                else:
                    run = self._decode(shop, model)
                scores = evaluate(run, {query: shop.pool.qrels[query] for query in shop.pool.queries}, MEASURES)
                found.setdefault(name, []).append({measure: scores.values(measure) for measure in MEASURES})
        self._show(found, outcome)
        outcome.notes += [
            f"Every model has as many steps; DSI's examples are of documents alone to {self.documents:.0%}, the others "
            "as the recipe says. T5-ColBERT scores every document, or searches an index; the others decode under the "
            f"constraint that the identifier exists, {self.beams} beams. Embeddings of documents for DSI's digits, "
            "additive table of PAWA: as the recipe says.",
            f"SEAL's n-grams weigh by {self.scoring}. Variants of one title are one hypothesis of NP-decoding.",
        ]
        return outcome

    def _kind(self, name: str) -> Kind:
        digits = {"identifiers.method": "dsi", "examples.documents": self.documents}
        titles = {"identifiers.method": "genre"}
        return {
            "T5-ColBERT": Q_TO_D,
            "T5-ColBERT-index": Q_TO_D,
            "T5-SEAL": SEAL,
            "DSI": Kind("dsi", digits),
            "DSI-PAWA": Kind("dsi-pawa", {**digits, "identifiers.pawa": True}),
            "T5-GENRE": Kind("genre", titles),
            "T5-GENRE-NP-BASE": Kind("genre-np-base", {**titles, "identifiers.np": "base"}),
            "T5-GENRE-NP-ASYNC": Kind("genre-np-async", {**titles, "identifiers.np": "async"}),
        }[name]

    def _decode(self, shop: Workshop, model: Trained) -> dict[str, dict[str, float]]:
        from weft.generative.retriever import Retriever
        from weft.generative.store import GenerativeIndex

        loaded = shop.generative(model)
        documents = [Document(d.id, d.full_text, {"title": d.title}) for d in shop.titled.values()]
        with tempfile.TemporaryDirectory(prefix="weft-generative-") as folder:
            index = GenerativeIndex.create(Path(folder) / "index", documents, loaded)
            with Retriever(index, loaded) as retriever:
                asked = list(shop.pool.queries.values())
                scoring = self.scoring if index.method == "seal" else None
                rankings = retriever.search(asked, TOP, beams=self.beams, scoring=scoring)
        pairs = zip(shop.pool.queries, rankings, strict=True)
        return {query: {result.id: result.score for result in ranking} for query, ranking in pairs}

    def _show(self, found: dict[str, list[dict[str, NDArray[np.float64]]]], outcome: Outcome) -> None:
        cells = {name: [over_seeds([values[m] for values in seeds]) for m in MEASURES] for name, seeds in found.items()}
        rows: list[list[Cell]] = [[name, len(found[name]), *values] for name, values in cells.items()]
        title = "Retrieval end to end"
        outcome.tables.append(Table("table-6", title, ["model", "models", *MEASURES], rows, PER_SEED, best="columns"))
        with drawing("table-6", f"{title}, held-out queries over the whole corpus.", outcome.plots) as axes:
            series: dict[str, list[Interval | None]] = {
                measure: [values[place] for values in cells.values()] for place, measure in enumerate(MEASURES)
            }
            bars(axes[0, 0], list(cells), series, xlabel="model", ylabel="mean over queries")
            axes[0, 0].set_ylim(0, 1.05)  # intervals over few seeds may reach beyond what is possible
        for name, values in cells.items():
            outcome.findings.append(f"{name}: R@1 {values[0].value:.3f}, R@10 {values[1].value:.3f}.")
        for plain, better in (
            ("DSI", "DSI-PAWA"),
            ("T5-GENRE", "T5-GENRE-NP-BASE"),
            ("T5-GENRE", "T5-GENRE-NP-ASYNC"),
            ("T5-ColBERT", "T5-ColBERT-index"),
        ):
            if plain in found and better in found:
                first, second = (np.mean([v["R@1"] for v in found[name]], axis=0) for name in (plain, better))
                gain = points(difference([first], [second]))
                outcome.findings.append(f"R@1 of {better} less that of {plain}: {gain} points.")


def _vectors(shop: Workshop, model: Trained, *, through_index: bool) -> dict[str, dict[str, float]]:
    """Search with T5-ColBERT, through an index or scoring every document."""
    from weft.generative.reranking import VectorReader

    reader = VectorReader(shop.multivector(model), shop.pool.documents)
    asked = {query: reader.query(text) for query, text in shop.pool.queries.items()}
    names = list(shop.pool.documents)
    if not through_index:
        run = {}
        for query, tokens in asked.items():
            scores = score_all(Encoded(tokens, reader.documents), reader.model.alignment)[0]
            best = np.argsort(-scores, kind="stable")[:TOP]
            run[query] = {names[i]: float(scores[i]) for i in best}
        return run
    dim = int(reader.model.settings["dim"])
    with (
        tempfile.TemporaryDirectory(prefix="weft-generative-") as folder,
        Index.create(Path(folder) / "colbert.weft", dim, merge="off") as index,
    ):
        index.add([Document(name) for name in names], reader.documents)
        index.compact()
        options: dict[str, Any] = {"alignment": reader.model.alignment, "hits": False}
        found = {query: index.search(tokens, TOP, **options)[0] for query, tokens in asked.items()}
    return {query: {result.id: result.score for result in ranking} for query, ranking in found.items()}
