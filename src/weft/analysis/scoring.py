"""Token retrieval over a pool, once for any number of k′, and XTR's scores from it.

The scores are those of searching (`weft.search.imputed`). Documents come in blocks, so that memory does not grow with
the collection beyond its own vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.alignment import XTR
from weft.evaluation.pools import Encoded
from weft.search.imputed import score_hits
from weft.types import Hits, TokenVectors

BLOCK = 1_000_000
"""Document tokens compared at once: 4 bytes for each of them and each token of a query."""


def top_tokens(
    query: NDArray[np.floating[Any]], documents: TokenVectors, k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return each query token's k most similar document tokens and their similarities, best first, shapes (n, k).

    Tokens are rows of ``documents.values``; of equal similarities the first come first.

    Examples
    --------
    >>> documents = TokenVectors.from_list([[[0.9, 0.6], [0.1, 0.5]], [[0.7, 0.3]]])
    >>> rows, similarity = top_tokens(np.eye(2), documents, 2)
    >>> rows.tolist(), similarity.astype(float).round(2).tolist()
    ([[0, 2], [0, 1]], [[0.9, 0.7], [0.6, 0.5]])
    """
    q = np.ascontiguousarray(query, dtype=np.float32)
    rows: NDArray[np.int64] = np.zeros((len(q), 0), dtype=np.int64)
    kept: NDArray[np.float32] = np.zeros((len(q), 0), dtype=np.float32)
    for start in range(0, documents.n_tokens, BLOCK):
        part = documents.values[start : start + BLOCK].astype(np.float32, copy=False)
        S = q @ part.T  # (n, tokens of the block)
        some = np.broadcast_to(np.arange(len(part)), S.shape)
        if k < S.shape[1]:
            some = np.sort(np.argpartition(-S, k - 1, axis=1)[:, :k], axis=1)
            S = np.take_along_axis(S, some, axis=1)
        rows = np.concatenate([rows, some + start], axis=1)
        kept = np.concatenate([kept, S], axis=1)
        order = np.argsort(-kept, axis=1, kind="stable")[:, :k]
        rows, kept = np.take_along_axis(rows, order, axis=1), np.take_along_axis(kept, order, axis=1)
    return rows, kept


class Owners:
    """Which document a token row belongs to, and where it stands there."""

    def __init__(self, documents: TokenVectors) -> None:
        self.document: NDArray[np.int64] = np.repeat(np.arange(len(documents)), documents.lengths)
        self.offsets, self.lengths = documents.offsets, documents.lengths

    def hits(self, rows: NDArray[np.int64], similarity: NDArray[np.float32]) -> Hits:
        """Turn the best k tokens of each query token (n, k) into `Hits`."""
        n, k = rows.shape
        document = self.document[rows]
        return Hits.trusted(
            query_token=np.repeat(np.arange(n, dtype=np.int32), k),
            document=document.ravel(),
            document_token=(rows - self.offsets[document]).astype(np.int32).ravel(),
            similarity=similarity.ravel(),
        )


class Retrieved(NamedTuple):
    """What one query retrieved."""

    tokens: NDArray[np.int64]
    """(documents,): tokens of each document that were retrieved, by all query tokens together."""
    pairs: int
    """(document, query token) pairs with at least one token retrieved."""


def xtr_scores(
    encoded: Encoded, alignments: Sequence[XTR]
) -> Iterator[tuple[int, list[NDArray[np.float32]], list[Retrieved]]]:
    """Yield for each query its number, and for each alignment its scores (documents,) and what it retrieved.

    A document that is no candidate scores −∞. All alignments share one token retrieval, with the greatest k′.
    """
    owners = Owners(encoded.documents)
    most = min(max(alignment.k_prime for alignment in alignments), encoded.documents.n_tokens)
    for number in range(len(encoded.queries)):
        rows, similarity = top_tokens(encoded.queries[number], encoded.documents, most)
        scores, found = [], []
        for alignment in alignments:
            k = min(alignment.k_prime, most)
            hits = owners.hits(rows[:, :k], similarity[:, :k])
            terms = score_hits(hits, similarity[:, k - 1], owners.lengths, alignment)
            row = np.full(len(encoded.documents), -np.inf, dtype=np.float32)
            row[terms.documents] = terms.scores
            scores.append(row)
            pairs = np.unique(hits.document * len(rows) + hits.query_token)
            found.append(Retrieved(np.bincount(hits.document, minlength=len(encoded.documents)), len(pairs)))
        yield number, scores, found


def xtr_matrices(encoded: Encoded, alignments: Sequence[XTR]) -> list[NDArray[np.float32]]:
    """Return the scores of every query under each alignment, each (queries, documents)."""
    rows = [scores for _, scores, _ in xtr_scores(encoded, alignments)]
    return [np.stack([row[i] for row in rows]) for i in range(len(alignments))]
