"""The tokens that a query token retrieves, with their contexts, for any query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.analysis.base import Experiment, NeedsError, Outcome
from weft.analysis.experiments.common import measured_on
from weft.analysis.experiments.pruning import idf
from weft.analysis.experiments.token_ranks import query_ids, real_tokens
from weft.analysis.lab import Lab, Model
from weft.analysis.plots import drawing, finish, plain_ticks, style
from weft.analysis.variants import compared
from weft.evaluation.baselines import slug
from weft.evaluation.pools import Encoded, Pool
from weft.evaluation.scoring import Owners, top_tokens
from weft.evaluation.tables import Cell, Table

CONTEXT = 90
"""Characters to either side of a token."""
DEPTH = 100
"""The number of retrieved tokens that the shares are of, as in the paper."""


@dataclass(frozen=True)
class TokenTable(Experiment):
    """Rank, token, context and relevance, as the paper's tables have them."""

    name: ClassVar[str] = "token-table"
    title: ClassVar[str] = "Retrieved tokens in their contexts"
    reproduces: ClassVar[str] = "XTR tables 6 and E.1 to E.5"
    paper: ClassVar[str] = (
        "For “usual” in “what is the usual pay for stock associates at michael?” a ColBERT's best 100 tokens are "
        "all “usual”, none from a passage about such pay; of XTR's 8 % are, the others say “average” and the like, "
        "and a relevant passage is among the first five. The further examples show the same: as many or fewer "
        "identical words, in better contexts."
    )
    quick: ClassVar[dict[str, Any]] = {"examples": 2}

    query: str = ""
    """Any text; by default some queries of the collections."""
    token: str = ""
    """A word of the query; by default its rarest."""
    ranks: tuple[int, ...] = (1, 2, 5, 50, 100)
    examples: int = 3
    """Queries shown, if none is given."""

    def run(self, lab: Lab) -> Outcome:
        """Show the models that are compared, side by side."""
        models, pools = compared(lab)
        outcome = Outcome(notes=[measured_on(pools)])
        for number, (pool, query_id, text) in enumerate(self._asked(pools), 1):
            self._show(lab, models, pool, query_id, text, number, outcome)
        outcome.notes.append(
            "Relevance is the collection's own judgement of the document; – where nobody judged the query."
        )
        return outcome

    def _asked(self, pools: list[Pool]) -> list[tuple[Pool, str | None, str]]:
        """Return pools with a query each, its id if it is judged there, and its text."""
        if self.query:
            return [(pool, _matching(pool, self.query), self.query) for pool in pools]
        asked: list[tuple[Pool, str | None, str]] = []
        for i in range(self.examples):  # one of each collection in turn
            pool, number = pools[i % len(pools)], i // len(pools)
            asked += [(pool, name, text) for name, text in list(pool.queries.items())[number : number + 1]]
        return asked

    def _show(
        self, lab: Lab, models: list[Model], pool: Pool, query_id: str | None, text: str, number: int, outcome: Outcome
    ) -> None:
        curves: dict[str, tuple[NDArray[np.float32], NDArray[np.bool_]]] = {}
        for model in models:
            encoded = lab.encoded(model, pool)
            encoded = encoded._replace(queries=model.encoder.encode_query([text], truncation="ignore"))
            place = self._place(model, encoded, text)
            chosen = surface(model, encoded, text, place)
            query = encoded.queries[0][place : place + 1]
            rows, similarity = top_tokens(
                query, encoded.documents, min(max(DEPTH, *self.ranks), encoded.documents.n_tokens)
            )
            ids = encoded.documents.token_ids
            assert ids is not None
            documents = Owners(encoded.documents).document[rows[0]]
            names = list(pool.documents)
            gold = np.zeros(len(documents), dtype=bool)
            if query_id is not None:
                gold = np.array([pool.qrels[query_id].get(names[d], 0) > 0 for d in documents])
            same = ids[rows[0][:DEPTH]] == query_ids(encoded, 0)[place]
            table: list[list[Cell]] = []
            for rank in self.ranks:
                if rank <= len(documents):
                    token, context = in_context(model, pool, encoded, int(rows[0, rank - 1]), int(documents[rank - 1]))
                    relevant = "–" if query_id is None else "yes" if gold[rank - 1] else "no"
                    of = [rank, token, context, float(similarity[0, rank - 1]), names[documents[rank - 1]], relevant]
                    table.append(of)
            said = f"{same.mean():.0%} of the first {len(same)} tokens are lexically identical"
            if query_id is not None:
                said += f", {gold[:DEPTH].mean():.0%} come from relevant documents"
            outcome.tables.append(
                Table(
                    f"tokens-{number}-{slug(model.name)}",
                    f"{model.name}: “{chosen}” in “{text}” ({pool.name})",
                    ["rank", "token", "context", "similarity", "document", "relevant"],
                    table,
                    said + ".",
                    wide=frozenset({"context"}),
                )
            )
            outcome.findings.append(f"{model.name}, “{chosen}” in “{text}”: {said}.")
            curves[f"{model.name}, “{chosen}”"] = (similarity[0, :DEPTH], gold[:DEPTH])
        caption = f"“{text}”: similarity of retrieved tokens by rank; rings are tokens of relevant documents."
        with drawing(f"similarity-{number}", caption, outcome.plots, size=(6.6, 3.8)) as axes:
            ax = axes[0, 0]
            for i, (name, (values, gold)) in enumerate(curves.items()):
                look = style(i, marked=False)
                ranks = np.arange(1, len(values) + 1)
                ax.plot(ranks, values, label=name, **look)
                ax.plot(ranks[gold], values[gold], "o", mfc="none", mec=look["color"], markersize=6)
            ax.set_xscale("log")
            plain_ticks(ax, [float(rank) for rank in range(1, DEPTH + 1)])
            finish(ax, "rank of the retrieved token", "similarity (cosine)", f"“{text[:60]}”")

    def _place(self, model: Model, encoded: Encoded, text: str) -> int:
        """Return which token of the query to show: the one asked for, or the rarest."""
        own = real_tokens(encoded, 0)
        if not len(own):
            raise NeedsError(f"the query {text!r} has no words for {model.name}")
        if self.token:
            wanted = [i for i in own if surface(model, encoded, text, int(i)).lower() == self.token.lower()]
            if not wanted:
                words = ", ".join(surface(model, encoded, text, int(i)) for i in own)
                raise NeedsError(f"{self.token!r} is not a token of {text!r} for {model.name}: it has {words}")
            return int(wanted[0])
        rare = idf(encoded.queries, encoded.documents)[own]
        known = encoded.documents.token_ids
        assert known is not None
        there = np.isin(query_ids(encoded, 0)[own], known)
        return int(own[np.argmax(np.where(there, rare, -1))])


