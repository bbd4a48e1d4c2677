"""`Explanation`: a score taken apart, rel(Q, D) = Σ_ij A_ij · S_ij / Z, as a search summed it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.errors import invalid
from weft.types import Ranking


@dataclass(frozen=True, eq=False)
class Reading:
    """A text as its model reads it, m tokens; what is not known is None.

    Attributes
    ----------
    text : str
    n_tokens : int
    spans : array of int, shape (m, 2), or None
        Characters ``start:stop`` of each token, (-1, -1) for those that are not of the text.
    pieces : sequence of str, or None
        What the vocabulary calls each token.
    salience : array of float, shape (m,), or None
    """

    text: str
    n_tokens: int
    spans: NDArray[np.int32] | None = None
    pieces: Sequence[str] | None = None
    salience: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        for name in ("spans", "pieces", "salience"):
            value = getattr(self, name)
            if value is not None and len(value) != self.n_tokens:
                raise invalid(name, "Reading", f"one for each of the {self.n_tokens} tokens", len(value))


@dataclass(frozen=True)
class Token:
    """A token of either side: what to call it, where it stands, how salient it is and what it adds to the score."""

    text: str
    span: tuple[int, int] | None
    salience: float | None
    contribution: float


@dataclass(frozen=True)
class Side:
    """The query, or the document."""

    text: str
    tokens: tuple[Token, ...]

    @property
    def placed(self) -> bool:
        """Whether it is known where in the text the tokens stand."""
        return any(token.span is not None for token in self.tokens)


@dataclass(frozen=True)
class Pair:
    """An aligned pair: positions of both tokens (`document` is None where the similarity was imputed), S, A, A·S/Z."""

    query: int
    document: int | None
    similarity: float
    weight: float
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """Why a document has its score for a query.

    The contributions of the pairs sum to the score; so do those of the query's tokens. Those of the document's tokens
    lack what was imputed, which belongs to no token.
    """

    id: str
    rank: int | None
    """From 1; None if the document was asked for by its id."""
    score: float
    z: float
    alignment: str
    query: Side
    document: Side
    pairs: tuple[Pair, ...]
    parts: tuple[tuple[str, float], ...] = ()
    """The parts of a hybrid search's score, by name; empty for other searches. `score` is the one by token vectors."""

    @cached_property
    def blended(self) -> str:
        """The score of a hybrid search written as a sum; empty for other searches."""
        shown = " + ".join(f"{value:.2f} {name}" for name, value in self.parts if value)
        return f"{sum(value for _, value in self.parts):.4f} = {shown}" if self.parts else ""

    @cached_property
    def total(self) -> float:
        """The sum of all contributions: the score, up to rounding."""
        return math.fsum(pair.contribution for pair in self.pairs)

    @cached_property
    def imputed(self) -> tuple[Pair, ...]:
        """Pairs whose similarity was imputed (XTR eq. 4)."""
        return tuple(pair for pair in self.pairs if pair.document is None)

    def strongest(self, number: int | None = None) -> list[Pair]:
        """Return the pairs that add the most, largest first."""
        return sorted(self.pairs, key=lambda pair: -pair.contribution)[:number]

    def __str__(self) -> str:
        """Return it as the terminal shows it, without colours."""
        from weft.explain.terminal import to_text

        return to_text(self)


def explain(
    ranking: Ranking,
    position: int,
    *,
    query: Reading,
    document: Reading,
    alignment: object,
    rank: int | None = None,
) -> Explanation:
    """Take one score of a ranking apart.

    Parameters
    ----------
    ranking : Ranking
        With hits, as `Index.search` returns it.
    position : int
        Which of its results.
    query, document : Reading
        The two texts; positions in the hits are positions in these.
    alignment : Alignment or str
        What the search aligned with, to be shown.
    rank : int, optional
        The rank to show, from 1.

    Examples
    --------
    >>> import tempfile
    >>> from weft.search import Index
    >>> from weft.types import TokenVectors
    >>> with Index.create(tempfile.mkdtemp(), dim=2) as index:
    ...     index.add(["d"], TokenVectors.from_list([[[1.0, 0.0], [0.0, 0.5]]]))
    ...     (ranking,) = index.search([[1.0, 0.0], [0.0, 1.0]])
    >>> query, document = Reading("red planet", 2, pieces=["red", "planet"]), Reading("", 2, pieces=["rouge", "mars"])
    >>> found = explain(ranking, 0, query=query, document=document, alignment="sum-of-max", rank=1)
    >>> Q, D = found.query.tokens, found.document.tokens
    >>> [(Q[p.query].text, D[p.document].text, p.contribution) for p in found.pairs]
    [('red', 'rouge', 1.0), ('planet', 'mars', 0.5)]
    >>> found.total == found.score
    True
    """
    contributions = ranking.contributions(position)
    assert ranking.hits is not None
    assert ranking.z is not None
    hits = ranking.hits[position]
    for name, reading, tokens in (("query", query, hits.query_token), ("document", document, hits.document_token)):
        if tokens.max(initial=-1) >= reading.n_tokens:
            raise invalid(name, "explain", f"read as at least {int(tokens.max()) + 1} tokens", reading.n_tokens)
    weights = np.ones(len(hits)) if hits.weight is None else hits.weight
    columns = (hits.query_token, hits.document_token, hits.similarity, weights, contributions)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    pairs = tuple(Pair(i, j if j >= 0 else None, s, a, c) for i, j, s, a, c in rows)
    real = hits.document_token >= 0
    per_query, per_document = np.zeros(query.n_tokens), np.zeros(document.n_tokens)
    np.add.at(per_query, hits.query_token, contributions)
    np.add.at(per_document, hits.document_token[real], contributions[real])
    result = ranking[position]
    return Explanation(
        result.id,
        rank,
        result.score,
        float(ranking.z[position]),
        str(alignment),
        _side(query, per_query),
        _side(document, per_document),
        pairs,
    )


def _side(reading: Reading, contributions: NDArray[np.float64]) -> Side:
    tokens = []
    for i in range(reading.n_tokens):
        span = None
        if reading.spans is not None and 0 <= reading.spans[i, 0] < reading.spans[i, 1] <= len(reading.text):
            span = (int(reading.spans[i, 0]), int(reading.spans[i, 1]))
        piece = f"#{i}" if reading.pieces is None else reading.pieces[i]
        tokens.append(
            Token(
                piece if span is None else reading.text[slice(*span)],
                span,
                None if reading.salience is None else float(reading.salience[i]),
                float(contributions[i]),
            )
        )
    return Side(reading.text, tuple(tokens))
