"""Relevance as a kernel: the identity, the bound, and whether the bound could rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.analysis.base import Experiment, Outcome
from weft.analysis.experiments.common import measured_on
from weft.analysis.generative import D_TO_Q, PER_SEED, SEAL, Workshop, over_seeds
from weft.analysis.lab import Lab
from weft.analysis.plots import drawing, finish, style
from weft.evaluation.tables import Cell, Table
from weft.generative.feature_kernel import elu, kernelise

if TYPE_CHECKING:
    from weft.generative.model import GenerativeModel
    from weft.generative.multivector import MultiVectorModel

BACKWARD, GR = "MVDR (q←d)", "GR, last layer"
FIELDS = ("relevance", "bound", "error", "positive", "holds")
Pairs = dict[str, NDArray[np.float64]]
"""Fields, a value for each pair (and head), in the order of the queries; `query` says whose."""


@dataclass(frozen=True)
class KernelExperiment(Experiment):
    """Lemma 5.2 on the vectors of trained models."""

    name: ClassVar[str] = "kernel"
    title: ClassVar[str] = "The relevance of generative retrieval as a kernel"
    reproduces: ClassVar[str] = "GR as MVDR Lemma 5.2"
    paper: ClassVar[str] = (
        "The relevance Σ S∘A with A = softmax(DᵀQ) can be written with a kernel, Σ tr(F(d)ᵀF(q)) / p, F(x) = xφ(x)ᵀ, "
        "φ = elu, and is bounded by a sum of products of a term of the document's and a term of the query's: it can be "
        "decomposed, approximately. Nothing is measured."
    )
    trains: ClassVar[bool] = True
    quick: ClassVar[dict[str, Any]] = {"seeds": (1,), "candidates": 8}

    seeds: tuple[int, ...] = (17, 18, 19)
    candidates: int = 20
    """Documents looked at for each query: the relevant ones and BM25's best."""

    def run(self, lab: Lab) -> Outcome:
        """Measure both kinds of models."""
        shop = Workshop(lab, self.seeds)
        names = {query: found[: self.candidates] for query, found in shop.candidates(self.candidates).items()}
        found = {
            BACKWARD: [self._vectors(shop, shop.multivector(m), names) for m in shop.trained(D_TO_Q)],
            GR: [self._attention(shop, shop.generative(m), names) for m in shop.trained(SEAL)],
        }
        outcome = Outcome(notes=[measured_on([shop.pool])])
        self._table(found, outcome)
        self._draw(found, outcome)
        outcome.notes += [
            "MVDR(q←d): the lemma's own setting, A = softmax(DᵀQ), vectors divided by √τ of its alignment. GR: Q, Ẽ, A "
            "of each head of the last layer; the lemma's identity holds for any A without zeros. φ is elu + 1, and elu "
            "for the share of kernels that are positive.",
            "The bound's p̂ are minima over both texts: it is a product of two sums, but not of things that could be "
            "computed for query and document apart. It is no approximation: only an upper bound.",
        ]
        return outcome

    def _vectors(self, shop: Workshop, model: MultiVectorModel, names: dict[str, list[str]]) -> Pairs:
        from weft.generative.reranking import VectorReader

        reader = VectorReader(model, shop.pool.documents)
        root = float(getattr(model.alignment, "temperature", 1.0)) ** 0.5
        rows = []
        for number, (query, text) in enumerate(shop.pool.queries.items()):
            Q = reader.query(text)[0] / root
            for name in names[query]:
                D = reader.document(name)[0] / root
                rows.append(_terms(number, Q, D, None, len(D)))
        return _columns(rows)

    def _attention(self, shop: Workshop, model: GenerativeModel, names: dict[str, list[str]]) -> Pairs:
        from weft.generative.reranking import SpanReader

        reader = SpanReader(model, shop.pool.documents, spans=1)
        rows = []
        for number, (query, text) in enumerate(shop.pool.queries.items()):
            traced, _ = reader.trace(text, names[query])
            last = traced.layers - 1
            A, D = traced.attention(last).numpy(), traced.document_vectors(last).numpy()
            for row, mask in enumerate(traced.mask.numpy()):
                for head in range(traced.heads):
                    of_pair = (traced.query[row].numpy(), D[row, head][mask], A[row, head][:, mask])
                    rows.append(_terms(number, *of_pair, int(mask.sum())))
        return _columns(rows)

    def _table(self, found: dict[str, list[Pairs]], outcome: Outcome) -> None:
        rows: list[list[Cell]] = []
        for name, seeds in found.items():
            ratio = over_seeds([np.log10(p["bound"] / np.maximum(np.abs(p["relevance"]), 1e-12)) for p in seeds])
            positive = over_seeds([p["positive"] for p in seeds])
            agreement = over_seeds([_agreement(p) for p in seeds])
            error = max(float(p["error"].max()) for p in seeds)
            holds = min(float(p["holds"].min()) for p in seeds)
            rows.append([name, f"{error:.1e}", "yes" if holds else "no", ratio, agreement, positive])
            outcome.findings.append(
                f"{name}: eq. 25 has a relative error up to {error:.1e}; the bound {'holds' if holds else 'fails'} "
                f"and is 10^{ratio.value:.1f} times the relevance on average; by it, candidates are ordered as by "
                f"relevance with a rank correlation of {agreement.value:.2f}. With elu {positive.value:.0%} of the "
                "kernels are positive, with elu + 1 all."
            )
        columns = ["model", "largest error of eq. 25", "bound holds", "log10(bound / |rel|)", "rank correlation"]
        columns.append("kernels > 0 with elu")
        outcome.tables.append(Table("kernel", "Lemma 5.2 on trained models", columns, rows, PER_SEED))

    def _draw(self, found: dict[str, list[Pairs]], outcome: Outcome) -> None:
        caption = (
            "The Cauchy–Schwarz bound of Lemma 5.2 against the relevance it bounds, a point for each pair (and head)."
        )
        with drawing("bound", caption, outcome.plots, columns=2, size=(4.8, 3.8)) as axes:
            for number, (ax, (name, seeds)) in enumerate(zip(axes[0], found.items(), strict=True)):
                look = {key: value for key, value in style(number).items() if key != "linestyle"}
                x, y = (np.concatenate([pairs[field] for pairs in seeds]) for field in ("relevance", "bound"))
                ax.plot(x, y, linestyle="", alpha=0.3, **look)
                ax.set_yscale("log")
                finish(ax, "relevance Σ S∘A / m", "bound / m", name)