def surface(model: Model, encoded: Encoded, text: str, place: int) -> str:
    """Return a token of the query as it is written in its text."""
    spans = encoded.queries.spans
    if spans is None:
        return model.encoder.token_label(query_ids(encoded, 0)[place])
    start, stop = spans[place]
    return text[start:stop]


def in_context(model: Model, pool: Pool, encoded: Encoded, row: int, document: int) -> tuple[str, str]:
    """Return a document token and the text around it, the token between ‹ and ›."""
    text = list(pool.documents.values())[document]
    spans, ids = encoded.documents.spans, encoded.documents.token_ids
    if spans is None or spans[row, 0] < 0:
        token = "?" if ids is None else model.encoder.token_label(ids[row])
        return token, _one_line(text[: 2 * CONTEXT]) + (" …" if len(text) > 2 * CONTEXT else "")
    start, stop = (int(x) for x in spans[row])
    before, after = text[max(start - CONTEXT, 0) : start], text[stop : stop + CONTEXT]
    if start > CONTEXT:
        before = "… " + before.partition(" ")[2]
    if stop + CONTEXT < len(text):
        after = after.rpartition(" ")[0] + " …"
    return text[start:stop], _one_line(f"{before}‹{text[start:stop]}›{after}")


def _matching(pool: Pool, text: str) -> str | None:
    """Return the judged query with this text, if there is one."""
    return next((name for name, query in pool.queries.items() if query.strip().lower() == text.strip().lower()), None)


def _one_line(text: str) -> str:
    return " ".join(text.split())
