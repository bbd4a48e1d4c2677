"""Scores of documents, and the terms of a score: the token pairs it is the sum of, their weights, and Z."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from weft.alignment import Alignment, aligned, score
from weft.alignment.base import LEAST_Z
from weft.kernels import aligned_pairs, knows, score_ragged, similarities
from weft.storage.segments.plan import Terms
from weft.types import Hits, TokenVectors, contributions


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


def floor_terms(query: TokenVectors, documents: TokenVectors, z: float, missing: NDArray[np.float32]) -> MaxTerms:
    """Return the terms of XTR's scores where m_i, `missing` (n,), stands in for what is less: there the token is -1."""
    S = similarities(query, documents)
    tokens = np.empty((len(documents), len(missing)), dtype=np.int32)
    counted = np.empty((len(documents), len(missing)), dtype=np.float32)
    for position, (begin, end) in enumerate(pairwise(documents.offsets)):
        token = S[:, begin:end].argmax(axis=1)
        found = S[np.arange(len(token)), begin + token]
        imputed = found < missing
        tokens[position], counted[position] = np.where(imputed, -1, token), np.where(imputed, missing, found)
    return MaxTerms(tokens, counted, z)


class MaxTerms(Sequence[Terms]):
    """The terms of documents with one pair for each query token; made for those that are asked for.

    Parameters
    ----------
    tokens : array of int, shape (N, n)
    similarity : array of float32, shape (N, n)
    z : float, > 0
    """

    def __init__(self, tokens: NDArray[np.signedinteger[Any]], similarity: NDArray[np.float32], z: float) -> None:
        self._tokens = tokens.astype(np.int32, copy=False)
        self._similarity = similarity.astype(np.float32, copy=False)
        self.width, self.z = tokens.shape[1], z

    def __len__(self) -> int:
        return len(self._tokens)

    @overload
    def __getitem__(self, position: int) -> Terms: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[Terms]: ...
    def __getitem__(self, position: int | slice) -> Terms | Sequence[Terms]:
        if isinstance(position, slice):
            return MaxTerms(self._tokens[position], self._similarity[position], self.z)
        return Terms(self.pairs(position, np.zeros(self.width, np.int64)), self.z)

    def pairs(self, position: int, document: NDArray[np.int64], rows: NDArray[np.int32] | None = None) -> Hits:
        """Return the pairs of a document under these numbers of documents (n,), and of query tokens (n,)."""
        return Hits.trusted(
            query_token=self._every if rows is None else rows,
            document=document,
            document_token=self._tokens[position],
            similarity=self._similarity[position],
        )

    @cached_property
    def _every(self) -> NDArray[np.int32]:
        return np.arange(self.width, dtype=np.int32)

    def scores(self) -> list[float]:
        """Return the score of each document: what its contributions add up to."""
        added = (self._similarity.astype(np.float64) / float(np.float32(self.z))).sum(axis=1)
        return added.astype(np.float32).tolist()  # type: ignore[no-any-return]


def scores_of(terms: Sequence[Terms]) -> list[float]:
    """Return the score of each document, as a float32 can hold it: what the contributions of its pairs add up to."""
    if isinstance(terms, MaxTerms):
        return terms.scores()
    return [float(np.float32(contributions(*term).sum())) for term in terms]
