"""XTR inference (eq. 3-4): candidates and their scores from retrieved tokens alone, without gathering documents.

The definition is `weft.alignment.XTR`; this is the same sum over flat arrays of hits, whose size is n·k′ however large
the corpus is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.alignment import XTR
from weft.errors import invalid
from weft.types import Hits


def score_hits(
    hits: Hits, last: NDArray[np.float32], lengths: NDArray[np.int64], alignment: XTR
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Score every document that a hit names.

    Parameters
    ----------
    hits : Hits
        The k′ best tokens of each query token.
    last : array, shape (n,)
        Each query token's last retrieved similarity, an upper bound of all it did not retrieve.
    lengths : array, shape (documents,)
        Number of tokens of each document.
    alignment : XTR
        Says what a missing similarity counts.

    Returns
    -------
    documents, scores
        The candidates (eq. 3), ascending, and f_XTR′ of each (eq. 4).

    Examples
    --------
    >>> hits = Hits([0, 0, 1, 1], [7, 9, 7, 7], [0, 0, 0, 1], [0.9, 0.7, 0.6, 0.5])
    >>> lengths = np.full(10, 2)
    >>> documents, scores = score_hits(hits, np.array([0.7, 0.5], np.float32), lengths, XTR(2))
    >>> documents.tolist(), [round(float(s), 3) for s in scores]
    ([7, 9], [0.75, 0.6])
    """
    n = len(last)
    documents, position = np.unique(hits.document, return_inverse=True)
    best = np.full((len(documents), n), -np.inf, dtype=np.float32)
    found = np.zeros((len(documents), n), dtype=np.int64)
    np.maximum.at(best, (position, hits.query_token), hits.similarity)
    np.add.at(found, (position, hits.query_token), 1)
    if alignment.impute == "none":
        retrieved = found > 0
        total = np.where(retrieved, best, 0).sum(axis=1)
        return documents, (total / np.maximum(retrieved.sum(axis=1), 1)).astype(np.float32)
    missing = _missing(alignment, last)
    some_missing = found < lengths[documents][:, None]
    value = np.where(some_missing, np.maximum(best, missing), best)
    divisor = n if alignment.z == "query" else 1
    return documents, (value.sum(axis=1) / max(divisor, 1)).astype(np.float32)


def _missing(alignment: XTR, last: NDArray[np.float32]) -> NDArray[np.float32]:
    if alignment.impute == "kth":
        return last
    if alignment.impute == "zero":
        return np.zeros_like(last)
    try:
        return np.full_like(last, float(alignment.impute))
    except ValueError:
        allowed = "'none', 'zero', 'kth' or a number for a search (others work in weft.score)"
        raise invalid("impute", "search", allowed, alignment.impute) from None
