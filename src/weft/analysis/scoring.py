"""XTR's scores over a pool from one token retrieval, for any number of k′; they are those of searching."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.alignment import XTR
from weft.evaluation.imputed_hits import score_hits
from weft.evaluation.pools import Encoded
from weft.evaluation.scoring import Owners, top_tokens


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
    tokens = encoded.documents.n_tokens
    most = min(max(alignment.retrieves(tokens) for alignment in alignments), tokens)
    for number in range(len(encoded.queries)):
        rows, similarity = top_tokens(encoded.queries[number], encoded.documents, most)
        scores, found = [], []
        for alignment in alignments:
            k = min(alignment.retrieves(tokens), most)
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
