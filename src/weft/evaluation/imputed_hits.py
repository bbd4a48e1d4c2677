"""XTR inference (eq. 3-4) over a pool: candidates and their scores from retrieved tokens alone.

The definition is `weft.alignment.XTR`; this is the same sum over flat arrays of hits, of size n·k′ for any size of
corpus.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.alignment import XTR
from weft.errors import invalid
from weft.types import Hits


@dataclass(frozen=True, eq=False)
class Imputed:
    """The terms of eq. 4 for every candidate: N documents, n query tokens."""

    hits: Hits
    documents: NDArray[np.int64]
    """(N,) the candidates (eq. 3), ascending."""
    value: NDArray[np.float32]
    """(N, n) what each query token counts: its best retrieved similarity, or m_i, or 0 where it does not count."""
    counted: NDArray[np.bool_]
    """(N, n) False where nothing was retrieved and nothing is imputed."""
    imputed: NDArray[np.bool_]
    """(N, n) True where m_i is imputed."""
    z: NDArray[np.float32]
    """(N,)"""

    @property
    def scores(self) -> NDArray[np.float32]:
        """f_XTR′ of each candidate, shape (N,)."""
        scores: NDArray[np.float32] = (self.value.sum(axis=1) / self.z).astype(np.float32)
        return scores


def score_hits(hits: Hits, last: NDArray[np.float32], lengths: NDArray[np.int64], alignment: XTR) -> Imputed:
    """Score every document that a hit names.

    Parameters
    ----------
    hits : Hits
        The k′ best tokens of each query token, the best first.
    last : array, shape (n,)
        Each query token's last retrieved similarity, an upper bound of all it did not retrieve.
    lengths : array, shape (documents,)
        Number of tokens of each document.
    alignment : XTR
        Says what a missing similarity counts.

    Returns
    -------
    Imputed
        The candidates and what their scores are made of.

    Examples
    --------
    >>> hits = Hits([0, 0, 1, 1], [7, 9, 7, 7], [0, 0, 0, 1], [0.9, 0.7, 0.6, 0.5])
    >>> lengths = np.full(10, 2)
    >>> found = score_hits(hits, np.array([0.7, 0.5], np.float32), lengths, XTR(2))
    >>> found.documents.tolist(), [round(float(s), 3) for s in found.scores]
    ([7, 9], [0.75, 0.6])
    >>> found.imputed.tolist()  # the second query token retrieved nothing of document 9
    [[False, False], [False, True]]
    """
    n = len(last)
    documents, position = np.unique(hits.document, return_inverse=True)
    best = np.full((len(documents), n), -np.inf, dtype=np.float32)
    found = np.zeros((len(documents), n), dtype=np.int64)
    np.maximum.at(best, (position, hits.query_token), hits.similarity)
    np.add.at(found, (position, hits.query_token), 1)
    if alignment.impute == "none":
        counted, imputed = found > 0, np.zeros(found.shape, dtype=bool)
        value = np.where(counted, best, np.float32(0))
    else:
        missing = _missing(alignment, last)
        counted = np.ones(found.shape, dtype=bool)
        imputed = (found < lengths[documents][:, None]) & (missing > best)
        value = np.where(imputed, missing, best)
    divisors = {"one": np.ones(len(documents)), "query": np.full(len(documents), n), "sum": counted.sum(axis=1)}
    z = np.maximum(divisors[alignment.divides_by], 1).astype(np.float32)
    return Imputed(hits, documents, value, counted, imputed, z)


def _missing(alignment: XTR, last: NDArray[np.float32]) -> NDArray[np.float32]:
    missing = alignment.missing(last)
    if missing is None:
        allowed = "'none', 'zero', 'kth' or a number for a pool (others work in weft.score and in a search)"
        raise invalid("impute", "score_hits", allowed, alignment.impute)
    return np.asarray(missing)


def largest(values: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Return where the k largest values of each row stand, (rows, k), ascending; of equal values the first.

    Examples
    --------
    >>> largest(np.array([[3.0, 1.0, 2.0, 3.0, 2.0]]), 3).tolist()
    [[0, 2, 3]]
    """
    chosen = np.sort(np.argpartition(-values, k - 1, axis=1)[:, :k], axis=1)
    found = np.take_along_axis(values, chosen, axis=1)
    last = found.min(axis=1, keepdims=True)
    equal = values == last
    for row in np.flatnonzero(equal.sum(axis=1) > (found == last).sum(axis=1)):  # more of them than fit
        above = np.flatnonzero(values[row] > last[row])
        chosen[row] = np.sort(np.concatenate([above, np.flatnonzero(equal[row])[: k - len(above)]]))
    return chosen
