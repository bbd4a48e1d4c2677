"""Where a small model from scratch starts: with weights that know which tokens of the corpus go together.

From random weights a small T5 spends thousands of steps on the language of the corpus before its decoder looks at the
query. Two facts about the corpus and the task are known before the first step:

- which tokens occur in the same documents: the singular vectors of the TF-IDF matrix are the embeddings;
- that an identifier is about what the query is about: cross-attention passes on what it reads, W_O W_V = 1.

Together they make the untrained decoder prefer tokens that share documents with the query's
(docs/notes/generative.md has the figures). Nothing pretrained is involved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def start_from_corpus(t5: Any, texts: Sequence[Sequence[int]], seed: int = 0) -> None:
    """Set a new T5's embeddings and cross-attention; everything else stays as it was drawn.

    Parameters
    ----------
    t5 : T5ForConditionalGeneration
    texts : token ids of each document
    seed : int
    """
    embeddings = t5.shared.weight
    vectors = torch.from_numpy(token_vectors(texts, *embeddings.shape, seed=seed))
    known = vectors.abs().sum(1) > 0
    with torch.no_grad():
        embeddings[known] = vectors[known]
        for block in t5.decoder.block:
            attention = block.layer[1].EncDecAttention
            generator = torch.Generator().manual_seed(seed)
            torch.nn.init.orthogonal_(attention.v.weight, generator=generator)
            attention.o.weight.copy_(attention.v.weight.T)


def token_vectors(texts: Sequence[Sequence[int]], vocabulary: int, dim: int, *, seed: int = 0) -> NDArray[np.float32]:
    """Return a vector for each token, of length √dim as T5 draws its own, such that tokens of the same texts are near.

    Tokens that occur in no text are 0, and so are dimensions that a small corpus cannot fill.

    Examples
    --------
    >>> import pytest; _ = pytest.importorskip("sklearn")
    >>> V = token_vectors([[0, 1], [0, 1, 1], [2, 3], [3, 2]], vocabulary=5, dim=2)
    >>> [round(abs(float(V[0] @ V[token])), 3) for token in (0, 1, 2, 4)]
    [2.0, 2.0, 0.0, 0.0]
    """
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    document = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    token = np.concatenate([np.asarray(text, dtype=np.int64) for text in texts])
    counts = csr_matrix((np.ones(len(token), np.float32), (document, token)), shape=(len(texts), vocabulary))
    weights = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    svd = TruncatedSVD(min(dim, vocabulary, len(texts)), random_state=seed).fit(weights)
    found = np.zeros((vocabulary, dim), dtype=np.float32)
    found[:, : len(svd.components_)] = svd.components_.T * np.sqrt(svd.singular_values_)
    length = np.linalg.norm(found, axis=1, keepdims=True)
    return np.where(length > 1e-6, found * (np.sqrt(dim) / np.maximum(length, 1e-6)), 0).astype(np.float32)
