"""Fusing rankings: reciprocal ranks, or scores brought to one scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from weft.checks import check_count
from weft.errors import invalid
from weft.types import Ranking

FUSIONS = ("rrf", "scores")
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
        How many documents at the most.
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
    if method not in FUSIONS:
        raise invalid("fusion", "search", f"one of {FUSIONS}", method)
    factors = [1.0] * len(rankings) if weights is None else [float(w) for w in weights]
    if len(factors) != len(rankings) or not all(np.isfinite(w) and w >= 0 for w in factors):
        raise invalid("weights", "fuse", f"{len(rankings)} numbers >= 0, one for each ranking", weights)
    totals: dict[str, float] = {}
    for ranking, weight in zip(rankings, factors, strict=True):
        for result, worth in zip(ranking, _worths(ranking, method), strict=True):
            totals[result.id] = totals.get(result.id, 0.0) + weight * float(worth)
    # Sorting is stable: of equals the one that an earlier ranking has first leads.
    best = sorted(totals, key=lambda id: -totals[id])[:k]  # noqa: A006
    return Ranking(best, np.array([totals[id] for id in best], dtype=np.float32))  # noqa: A001


def _worths(ranking: Ranking, method: str) -> NDArray[np.float64]:
    if method == "rrf":
        return 1 / (RRF_CONSTANT + 1 + np.arange(len(ranking), dtype=np.float64))
    scores = ranking.scores.astype(np.float64)
    low, high = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    # A ranking of equals, or of one, says that all of its documents are its best.
    return (scores - low) / (high - low) if high > low else np.ones(len(scores))
