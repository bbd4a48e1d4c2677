"""Fusing rankings: a blend that leans on token vectors, reciprocal ranks, or scores brought to one scale."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.checks import check_count
from weft.errors import invalid
from weft.types import Ranking

BLEND = "blend"
FUSIONS = (BLEND, "rrf", "scores")
"""Ways to fuse; the first is the default."""
BLEND_WEIGHTS = (1.0, 0.5)
"""What token vectors and BM25 weigh in a blend, chosen on the dev splits of six collections (benchmarks/hybrid.py)."""
MOST_WEIGHT = 1e6
"""The largest weight: scores must stay finite."""
RRF_CONSTANT = 60
"""Of Cormack, Clarke and Büttcher (2009)."""


def fuse(
    rankings: Sequence[Ranking], k: int = 10, *, method: str = "rrf", weights: Sequence[float] | None = None
) -> Ranking:
    """Merge rankings of one query into one.

    Parameters
    ----------
    rankings : sequence of Ranking
    k : int
        The maximum number of documents.
    method : str
        ``"rrf"``: Σ w / (60 + rank), the rank counted from 1. ``"scores"``: Σ w · s, with each ranking's scores
        brought to 0 … 1 by its lowest and highest. Where a ranking does not have a document it adds nothing.
    weights : sequence of float, optional
        One for each ranking; all 1 by default.

    Examples
    --------
    >>> fused = fuse([Ranking(["a", "b"], [9.0, 8.0]), Ranking(["b", "c"], [3.0, 1.0])], k=2)
    >>> [(result.id, round(result.score, 4)) for result in fused]
    [('b', 0.0325), ('a', 0.0164)]
    """
    check_count(k, "k", "fuse")
    if method not in FUSIONS[1:]:
        raise invalid("fusion", "fuse", f"one of {FUSIONS[1:]} (see also blend)", method)
    factors = checked_weights([1.0] * len(rankings) if weights is None else weights, len(rankings))
    totals: dict[str, float] = {}
    for ranking, weight in zip(rankings, factors, strict=True):
        for result, worth in zip(ranking, _worths(ranking, method), strict=True):
            totals[result.id] = totals.get(result.id, 0.0) + weight * float(worth)
    # Sorting is stable: of equals the one that an earlier ranking has first leads.
    best = sorted(totals, key=lambda id: -totals[id])[:k]  # noqa: A006
    return Ranking(best, np.array([totals[id] for id in best], dtype=np.float32))  # noqa: A001


class Parts(NamedTuple):
    """What a blended score is made of; the score is their sum."""

    vectors: float
    words: float
    exact: float


def blend(
    vectors: Ranking,
    words: Ranking,
    others: Mapping[str, float] | None = None,
    exact: Collection[str] = (),
    k: int = 10,
    *,
    weights: Sequence[float] | None = None,
    most: float | None = None,
) -> tuple[Ranking, dict[str, Parts]]:
    """Blend a ranking by token vectors with one by BM25, and say what each score is made of.

    Parameters
    ----------
    vectors, words : Ranking
    others : {id: score}, optional
        Scores by token vectors of documents that only BM25 found.
    exact : collection of str, optional
        Documents that hold the exact strings of the query, such as a part number. They gain both weights together, as
        much as the best document could have without them, and so come first.
    k : int
        The maximum number of documents.
    weights : (float, float), optional
        Of token vectors and of BM25; `BLEND_WEIGHTS`.
    most : float, optional
        The most that BM25 could give (`weft.search.lexical.most_score`): a document that has only a few common words
        of the query is then worth little, even if no other has more. By default what its best document has.

    Examples
    --------
    >>> best, parts = blend(Ranking(["a", "b"], [9.0, 5.0]), Ranking(["b", "c"], [3.0, 1.5]), exact={"c"}, k=2)
    >>> [(result.id, round(result.score, 2)) for result in best], parts["c"]
    ([('c', 1.75), ('a', 1.0)], Parts(vectors=0.0, words=0.25, exact=1.5))
    """
    check_count(k, "k", "blend")
    of_vectors, of_words = checked_weights(BLEND_WEIGHTS if weights is None else weights, 2)
    of_exact = of_vectors + of_words
    low, high = float(vectors.scores.min(initial=np.inf)), float(vectors.scores.max(initial=-np.inf))
    top = float(words.scores.max(initial=0.0)) if most is None else most
    by_vectors = {**(others or {}), **dict(zip(vectors.ids, vectors.scores.tolist(), strict=True))}
    by_words = dict(zip(words.ids, words.scores.tolist(), strict=True))
    parts: dict[str, Parts] = {}
    for id in (*vectors.ids, *words.ids, *exact):  # noqa: A001
        place = (by_vectors.get(id, low) - low) / (high - low) if high > low else float(id in by_vectors)
        share = by_words.get(id, 0.0) / top if top > 0 else 0.0
        parts[id] = Parts(of_vectors * max(place, 0.0), of_words * share, of_exact if id in exact else 0.0)
    # Sorting is stable: of equals the one that the vectors have first leads, after those with the exact strings.
    best = sorted(parts, key=lambda id: (-sum(parts[id]), id not in exact))[:k]  # noqa: A006
    return Ranking(best, np.array([sum(parts[id]) for id in best], dtype=np.float32)), parts  # noqa: A001


def checked_weights(weights: Sequence[float], number: int) -> list[float]:
    """Return weights as floats; refuse too few, too many, negative ones, and those whose scores would be infinite."""
    factors = [float(w) for w in weights]
    if len(factors) != number or not all(0 <= w <= MOST_WEIGHT for w in factors):
        expected = f"{number} numbers >= 0 and <= {MOST_WEIGHT:g}, one for each ranking"
        raise invalid("weights", "fuse", expected, weights)
    return factors


def _worths(ranking: Ranking, method: str) -> NDArray[np.float64]:
    if method == "rrf":
        return 1 / (RRF_CONSTANT + 1 + np.arange(len(ranking), dtype=np.float64))
    scores = ranking.scores.astype(np.float64)
    low, high = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    # A ranking of equals, or of one, says that all of its documents are its best.
    return (scores - low) / (high - low) if high > low else np.ones(len(scores))
