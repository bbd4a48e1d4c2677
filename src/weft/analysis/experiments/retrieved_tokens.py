"""How many document tokens are ever retrieved, which is why pruning is possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.analysis.base import Experiment, Outcome
from weft.analysis.estimates import Interval
from weft.analysis.experiments.common import measured_on
from weft.analysis.lab import Lab, Model
from weft.analysis.plots import drawing, lines
from weft.evaluation.baselines import slug
from weft.evaluation.pools import Encoded
from weft.evaluation.scoring import top_tokens
from weft.evaluation.tables import Cell, Table


@dataclass(frozen=True)
class RetrievedTokens(Experiment):
    """Every token of every query retrieves its k′ best document tokens: which are ever retrieved."""

    name: ClassVar[str] = "retrieved-tokens"
    title: ClassVar[str] = "Document tokens that any query retrieves"
    reproduces: ClassVar[str] = "ALIGNER §3 (12.8 % of document tokens)"
    paper: ClassVar[str] = (
        "Of the 2,000 most retrieved documents only 12.8 % of the tokens are retrieved by at least one query: "
        "most tokens need not be stored."
    )
    quick: ClassVar[dict[str, Any]] = {"k_prime": (10, 100), "documents": 50}

    k_prime: tuple[int, ...] = (10, 100, 1000)
    documents: int = 2000
    """Documents that are retrieved most, by the tokens of them that are retrieved."""

    def run(self, lab: Lab) -> Outcome:
        """Measure every model."""
        outcome = Outcome(notes=[measured_on(lab.pools)])
        for model in lab.models:
            self._measure(lab, model, outcome)
        outcome.notes.append(
            "The share depends on how many queries there are: with more of them more tokens are retrieved by one. Most "
            f"retrieved: the {self.documents:,} documents with the most retrievals, or all that were retrieved."
        )
        return outcome

    def _measure(self, lab: Lab, model: Model, outcome: Outcome) -> None:
        rows: list[list[Cell]] = []
        for pool in lab.pools:
            encoded = lab.encoded(model, pool)
            for k in self.k_prime:
                most, every = shares(encoded, k, self.documents)
                rows.append([pool.name, k, len(pool.queries), 100 * most, 100 * every])
        columns = ["collection", "k′", "queries", "of the most retrieved, %", "of all documents, %"]
        title = f"Document tokens that at least one token of a query retrieves, {model.name}"
        outcome.tables.append(Table(f"share-{slug(model.name)}", title, columns, rows))
        means = {k: float(np.mean([float(str(row[3])) for row in rows if row[1] == k])) for k in self.k_prime}
        caption = f"{model.name}: the share of tokens of the most retrieved documents that some query retrieves, by k′."
        with drawing(f"share-{slug(model.name)}", caption, outcome.plots) as axes:
            lines(
                axes[0, 0],
                list(map(float, means)),
                {"mean of collections": [Interval(value, value, value) for value in means.values()]},
                xlabel="k′",
                ylabel="tokens retrieved, %",
                log=True,
            )
        said = ", ".join(f"{value:.1f} % at k′ = {k}" for k, value in means.items())
        outcome.findings.append(f"{model.name}: of the most retrieved documents' tokens some query retrieves {said}.")


def shares(encoded: Encoded, k: int, documents: int) -> tuple[float, float]:
    """Return the share of tokens that some query token retrieves: of the most retrieved documents, and of all.

    Examples
    --------
    >>> from weft.types import TokenVectors
    >>> texts = TokenVectors.from_list([[[1.0, 0.0], [0.0, 1.0]], [[0.6, 0.8]]])
    >>> query = TokenVectors.from_list([[[1.0, 0.0]], [[1.0, 0.1]]])
    >>> shares(Encoded(query, texts), k=1, documents=1)
    (0.5, 0.3333333333333333)
    """
    tokens = encoded.documents
    hits: NDArray[np.int64] = np.zeros(tokens.n_tokens, np.int64)
    for number in range(len(encoded.queries)):
        found, _ = top_tokens(encoded.queries[number], tokens, min(k, tokens.n_tokens))
        np.add.at(hits, found.ravel(), 1)
    owner = np.repeat(np.arange(len(tokens)), tokens.lengths)
    by_document = np.bincount(owner, weights=hits, minlength=len(tokens))
    best = np.argsort(-by_document, kind="stable")[:documents]
    best = best[by_document[best] > 0]
    mine = np.isin(owner, best)
    retrieved = hits > 0
    return (float(retrieved[mine].mean()) if mine.any() else 0.0, float(retrieved.mean()) if len(hits) else 0.0)
