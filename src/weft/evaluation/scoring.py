"""Scores of every document of a pool under any alignment, exactly: no index, no codes, no candidates left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.alignment import XTR, Alignment, InBatchTokenRetrieval
from weft.errors import invalid
from weft.evaluation.imputed_hits import largest, score_hits
from weft.evaluation.pools import Encoded
from weft.kernels import knows
from weft.storage.segments.terms import score_documents
from weft.types import Hits, TokenVectors

BLOCK = 1_000_000
"""This many document tokens are compared at once, with 4 bytes for each of them and each token of a query."""


def score_all(encoded: Encoded, alignment: Alignment | str, *, threads: int = 1) -> NDArray[np.float32]:
    """Score every document for every query.

    Returns
    -------
    array of float32, shape (queries, documents)
        −∞ where a document is no candidate: it has no tokens, or under XTR no query token retrieved one of them.

    Examples
    --------
    >>> texts = TokenVectors.from_list([[[0.9, 0.6], [0.1, 0.5]], [[0.7, 0.3]]])
    >>> query = TokenVectors.from_list([np.eye(2)])
    >>> score_all(Encoded(query, texts), "sum-of-max").round(2).tolist()
    [[1.5, 1.0]]
    >>> score_all(Encoded(query, texts), "xtr:2").astype(float).round(2).tolist()
    [[0.75, 0.6]]
    """
    alignment = Alignment.parse(alignment)
    if isinstance(alignment, InBatchTokenRetrieval):
        raise invalid("alignment", "score_all", "one for searching (xtr:k_prime, not xtr-in-batch)", str(alignment))
    queries, documents = encoded.queries, encoded.documents
    if not encoded.salience_weighs:
        queries, documents = queries.without_salience(), documents.without_salience()
    if isinstance(alignment, XTR):
        owners = Owners(documents)
        rows = [_from_tokens(queries[i], documents, owners, alignment) for i in range(len(queries))]
        return np.stack(rows) if rows else np.zeros((0, len(documents)), np.float32)
    if knows(alignment):
        flat = score_documents(queries, documents, alignment, threads)
        scores = flat.reshape(len(queries), len(documents)).copy()
    else:  # a padded batch of everything would not fit in memory: one query and some documents at a time
        blocks = [documents[i : i + 256] for i in range(0, len(documents), 256)]
        rows = [
            np.concatenate([score_documents(queries[i : i + 1], block, alignment, threads) for block in blocks])
            for i in range(len(queries))
        ]
        scores = np.stack(rows) if rows else np.zeros((0, len(documents)), np.float32)
    scores[:, documents.lengths == 0] = -np.inf
    return scores


def _from_tokens(query: NDArray[Any], documents: TokenVectors, owners: Owners, alignment: XTR) -> NDArray[np.float32]:
    found = np.full(len(documents), -np.inf, dtype=np.float32)
    k = min(alignment.retrieves(documents.n_tokens), documents.n_tokens)
    if len(query) and k:
        rows, similarity = top_tokens(query, documents, k)
        terms = score_hits(owners.hits(rows, similarity), similarity[:, -1], owners.lengths, alignment)
        found[terms.documents] = terms.scores
    return found


# -- token retrieval -----------------------------------------------------------------------------------


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
            some = largest(S, k)
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


def to_run(
    queries: Iterable[str],
    documents: Sequence[str],
    scores: NDArray[np.floating[Any]],
    depth: int = 100,
    *,
    among: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, dict[str, float]]:
    """Turn scores (queries, documents) into a run of each query's best; −∞ stands for what was not found.

    `among` leaves in only the given documents of each query (the re-ranking setting).
    """
    run: dict[str, dict[str, float]] = {}
    place = {name: i for i, name in enumerate(documents)}
    for query, row in zip(queries, scores, strict=True):
        some = np.arange(len(documents)) if among is None else np.array([place[d] for d in among[query]], dtype=int)
        best = some[np.argsort(-row[some], kind="stable")[:depth]]
        run[query] = {documents[j]: float(row[j]) for j in best if np.isfinite(row[j])}
    return run
