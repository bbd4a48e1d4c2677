"""Pooling: keep a part of each text's vectors by taking similar tokens together, for a smaller index.

Tokens are grouped hierarchically by Ward's criterion, and a group is stored as its mean, both weighted by salience
where there are saliences: what matters keeps groups of its own, and a group lies near those of its tokens that matter.
None is left out; to leave out the least salient first costs more (benchmarks/RESULTS.md, A smaller index). Vectors of a
text as a whole (tokens that stand nowhere in it) are kept as they are. A pooled vector carries the id and the span of
its group's token nearest to it, so that explanations point at text.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.checks import check_fraction
from weft.types import TokenVectors

LEAST_WEIGHT = 1e-3
"""Added to saliences as weights, so that tokens of salience 0 are grouped among themselves and stand for themselves."""


class _Pooled(NamedTuple):
    vectors: NDArray[np.float32]  # (k, dim)
    tokens: NDArray[np.int64]  # (k,): which token of the text each stands for, ascending
    salience: NDArray[np.float32] | None  # (k,): the largest of its group


def pool(texts: TokenVectors, keep: float, *, parameter: str = "keep") -> TokenVectors:
    """Return ⌈keep·m⌉ vectors of each text of m tokens, in the order of the tokens that they stand for.

    A pooled vector has the mean norm of its group. With saliences, each has the largest of its group.

    Examples
    --------
    >>> texts = TokenVectors.from_list([[[1, 0], [0.8, 0.6], [-1, 0], [-0.8, 0.6]]], token_ids=[[1, 2, 3, 4]])
    >>> pooled = pool(texts, 0.5)
    >>> pooled[0].astype(float).round(2).tolist(), pooled.token_ids.tolist()
    ([[0.95, 0.32], [-0.95, 0.32]], [1, 3])
    """
    check_fraction(keep, parameter, "pool")
    if keep == 1:
        return texts
    parts = [_pool(texts, i, keep) for i in range(len(texts))]
    lengths = [len(part.tokens) for part in parts]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = np.concatenate([np.zeros(0, np.int64), *[p.tokens + b for p, b in zip(parts, texts.offsets, strict=False)]])
    values = np.concatenate([np.zeros((0, texts.dim), np.float32), *[part.vectors for part in parts]])
    saliences: list[Any] = [part.salience for part in parts]
    return TokenVectors.trusted(
        values.astype(texts.values.dtype, copy=False),
        offsets,
        None if texts.token_ids is None else texts.token_ids[rows],
        None if texts.salience is None else np.concatenate([np.zeros(0, np.float32), *saliences]),
        None if texts.spans is None else texts.spans[rows],
    )


def _pool(texts: TokenVectors, i: int, keep: float) -> _Pooled:
    begin, end = int(texts.offsets[i]), int(texts.offsets[i + 1])
    vectors = texts.values[begin:end].astype(np.float32)
    salience = None if texts.salience is None else texts.salience[begin:end]
    wanted = math.ceil(keep * len(vectors))
    if wanted == len(vectors):
        return _Pooled(vectors, np.arange(len(vectors)), salience)
    whole = np.zeros(len(vectors), dtype=bool)
    if texts.spans is not None:
        spans = texts.spans[begin:end]
        whole = spans[:, 0] == spans[:, 1]
    if whole.sum() >= wanted:  # a short text: there would be nothing left of its words
        whole[:] = False
    tokens = np.flatnonzero(~whole)
    groups = wanted - int(whole.sum())
    means, nearest, largest = _grouped(vectors[tokens], groups, None if salience is None else salience[tokens])
    kept = np.concatenate([np.flatnonzero(whole), tokens[nearest]])
    order = np.argsort(kept, kind="stable")
    return _Pooled(
        np.concatenate([vectors[whole], means])[order],
        kept[order],
        None if salience is None or largest is None else np.concatenate([salience[whole], largest])[order],
    )


def _grouped(
    vectors: NDArray[np.float32], groups: int, salience: NDArray[np.float32] | None
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32] | None]:
    """Return the mean of each group at its mean norm, the token nearest to it, and the largest salience in it."""
    weights = np.ones(len(vectors), np.float32)
    if salience is not None:
        weights = salience.astype(np.float32) + LEAST_WEIGHT
        weights /= weights.mean()
    norms = np.linalg.norm(vectors, axis=1)
    units = vectors / np.maximum(norms, 1e-12)[:, None]
    label = np.arange(len(vectors), dtype=np.int32)
    if groups < len(vectors):
        distance = np.maximum(2 - 2 * (units @ units.T), 0)
        _native.group_by_ward(distance, weights.copy(), groups, label)
    means = np.zeros((groups, vectors.shape[1]), np.float32)
    np.add.at(means, label, vectors * weights[:, None])
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    similarity = (units * means[label]).sum(axis=1)
    by_group = np.lexsort((-similarity, label))  # the nearest of each group first; of equals the first
    first = np.searchsorted(label[by_group], np.arange(groups))
    means *= (np.bincount(label, norms, groups) / np.bincount(label, minlength=groups))[:, None].astype(np.float32)
    largest = None
    if salience is not None:
        largest = np.zeros(groups, np.float32)
        np.maximum.at(largest, label, salience)
    return means, by_group[first], largest
