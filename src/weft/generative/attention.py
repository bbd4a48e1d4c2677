"""The relevance of generative retrieval as rel(Q, D) = Σ S∘A, for a decoder of one linear layer (GR eq. 4-20).

The paper writes Q and D as columns; here as everywhere rows are tokens, and A has a row for each query token. For such
a decoder the sum is exact. `weft.generative.relevance` shows what a real one adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.alignment import score
from weft.checks import numbers
from weft.errors import invalid

Floats = NDArray[np.floating[Any]]


def softmax(logits: ArrayLike, axis: int) -> Floats:
    """Return the softmax along an axis.

    Examples
    --------
    >>> softmax([[0.0, 0.0], [0.0, np.log(3.0)]], axis=1).round(2).tolist()
    [[0.5, 0.5], [0.25, 0.75]]
    """
    values = np.asarray(logits)
    weights: Floats = np.exp(values - values.max(axis=axis, keepdims=True))
    return weights / weights.sum(axis=axis, keepdims=True)


def attention_alignment(Q: ArrayLike, D: ArrayLike, W: ArrayLike | None = None) -> Floats:
    """Return A of generative retrieval: each document token spreads 1 over the query's tokens (eq. 4 and 16).

    Parameters
    ----------
    Q : array, shape (n, d)
        Query token vectors.
    D : array, shape (m, d)
        The decoder's states d̂₀ … d̂_{m−1} that the m tokens are predicted from: shifted right by one.
    W : array, shape (d, d), optional
        W_Kᵀ W_Q; the identity if left out, as in Lemma 5.2.

    Returns
    -------
    array, shape (n, m)
        softmax(Q W Dᵀ) over the query; columns sum to 1.

    Examples
    --------
    >>> attention_alignment([[1.0], [0.0]], [[0.0], [np.log(3.0)]]).round(2).tolist()
    [[0.5, 0.75], [0.5, 0.25]]
    """
    q, d = _matrix(Q, "Q"), _matrix(D, "D")
    w = np.eye(q.shape[1]) if W is None else _matrix(W, "W")
    if w.shape != (q.shape[1], d.shape[1]):
        raise invalid("W", "attention_alignment", f"of shape {(q.shape[1], d.shape[1])}", w.shape)
    if len(q) == 0:
        raise invalid("Q", "attention_alignment", "of at least one token", q.shape)
    return softmax(q @ w @ d.T, axis=0)


@dataclass(frozen=True, eq=False)
class LinearDecoder:
    """A decoder of one cross-attention layer, nothing else: h_i = W_V Q α_i (eq. 4-5).

    What stands for the document is any (m, d) array of vectors, as in the paper's table 3: rows of the embedding table
    E[d₁ … d_m] (GR), E_{i,v} d′_i (PAWA, eq. 17-19) or contextual token vectors (NP-decoding, eq. 20).

    Parameters
    ----------
    W, W_V : arrays, shape (d, d)
        W_Kᵀ W_Q, and the values' matrix with the maps after it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> decoder = LinearDecoder(rng.normal(size=(4, 4)), rng.normal(size=(4, 4)))
    >>> Q, previous, E = rng.normal(size=(3, 4)), rng.normal(size=(2, 4)), rng.normal(size=(9, 4))
    >>> tokens = [5, 7]
    >>> logits = decoder.states(Q, previous) @ E.T  # (2, 9)
    >>> bool(np.isclose(logits[0, 5] + logits[1, 7], decoder.relevance(E[tokens], Q, previous)))
    True
    """

    W: Floats
    W_V: Floats

    def states(self, Q: Floats, previous: Floats) -> Floats:
        """Return h (eq. 5), shape (m, d); the logits of all tokens are h Eᵀ."""
        found: Floats = attention_alignment(Q, previous, self.W).T @ Q @ self.W_V.T
        return found

    def document_vectors(self, vectors: Floats) -> Floats:
        """Return Ẽ (eq. 13): ẽ_iᵀ = e_iᵀ W_V, shape (m, d)."""
        found: Floats = vectors @ self.W_V
        return found

    def relevance(self, vectors: Floats, Q: Floats, previous: Floats) -> float:
        """Return rel(d, q) = sum(Ẽᵀ Q ∘ A) (eq. 14-16), by `weft.score` with the attention alignment."""
        A = attention_alignment(Q, previous, self.W)
        return float(score(Q, self.document_vectors(vectors), "attention", attention=A))


def _matrix(value: ArrayLike, name: str) -> Floats:
    found = numbers(value, name, "attention_alignment")
    if found.ndim != 2:
        raise invalid(name, "attention_alignment", "a matrix", found.shape)
    return found.astype(np.float64) if found.dtype.kind != "f" else found