def _terms(
    query: int, Q: NDArray[Any], D: NDArray[Any], A: NDArray[Any] | None, length: int
) -> tuple[float, float, float, float, float, float]:
    """Return (query, relevance, bound, error, share of positive kernels with elu, whether the bound holds)."""
    # An attention that underflowed to 0 has no p: the smallest number is taken instead.
    weights = None if A is None else np.maximum(A, np.finfo(np.float32).tiny)
    found = kernelise(Q, D, weights)
    scale = max(abs(found.relevance), 1e-12)
    error = abs(found.kernelised - found.relevance) / scale
    positive = kernelise(Q, D, weights, elu).positive
    holds = float(found.bound >= found.relevance - 1e-9 * scale)
    return query, found.relevance / length, found.bound / length, error, positive, holds


def _columns(rows: list[tuple[float, float, float, float, float, float]]) -> Pairs:
    return dict(zip(("query", *FIELDS), np.array(rows, np.float64).T, strict=True))


def _agreement(pairs: Pairs) -> NDArray[np.float64]:
    """Spearman's correlation of bound and relevance among a query's pairs, a value for each query."""
    from scipy.stats import rankdata

    found = []
    for query in np.unique(pairs["query"]):
        mine = pairs["query"] == query
        a, b = rankdata(pairs["relevance"][mine]), rankdata(pairs["bound"][mine])
        found.append(0.0 if a.std() == 0 or b.std() == 0 else float(np.corrcoef(a, b)[0, 1]))
    return np.array(found)
