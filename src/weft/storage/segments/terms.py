"""Scores of documents, and the terms of a score: the token pairs it is the sum of, their weights, and Z."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.alignment import Alignment, aligned, score
from weft.alignment.base import LEAST_Z
from weft.kernels import aligned_pairs, knows, score_ragged, similarities
from weft.storage.segments.plan import Terms
from weft.types import Hits, TokenVectors


def score_documents(
    query: TokenVectors,
    documents: TokenVectors,
    alignment: Alignment,
    threads: int,
    full_lengths: NDArray[np.int64] | None = None,
) -> NDArray[np.float32]:
    """Score documents under any alignment, shape (documents,)."""
    if knows(alignment):
        scores = score_ragged(query, documents, alignment, threads=threads, full_lengths=full_lengths)
    else:
        scores = np.asarray(score(query, documents, alignment), dtype=np.float32)
    return scores.reshape(-1)


def aligned_terms(
    query: TokenVectors,
    documents: TokenVectors,
    alignment: Alignment,
    full_lengths: NDArray[np.int64] | None = None,
) -> list[Terms]:
    """Return what the scores of some documents are the sums of."""
    if knows(alignment):
        found = aligned_pairs(query, documents, alignment, full_lengths=full_lengths)
        return [
            _weighed(p, query, documents, alignment, start) for p, start in zip(found, documents.offsets, strict=False)
        ]
    return [_dense(query, documents[position : position + 1], alignment) for position in range(len(documents))]


def _dense(query: TokenVectors, document: TokenVectors, alignment: Alignment) -> Terms:
    terms = aligned(query, document, alignment)
    S, A = np.asarray(terms.similarity[0, 0]), np.asarray(terms.alignment[0, 0])  # (n, m)
    i, j = (axis.astype(np.int32) for axis in np.nonzero(A))
    return Terms(Hits(i, np.zeros(len(i), np.int64), j, S[i, j], A[i, j]), float(terms.z[0, 0]))


def _weighed(pairs: Hits, query: TokenVectors, documents: TokenVectors, alignment: Alignment, start: int) -> Terms:
    """The pairs of a document whose first token is `start`, with their weights."""
    weight = None
    if query.salience is not None or documents.salience is not None:
        weight = np.ones(len(pairs), dtype=np.float32)
        if query.salience is not None:
            weight *= query.salience[pairs.query_token]
        if documents.salience is not None:
            weight *= documents.salience[start + pairs.document_token]
    total = float(len(pairs)) if weight is None else float(weight.sum())
    total = max(total, LEAST_Z) if total > 0 else total
    z = {"one": 1.0, "query": float(query.n_tokens), "sum": total}[alignment.divides_by]
    return Terms(Hits.trusted(**{**vars(pairs), "weight": weight}), z)


def floor_terms(query: TokenVectors, documents: TokenVectors, z: float, missing: NDArray[np.float32]) -> list[Terms]:
    """Return the terms of XTR's scores where m_i, `missing` (n,), stands in for what is less."""
    S = similarities(query, documents)
    return [Terms(_floor_pairs(S[:, begin:end], missing), z) for begin, end in pairwise(documents.offsets)]


def _floor_pairs(S: NDArray[np.float32], missing: NDArray[np.float32]) -> Hits:
    """The pairs of one document's score, for its similarities (n, m); where m_i stands in, the token is -1."""
    token = S.argmax(axis=1)
    found = S[np.arange(len(token)), token]
    imputed = found < missing
    return max_pairs(np.where(imputed, -1, token), np.where(imputed, missing, found))


def max_terms(tokens: NDArray[np.signedinteger[Any]], similarity: NDArray[np.float32], z: float) -> list[Terms]:
    """Return the terms of documents with one pair for each query token; both arrays are (N, n)."""
    n = tokens.shape[1]
    shared = {"query_token": np.arange(n, dtype=np.int32), "document": np.zeros(n, np.int64)}
    rows = zip(tokens.astype(np.int32, copy=False), similarity.astype(np.float32, copy=False), strict=True)
    return [Terms(Hits.trusted(**shared, document_token=row, similarity=found), z) for row, found in rows]


def max_pairs(tokens: NDArray[np.signedinteger[Any]], similarity: NDArray[np.float32]) -> Hits:
    """Return one pair for each query token, in their order."""
    return Hits.trusted(
        query_token=np.arange(len(tokens), dtype=np.int32),
        document=np.zeros(len(tokens), np.int64),
        document_token=tokens.astype(np.int32, copy=False),
        similarity=similarity.astype(np.float32, copy=False),
    )
