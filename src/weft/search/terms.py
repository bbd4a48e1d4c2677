"""The terms of a score: which token pairs it was summed over, with what weights, and the Z it was divided by."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from weft.alignment import Alignment, aligned
from weft.kernels import aligned_pairs
from weft.search.brute import NATIVE
from weft.search.coded import comparable
from weft.search.floors import floor_pairs, similarities
from weft.storage.segment import Segment
from weft.types import Hits, TokenVectors


def aligned_terms(
    segment: Segment, query: TokenVectors, ordinals: NDArray[np.int64], alignment: Alignment
) -> Iterator[tuple[Hits, float]]:
    """Yield pairs and Z for some documents of a segment, from the vectors and the code that scored them."""
    if isinstance(alignment, NATIVE):
        turned, documents = comparable(segment, query, ordinals)
        for position, pairs in enumerate(aligned_pairs(turned, documents, alignment)):
            yield _native_terms(pairs, query, documents[position : position + 1], alignment)
        return
    for ordinal in ordinals:
        document = segment.select(np.array([ordinal]))
        terms = aligned(query, document, alignment)
        S, A = np.asarray(terms.similarity[0, 0]), np.asarray(terms.alignment[0, 0])  # (n, m)
        i, j = (axis.astype(np.int32) for axis in np.nonzero(A))
        yield Hits(i, np.zeros(len(i), np.int64), j, S[i, j], A[i, j]), float(terms.z[0, 0])


def floor_terms(
    segment: Segment,
    query: TokenVectors,
    ordinals: NDArray[np.int64],
    alignment: Alignment,
    missing: NDArray[np.float32],
) -> Iterator[tuple[Hits, float]]:
    """Yield pairs and Z of scores that come from floors (`weft.search.floors`)."""
    turned, documents = comparable(segment, query, ordinals)
    similarity = similarities(turned, documents)
    z = 1.0 if alignment.divides_by == "one" else float(query.n_tokens)
    for begin, end in pairwise(documents.offsets):
        yield floor_pairs(similarity[:, begin:end], missing), z


def _native_terms(pairs: Hits, query: TokenVectors, document: TokenVectors, alignment: Alignment) -> tuple[Hits, float]:
    weight = None
    if query.salience is not None or document.salience is not None:
        weight = np.ones(len(pairs), dtype=np.float32)
        if query.salience is not None:
            weight *= query.salience[pairs.query_token]
        if document.salience is not None:
            weight *= document.salience[pairs.document_token]
    total = float(len(pairs)) if weight is None else float(weight.sum())
    z = {"one": 1.0, "query": float(query.n_tokens), "sum": total}[alignment.divides_by]
    return Hits.trusted(**{**vars(pairs), "weight": weight}), z
