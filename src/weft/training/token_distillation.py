"""Distillation at the level of S: the similarities that a teacher finds for each token, beside the scores of texts.

Scores of texts can be kept while everything below them moves. What a query token finds in a document, maxⱼ Sᵢⱼ, says
more: there are as many of these numbers as query tokens times documents, every text has them, judged or not, and a
model that keeps them ranks as its teacher does, on texts of any kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from weft.training.losses import Tokens

LEAST = 1e-12


def maxima(queries: Tokens, documents: Tokens) -> Tensor:
    """Return maxⱼ Sᵢⱼ of each query token in each document, (B, n, N); differentiable.

    A document without tokens has 0.
    """
    B, n, _ = queries.values.shape
    N, m, _ = documents.values.shape
    flat = queries.values.float().reshape(B * n, -1) @ documents.values.float().reshape(N * m, -1).T
    S = flat.reshape(B, n, N, m).masked_fill(~documents.mask, -torch.inf)
    return torch.where(documents.mask.any(dim=1), S.amax(dim=3), 0.0)


def unexplained(found: Tensor, taught: Tensor, counted: Tensor) -> Tensor:
    """Return the share of the teacher's variance that the student's maxima leave unexplained, between 0 and 1.

    Both are centred for each query token over the documents: what is added to all documents alike changes no ranking.
    One factor for the whole batch is free, so that a student may spread its similarities further than its teacher.

    Parameters
    ----------
    found, taught : Tensor, (B, n, N)
    counted : Tensor, (B, n), bool
        Query tokens that are compared.

    Examples
    --------
    >>> taught = torch.tensor([[[0.9, 0.1, 0.5], [0.4, 0.8, 0.3]]])
    >>> everything = torch.ones(1, 2, dtype=torch.bool)
    >>> round(unexplained(3 * taught - 1, taught, everything).item(), 6)
    0.0
    >>> round(unexplained(taught.flip(2), taught, everything).item(), 3)
    0.603
    """
    s, t = (values[counted] - values[counted].mean(dim=1, keepdim=True) for values in (found, taught.to(found)))
    explained = (s * t).sum().clamp_min(0) ** 2
    return 1 - explained / ((s * s).sum() * (t * t).sum()).clamp_min(LEAST)


def words(queries: Tokens) -> Tensor:
    """Return which query tokens are neither the first nor the last of their text, (B, n), bool.

    Those two stand for no word; in models with vectors of the whole text the student has something else there.
    """
    place = queries.mask.long().cumsum(dim=1)
    return queries.mask & (place > 1) & (place < place[:, -1:])
