"""XTR's in-batch token retrieval (eq. 2) without the matrix of all similarities.

A batch of the paper, 256 queries of 64 tokens with 512 documents of 256, has two billion similarities: with the masks
that `weft.alignment.evaluate` makes of them and their gradients, 77 GiB. But a query token counts with at most k_train
document tokens. They are found for some query tokens at a time, and only k_train numbers for each query token are kept
and differentiated. The gradient of a similarity q·d is d with respect to q, and q with respect to d: two sparse
products. Scores and gradients are those of `evaluate`, except among equal similarities, of which the two may take
different ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from weft.alignment import InBatchTokenRetrieval
from weft.alignment.base import LEAST_Z

AT_ONCE = 2**25
"""Similarities in memory at one time: 128 MiB, and as much again for finding the best."""


class _Retrieved(torch.autograd.Function):
    """The k highest similarities of each query token, best first, and the document tokens they are with."""

    @staticmethod
    def forward(ctx: Any, Q: Tensor, D: Tensor, k: int, at_once: int) -> tuple[Tensor, Tensor]:
        """(R, dim), (T, dim) → similarities (R, k), numbers of document tokens (R, k)."""
        rows = max(1, at_once // max(1, len(D)))
        found = [(Q[start : start + rows] @ D.T).topk(k, dim=1) for start in range(0, len(Q), rows)]
        values, indices = (torch.cat(parts) for parts in zip(*found, strict=True))
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(Q, D, indices)
        return values, indices

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor, Tensor, None, None]:
        """∂L/∂Q = G D and ∂L/∂D = Gᵀ Q, G (R, T) having the gradients of the similarities retrieved."""
        Q, D, indices = ctx.saved_tensors
        gradient = upstream[0]
        counted = gradient != 0  # of a document one token counts, not all that were retrieved
        row = counted.nonzero()[:, 0]
        places = torch.stack([row, indices[counted]])
        G = torch.sparse_coo_tensor(places, gradient[counted], (len(Q), len(D)), check_invariants=False)
        return torch.sparse.mm(G, D), torch.sparse.mm(G.t(), Q), None, None


def score_in_batch(
    queries: tuple[Tensor, Tensor, Tensor | None],
    documents: tuple[Tensor, Tensor, Tensor | None],
    alignment: InBatchTokenRetrieval,
    *,
    at_once: int = AT_ONCE,
) -> Tensor:
    """Return f_XTR of all B queries with all N documents (eq. 2), (B, N); differentiable.

    Parameters
    ----------
    queries, documents : (vectors (B, n, dim), mask (B, n), saliences (B, n) or None), and the same for (N, m)
    alignment : InBatchTokenRetrieval
    at_once : int
        Similarities computed at a time.

    Examples
    --------
    >>> Q, D = torch.eye(2)[None], torch.tensor([[[0.9, 0.6]], [[0.7, 0.3]]])
    >>> sides = [(x, torch.ones(x.shape[:2], dtype=torch.bool), None) for x in (Q, D)]
    >>> score_in_batch(*sides, InBatchTokenRetrieval(1))  # both tokens retrieve the first document's
    tensor([[0.7500, 0.0000]])
    """
    (Q, query_mask, u_q), (D, document_mask, u_d) = queries, documents
    B, N = len(Q), len(D)
    asked, answered = query_mask.nonzero(), document_mask.nonzero()  # (R, 2), (T, 2): text, token
    k = min(alignment.k_train, len(answered))
    if not len(asked) or not k:
        return (Q.sum() + D.sum()) * 0 + Q.new_zeros(B, N)
    S, token = _Retrieved.apply(Q[query_mask], D[document_mask], k, at_once)  # type: ignore[no-untyped-call]
    document = answered[token, 0]  # (R, k)
    # Similarities fall from left to right: the first token of a document in a row is the one that counts.
    order = document.argsort(dim=1, stable=True)
    ordered = document.gather(1, order)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    row, place = new.nonzero(as_tuple=True)
    column = order[row, place]
    S, token, document = S[row, column], token[row, column], document[row, column]  # (P,)
    A = torch.ones_like(S)
    if u_q is not None:
        A = A * u_q[query_mask][row]
    if u_d is not None:
        A = A * u_d[document_mask][token]
    pair = asked[row, 0] * N + document
    total = S.new_zeros(B * N).index_add(0, pair, S * A).reshape(B, N)
    if alignment.z == "one":
        return total
    if alignment.z == "query":
        Z = query_mask.sum(1, keepdim=True).to(S).expand(B, N)
    else:
        Z = S.new_zeros(B * N).index_add(0, pair, A).reshape(B, N)
        Z = torch.where((Z > 0) & (Z < LEAST_Z), torch.full_like(Z, LEAST_Z), Z)
    return torch.where(Z > 0, total / torch.where(Z > 0, Z, 1), 0)


def memory(queries: int, n: int, documents: int, m: int, k: int, dim: int) -> int:
    """Estimate the bytes that `score_in_batch` needs for a whole batch beside the vectors, forward and backward.

    Examples
    --------
    >>> round(memory(256, 64, 512, 256, k=128, dim=128) / 2**30, 1)  # the paper's batch
    0.5
    """
    rows, tokens = queries * n, documents * m
    finding = 3 * 4 * min(AT_ONCE, rows * tokens)
    # Kept of each token retrieved: similarity, token, document, order, gradient; then the vectors' own gradients.
    return finding + rows * min(k, tokens) * (4 + 3 * 8 + 2 * 4) // 2 + (rows + tokens) * dim * 4
