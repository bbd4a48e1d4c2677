"""Embeddings as PyLate passes them: arrays, tensors and lists of them, one query or many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from weft.errors import invalid
from weft.types import TokenVectors


class RerankResult(TypedDict):
    """A document and its score."""

    id: int | str
    score: float


def as_array(embeddings: Any) -> NDArray[Any]:
    """Return an array or tensor as NumPy, off whatever device it is on."""
    if hasattr(embeddings, "detach"):  # torch, without importing it
        embeddings = embeddings.detach().cpu()
        embeddings = embeddings.float() if embeddings.is_floating_point() else embeddings
        return np.asarray(embeddings.numpy())
    return np.asarray(embeddings)


def as_texts(embeddings: Any, owner: str) -> list[NDArray[Any]]:
    """Return one (tokens, dim) array for each text; a single such array is one text.

    Examples
    --------
    >>> [text.shape for text in as_texts(np.zeros((3, 4)), "example")]
    [(3, 4)]
    >>> [text.shape for text in as_texts([np.zeros((3, 4)), [[0.0] * 4]], "example")]
    [(3, 4), (1, 4)]
    """
    if hasattr(embeddings, "ndim"):
        whole = as_array(embeddings)
        if whole.ndim not in (2, 3):
            raise invalid("embeddings", owner, "of shape (tokens, dim) or (texts, tokens, dim)", whole.shape)
        return [whole] if whole.ndim == 2 else list(whole)
    if not isinstance(embeddings, Sequence) or isinstance(embeddings, str):
        raise invalid("embeddings", owner, "an array, a tensor or a list of them", type(embeddings).__name__)
    texts = [as_array(text) for text in embeddings]
    if texts and all(text.ndim == 1 for text in texts):  # one text, given as a list of vectors
        texts = [np.stack(texts)]
    for text in texts:
        if text.ndim != 2:
            raise invalid("embeddings", owner, "of shape (tokens, dim) for each text", text.shape)
    return texts


def as_token_vectors(embeddings: Any, owner: str) -> TokenVectors:
    """Return the same as `TokenVectors`."""
    return TokenVectors.from_list(as_texts(embeddings, owner))
