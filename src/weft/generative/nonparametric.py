"""NP-decoding: contextual token vectors of the corpus as the decoder's vocabulary (GR eq. 20; Lee et al.).

Each document's "title text" is encoded and the vectors of its identifier's tokens are kept. Of each token type at most
a few vectors remain, the centroids of a k-means; they are both the decoder's input embedding and its head. BASE
computes them once; ASYNC repeatedly, with the current encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.generative.model import EOS, GenerativeModel

RESERVED = 2
"""Rows 0 and 1 of the table are the decoder's start and the end of an identifier."""


@dataclass(frozen=True)
class ClusterTable:
    """The decoder's vocabulary, and the identifiers of the documents in it."""

    table: Tensor
    """(C, d); row 0 is zeros and never said, row 1 the mean vector of the texts' ends."""
    token_of: NDArray[np.int64]
    """(C,): the token each cluster belongs to, -1 for rows 0 and 1."""
    identifiers: list[list[int]]
    """Clusters of each document's identifier."""


def cluster_table(
    model: GenerativeModel,
    texts: Sequence[Sequence[int]],
    lengths: Sequence[int],
    *,
    clusters: int = 5,
    context: int = 64,
    batch_size: int = 64,
    seed: int = 0,
) -> ClusterTable:
    """Encode documents and cluster the vectors of each token type.

    Parameters
    ----------
    model : GenerativeModel
    texts : token ids of "title text" of each document
    lengths : how many of them are the identifier
    clusters : int
        The maximum number of vectors kept for a token type. A type with fewer keeps them all.
    context : int
        Tokens of a text that are encoded; never fewer than its identifier has.
    """
    tokens, vectors, ends = _encode(model, texts, lengths, context, batch_size)
    order = np.argsort(tokens, kind="stable")
    types, begins = np.unique(tokens[order], return_index=True)
    centroids: list[NDArray[np.float32]] = []
    cluster = np.zeros(len(tokens), dtype=np.int64)
    token_of = [-1] * RESERVED
    for token, members in zip(types, np.split(order, begins[1:]), strict=True):
        centres, label = _cluster(vectors[members], clusters, seed)
        cluster[members] = len(token_of) + label
        token_of += [int(token)] * len(centres)
        centroids.append(centres)
    table = np.concatenate([np.zeros_like(ends[None]), ends[None], *centroids]).astype(np.float32)
    parts = np.split(cluster, np.cumsum(lengths)[:-1])
    return ClusterTable(torch.from_numpy(table), np.array(token_of), [part.tolist() for part in parts])


def _encode(
    model: GenerativeModel, texts: Sequence[Sequence[int]], lengths: Sequence[int], context: int, batch_size: int
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
    """Return tokens (T,) and vectors (T, d) of all identifiers, in order, and the mean vector of the ends."""
    training = model.training
    model.eval()
    vectors, ends = [], []
    with torch.no_grad():
        for start in range(0, len(texts), batch_size):
            some = range(start, min(start + batch_size, len(texts)))
            ids = [[*texts[i][: max(context, lengths[i])], EOS] for i in some]
            hidden = model.encode(ids).hidden
            vectors += [hidden[row, : lengths[i]] for row, i in enumerate(some)]
            ends += [hidden[row, len(ids[row]) - 1] for row in range(len(ids))]
    model.train(training)
    tokens = np.concatenate([np.asarray(text[:n], dtype=np.int64) for text, n in zip(texts, lengths, strict=True)])
    return tokens, torch.cat(vectors).float().cpu().numpy(), torch.stack(ends).mean(0).float().cpu().numpy()


def _cluster(vectors: NDArray[np.float32], clusters: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    if len(vectors) <= clusters:
        return vectors, np.arange(len(vectors))
    distinct, inverse = np.unique(vectors, axis=0, return_inverse=True)
    if len(distinct) <= clusters:
        return distinct, inverse.ravel()
    from sklearn.cluster import KMeans

    made = KMeans(clusters, n_init=1, random_state=seed).fit(vectors)
    return made.cluster_centers_.astype(np.float32), made.labels_.astype(np.int64)
