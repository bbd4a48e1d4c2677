"""What is at rank k of a token retrieval: tokens of gold documents, tokens of the same word."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.analysis.base import Experiment, NeedsError, Outcome
from weft.analysis.estimates import Interval, curve, difference
from weft.analysis.experiments.common import measured_on, points
from weft.analysis.lab import Lab, Model
from weft.analysis.plots import drawing, lines
from weft.analysis.variants import compared
from weft.evaluation.pools import Encoded, Pool
from weft.evaluation.scoring import Owners, top_tokens
from weft.evaluation.tables import Cell, Table

MARKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Ranks of the table."""
POINTS = 24
"""Ranks of the plot, evenly on a logarithmic axis; each stands for all ranks since the one before."""
PANELS = 6


@dataclass(frozen=True)
class TokenRanks(Experiment):
    """Base of both: the share of retrieved tokens at each rank that have some property."""

    ranks: int = 1000
    """How deep to look."""

    what: ClassVar[str]
    """The property, as an axis label."""

    def run(self, lab: Lab) -> Outcome:
        """Measure the models that are compared."""
        models, pools = compared(lab)
        outcome = Outcome(notes=[measured_on(pools)])
        least = min(lab.encoded(model, pool).documents.n_tokens for model in models for pool in pools)
        ends = points_of(min(self.ranks, least))
        marks = [k for k in MARKS if k <= ends[-1]]
        found: dict[tuple[str, str], NDArray[np.float64]] = {}
        at: dict[tuple[str, str], NDArray[np.float64]] = {}
        chance: dict[tuple[str, str], float] = {}
        for model in models:
            for pool in pools:
                encoded = lab.encoded(model, pool)
                values, of_chance = self._shares(model, pool, encoded, int(ends[-1]))
                edges = np.concatenate([[0], ends])
                binned = [values[:, a:b].mean(axis=1) for a, b in pairwise(edges)]
                found[model.name, pool.name] = np.stack(binned, axis=1)
                at[model.name, pool.name] = values[:, [k - 1 for k in marks]]
                chance[model.name, pool.name] = of_chance
        self._table(models, pools, marks, at, chance, outcome)
        self._draw(models, pools, ends, found, chance, outcome)
        self._say(models, pools, marks, at, outcome)
        outcome.notes.append(
            "Special tokens of queries ([CLS], markers, expansions) are left out. A query counts as the mean over its "
            "tokens, a collection as the mean over its queries. Chance: the share among all tokens of the collection."
        )
        return outcome

    @abstractmethod
    def _of_query(self, pool: Pool, encoded: Encoded, number: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which retrieved tokens (n, k), rows of the documents' values, have the property."""

    @abstractmethod
    def _by_chance(self, pool: Pool, encoded: Encoded, number: int, tokens: NDArray[np.int64]) -> float:
        """Return the share of all document tokens that have it, the mean over these query tokens."""

    def _shares(self, model: Model, pool: Pool, encoded: Encoded, k: int) -> tuple[NDArray[np.float64], float]:
        """Return the share at each rank for each query (queries, k), and by chance."""
        if encoded.queries.token_ids is None or encoded.documents.token_ids is None:
            raise NeedsError(f"{model.name} gives no vocabulary ids, which {self.name} compares")
        rows_of, chances = [], []
        for number in range(len(encoded.queries)):
            own = real_tokens(encoded, number)
            if not len(own):  # an empty query retrieves nothing
                continue
            rows, _ = top_tokens(encoded.queries[number][own], encoded.documents, k)
            rows_of.append(self._of_query(pool, encoded, number, rows).mean(axis=0))
            chances.append(self._by_chance(pool, encoded, number, own))
        return np.array(rows_of), float(np.mean(chances))

    def _table(
        self,
        models: list[Model],
        pools: list[Pool],
        marks: list[int],
        at: dict[tuple[str, str], NDArray[np.float64]],
        chance: dict[tuple[str, str], float],
        outcome: Outcome,
    ) -> None:
        rows: list[list[Cell]] = []
        for pool in pools:
            for model in models:
                key = (model.name, pool.name)
                rows.append([pool.name, model.name, *curve([at[key]]), chance[key]])
        if len(pools) > 1:
            for model in models:
                both = [at[model.name, pool.name] for pool in pools]
                mean = float(np.mean([chance[model.name, pool.name] for pool in pools]))
                rows.append(["average", model.name, *curve(both), mean])
        columns = ["collection", "model", *(f"rank {k:,}" for k in marks), "chance"]
        note = "± is half of the 95 % bootstrap interval over queries."
        outcome.tables.append(Table(self.name, f"{self.what}, by rank", columns, rows, note))

    def _draw(
        self,
        models: list[Model],
        pools: list[Pool],
        ends: NDArray[np.int64],
        found: dict[tuple[str, str], NDArray[np.float64]],
        chance: dict[tuple[str, str], float],
        outcome: Outcome,
    ) -> None:
        x = [float(end) for end in ends]
        panels: list[tuple[str, list[str]]] = [(pool.name, [pool.name]) for pool in pools[:PANELS]]
        if len(pools) > 1:
            panels = [(f"mean of {len(pools)} collections", [pool.name for pool in pools]), *panels[: PANELS - 1]]
        across = min(len(panels), 3)
        caption = f"{self.what} at each rank of the token retrieval; 95 % bands, dotted: chance."
        size = (6.2, 4.2) if len(panels) == 1 else (4.6, 3.5)
        rows = -(-len(panels) // across)
        with drawing(self.name, caption, outcome.plots, columns=across, rows=rows, size=size) as axes:
            for ax, (title, names) in zip(axes.ravel(), panels, strict=False):
                series: dict[str, list[Interval]] = {m.name: curve([found[m.name, n] for n in names]) for m in models}
                lines(
                    ax,
                    x,
                    series,
                    xlabel="rank k of the retrieved token",
                    ylabel=self.what,
                    title=title,
                    log=True,
                    marked=False,
                )
                level = float(np.mean([chance[models[0].name, name] for name in names]))
                ax.axhline(level, color="#555555", linewidth=1, linestyle=":")
                ax.set_ylim(bottom=0)
            for ax in axes.ravel()[len(panels) :]:
                ax.set_axis_off()

    def _say(
        self,
        models: list[Model],
        pools: list[Pool],
        marks: list[int],
        at: dict[tuple[str, str], NDArray[np.float64]],
        outcome: Outcome,
    ) -> None:
        for model in models:
            values = curve([at[model.name, pool.name] for pool in pools])
            said = ", ".join(
                f"{v.value:.3f} at rank {k:,}" for k, v in zip(marks, values, strict=True) if k in (1, 10, 100, 1000)
            )
            outcome.findings.append(f"{model.name}: {self.what[0].lower()}{self.what[1:]} is {said}.")
        if len(models) > 1:
            first, last = models[0], models[-1]
            for i, k in enumerate(marks):
                if k in (1, 10, 100):
                    pairs = [(at[first.name, p.name][:, i], at[last.name, p.name][:, i]) for p in pools]
                    if any(len(a) != len(b) for a, b in pairs):
                        continue
                    gain = difference([a for a, _ in pairs], [b for _, b in pairs])
                    outcome.findings.append(f"{last.name} against {first.name} at rank {k}: {points(gain)} points.")


@dataclass(frozen=True)
class GoldTokens(TokenRanks):
    """Tokens of relevant documents."""

    name: ClassVar[str] = "gold-tokens"
    title: ClassVar[str] = "Gold tokens by rank"
    reproduces: ClassVar[str] = "XTR figure 4 (top)"
    what: ClassVar[str] = "Probability of a token of a gold document"
    paper: ClassVar[str] = (
        "On MS MARCO, ArguAna, TREC-COVID and others a token retrieved by XTR comes from a gold document more "
        "often than one retrieved by a ColBERT of the same size, at every rank up to 1,000: its objective "
        "retrieves tokens from relevant contexts."
    )
    quick: ClassVar[dict[str, Any]] = {}

    def _of_query(self, pool: Pool, encoded: Encoded, number: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        gold: NDArray[np.bool_] = self._gold(pool, number)[Owners(encoded.documents).document[rows]]
        return gold

    def _by_chance(self, pool: Pool, encoded: Encoded, number: int, tokens: NDArray[np.int64]) -> float:  # noqa: ARG002
        lengths = encoded.documents.lengths
        return float(lengths[self._gold(pool, number)].sum() / max(lengths.sum(), 1))

    def _gold(self, pool: Pool, number: int) -> NDArray[np.bool_]:
        query = list(pool.queries)[number]
        return np.array([pool.qrels[query].get(name, 0) > 0 for name in pool.documents])


@dataclass(frozen=True)
class LexicalTokens(TokenRanks):
    """Tokens with the vocabulary id of the query token."""

    name: ClassVar[str] = "lexical-tokens"
    title: ClassVar[str] = "Lexically identical tokens by rank"
    reproduces: ClassVar[str] = "XTR figure 4 (bottom)"
    what: ClassVar[str] = "Probability of the query token's own word"
    paper: ClassVar[str] = (
        "A ColBERT retrieves the same word again with a very high probability at all ranks and on all collections. "
        "XTR relies less on it, and still retrieves enough identical tokens for entities."
    )
    quick: ClassVar[dict[str, Any]] = {}

    def _of_query(self, pool: Pool, encoded: Encoded, number: int, rows: NDArray[np.int64]) -> NDArray[np.bool_]:  # noqa: ARG002
        assert encoded.documents.token_ids is not None
        own = query_ids(encoded, number)[real_tokens(encoded, number)]
        same: NDArray[np.bool_] = encoded.documents.token_ids[rows] == own[:, None]
        return same

    def _by_chance(self, pool: Pool, encoded: Encoded, number: int, tokens: NDArray[np.int64]) -> float:  # noqa: ARG002
        assert encoded.documents.token_ids is not None
        own = query_ids(encoded, number)[tokens]
        found = np.bincount(encoded.documents.token_ids, minlength=int(own.max()) + 1)
        return float(found[own].mean() / max(encoded.documents.n_tokens, 1))


def real_tokens(encoded: Encoded, number: int) -> NDArray[np.int64]:
    """Return which tokens of a query are part of its text; all of them if that is not known."""
    a, b = encoded.queries.offsets[number], encoded.queries.offsets[number + 1]
    if encoded.queries.spans is None:
        return np.arange(b - a)
    return np.flatnonzero(encoded.queries.spans[a:b, 0] >= 0)


def query_ids(encoded: Encoded, number: int) -> NDArray[np.int32]:
    """Return the vocabulary ids of a query's tokens."""
    assert encoded.queries.token_ids is not None
    a, b = encoded.queries.offsets[number], encoded.queries.offsets[number + 1]
    return encoded.queries.token_ids[a:b]


def points_of(last: int) -> NDArray[np.int64]:
    """Return ranks from 1 to `last`, evenly on a logarithmic axis.

    Examples
    --------
    >>> points_of(10).tolist()
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    """
    return np.unique(np.round(np.geomspace(1, last, POINTS)).astype(np.int64))
