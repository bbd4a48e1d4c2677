"""Prefix-aware weight-adaptive decoding: a head that depends on the prefix (GR eq. 17-19; NCI)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Pawa(nn.Module):
    """e_{i,v} = E_{i,v} d′_i: the embedding of token v at position i, made from the prefix before it.

    d′ are the outputs of a small causal transformer over the embedded prefix, with one learned vector as its memory, so
    that they do not depend on the query. E is a linear map d → d·V′: its position dependence comes through d′_i and
    through the vocabulary, in which each position has digits of its own.

    Parameters
    ----------
    dim : int
        d, the decoder's width.
    vocabulary : int
        V′.
    layers, heads : int
        Of the small transformer; NCI has 4 and 8.
    additive : bool
        Add the plain table: logits (W_i + Eᵀ)ᵀh, as NCI does. The paper's eq. 17 leaves it out.
    """

    def __init__(self, dim: int, vocabulary: int, layers: int = 4, heads: int = 8, additive: bool = True) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {
            "dim": dim,
            "vocabulary": vocabulary,
            "layers": layers,
            "heads": heads,
            "additive": additive,
        }
        self.additive = additive
        layer = nn.TransformerDecoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.prefixes = nn.TransformerDecoder(layer, layers, norm=nn.LayerNorm(dim))
        self.memory = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.projection = nn.Linear(dim, dim * vocabulary)
        # d′ is layer-normed, |d′|² = d: with this W_i begins small beside the table, whose entries have variance 1.
        nn.init.normal_(self.projection.weight, std=0.02)
        nn.init.zeros_(self.projection.bias)

    def embeddings(self, prefix: Tensor, positions: int) -> Tensor:
        """Return e_{i,v} for the last `positions` prefixes, (B, T, d, V′), from embedded prefixes (B, L, d)."""
        length = prefix.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=prefix.device).triu(1)  # True: may not be seen
        seen = self.prefixes(prefix, self.memory.expand(len(prefix), 1, -1), tgt_mask=causal)[:, -positions:]
        made: Tensor = self.projection(seen)
        return made.unflatten(-1, (prefix.shape[-1], -1))

    def forward(self, hidden: Tensor, prefix: Tensor, table: Tensor) -> Tensor:
        """Return the logits (B, T, V′) of scaled hidden states (B, T, d), eq. 17."""
        adapted = torch.einsum("btd,btdv->btv", hidden, self.embeddings(prefix, hidden.shape[1]))
        return adapted + hidden @ table.T if self.additive else adapted
