"""The relevance of a real T5 taken apart: how much of a logit is Σ S∘A, and how much is something else.

The last state of a T5's decoder is the sum of what each sublayer added to it, divided by its own size (RMSNorm):

    x_i = embedding + Σ self-attention + Σ cross-attention + Σ feed-forward
    logit_i = u_iᵀ x_i,        u_i = g ∘ e_{d_i} / rms(x_i)

So once rms(x_i) is given, a logit is a sum of four parts. That of cross-attention is eq. 14, for every layer and head:
ẽ_iᵀ = u_iᵀ W_O W_V, S = Q Ẽᵀ, A the attention of that head. One decoder layer without the rest would have it alone
(`weft.generative.attention`). Residuals (the embedding part), self-attention and feed-forward layers, through which
cross-attention reaches the logit a second time, and RMSNorm's division keep eq. 11-16 from being all of a real model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from weft.alignment import aligned, score
from weft.errors import DataError
from weft.generative.model import IGNORED, START, Encoded, GenerativeModel, padded
from weft.types import Hits, Ranking

PARTS = ("embedding", "self-attention", "cross-attention", "feed-forward")


@dataclass(frozen=True, eq=False)
class Trace:
    """What a decoder did with targets, one row for each; B rows, N query tokens, M target tokens.

    Padded positions hold numbers that mean nothing; `mask` and `query_mask` tell.
    """

    query: Tensor
    """Q, the encoder's output, (B, N, d)."""
    query_mask: Tensor
    mask: Tensor
    """Real target tokens, (B, M), bool."""
    logit: Tensor
    """e_{d_i}ᵀ h_i of each target token (eq. 11), (B, M)."""
    log_p: Tensor
    """log p(d_i | d_0 … d_{i−1}, q), (B, M)."""
    parts: dict[str, Tensor]
    """What each of `PARTS` adds to the logit, (B, M); they sum to it."""
    vectors: Tensor
    """u, (B, M, d)."""
    plain: Tensor
    """The vectors that the logits are products with before RMSNorm is accounted for: e_{d_i}, scaled as the head does,
    (B, M, d)."""
    states: list[Tensor]
    """What the cross-attention of each layer reads, after its norm, (B, M, d)."""
    modules: list[Any]
    """The cross-attention of each layer."""

    @property
    def layers(self) -> int:
        """Layers of the decoder."""
        return len(self.modules)

    @property
    def heads(self) -> int:
        """Heads of each."""
        return int(self.modules[0].n_heads)

    @torch.no_grad()
    def attention(self, layer: int) -> Tensor:
        """Return A of every head of a layer, (B, heads, N, M): softmax(Q W D̂ᵀ) over the query, no 1/√d in T5."""
        module = self.modules[layer]
        keys = _by_head(module.k(self.query), module)  # (B, H, N, dk)
        queries = _by_head(module.q(self.states[layer]), module)  # (B, H, M, dk)
        logits = keys @ queries.transpose(-1, -2)
        logits = logits.masked_fill(~self.query_mask.bool()[:, None, :, None], -torch.inf)
        return logits.softmax(dim=-2)

    @torch.no_grad()
    def document_vectors(self, layer: int, *, norm: bool = True) -> Tensor:
        """Return Ẽ of every head of a layer, (B, heads, M, d): u_iᵀ W_O W_V, or without RMSNorm e_{d_i}ᵀ W_O W_V."""
        module = self.modules[layer]
        through = _by_head((self.vectors if norm else self.plain) @ module.o.weight, module)  # (B, H, M, dk)
        values = module.v.weight.unflatten(0, (module.n_heads, -1))  # (H, dk, d)
        return through @ values

    @torch.no_grad()
    def interaction(self, layer: int) -> Tensor:
        """Return W = W_Kᵀ W_Q of every head of a layer, (heads, d, d), as `attention_alignment` takes it."""
        module = self.modules[layer]
        keys = module.k.weight.unflatten(0, (module.n_heads, -1))
        queries = module.q.weight.unflatten(0, (module.n_heads, -1))
        return keys.transpose(-1, -2) @ queries

    def relevance(self, row: int, *, norm: bool = True) -> float:
        """Return Σ S∘A over all layers and heads (eq. 14), by `weft.score`: a document token counts once a head.

        With `norm` it is the cross-attention part of the row's logits; without, eq. 14 as it stands, which knows no
        RMSNorm.
        """
        Q, D, A = self._flat(row, norm)
        return float(score(Q, D, "attention", attention=A))

    def ranking(self, row: int, name: str = "document") -> Ranking:
        """Return the cross-attention part as a ranking of one document, with every pair of tokens, for `weft.explain`.

        The weight of a pair is A, the mean over heads and layers; its similarity is what makes the product right.
        """
        Q, D, A = self._flat(row, True)
        n = len(Q)
        terms = aligned(Q, D, "attention", attention=A)
        each = (terms.similarity * terms.alignment).reshape(n, self.layers * self.heads, -1)
        added, weight = each.sum(1).double().numpy(), A.reshape(each.shape).mean(1).double().numpy()
        similarity = np.divide(added, weight, out=np.zeros_like(added), where=weight > 0)
        return ranking_of(similarity, weight, 1.0, name)

    def _flat(self, row: int, norm: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return Q (n, d), Ẽ (layers · heads · m, d) and A (n, layers · heads · m) of a row, without padding."""
        real, asked = self.mask[row], self.query_mask[row].bool()
        vectors = [self.document_vectors(layer, norm=norm)[row][:, real] for layer in range(self.layers)]
        weights = [self.attention(layer)[row][:, asked][:, :, real] for layer in range(self.layers)]
        A = torch.cat(weights).permute(1, 0, 2)  # (n, layers · heads, m)
        return self.query[row][asked], torch.cat(vectors).flatten(0, 1), A.flatten(1)


def trace(model: GenerativeModel, encoded: Encoded, targets: Sequence[Sequence[int]]) -> Trace:
    """Run the decoder over targets, teacher-forced, and keep what its sublayers add.

    Parameters
    ----------
    model : GenerativeModel
        In evaluation mode: dropout would break the sums.
    encoded : Encoded
        Queries after the encoder, one a target.
    targets : token ids in the decoder's vocabulary, each at least one
    """
    if model.training:
        raise DataError("a model in training mode cannot be traced: call model.eval()")
    if len(targets) != len(encoded.hidden) or not all(len(target) for target in targets):
        raise DataError(f"a target of at least one token is needed for each of the {len(encoded.hidden)} queries")
    labels, mask = (tensor.to(model.device) for tensor in padded(targets, IGNORED))
    known = labels.masked_fill(labels == IGNORED, START)
    prefix = torch.cat([torch.full_like(known[:, :1], START), known[:, :-1]], 1)  # right-shifted
    blocks: Any = model.t5.decoder.block
    with torch.no_grad(), _kept(blocks) as kept:
        embedded = model.embed(prefix)
        hidden = model.t5.decoder(
            inputs_embeds=embedded,
            encoder_hidden_states=encoded.hidden,
            encoder_attention_mask=encoded.mask,
            use_cache=False,
        ).last_hidden_state
    # Every head here is linear in its input, PAWA's too: the gradient is the vector that the logit is a product with.
    with torch.enable_grad():
        leaf = hidden.detach().requires_grad_()
        logits = model.logits(leaf, prefix)
        logit = logits.gather(-1, known.unsqueeze(-1)).squeeze(-1)
        (plain,) = torch.autograd.grad(logit.sum(), leaf)
    with torch.no_grad():
        last = model.t5.decoder.final_layer_norm
        x = kept.output
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + last.variance_epsilon)
        vectors = plain * last.weight * scale
        added = {"embedding": embedded} | {name: torch.stack(kept.added[name]).sum(0) for name in PARTS[1:]}
        return Trace(
            query=encoded.hidden.detach(),
            query_mask=encoded.mask,
            mask=mask.bool(),
            logit=logit.detach(),
            log_p=logits.detach().log_softmax(-1).gather(-1, known.unsqueeze(-1)).squeeze(-1),
            parts={name: (vectors * part).sum(-1) for name, part in added.items()},
            vectors=vectors,
            plain=plain,
            states=kept.states,
            modules=[block.layer[1].EncDecAttention for block in blocks],
        )


def ranking_of(similarity: NDArray[Any], weight: NDArray[Any], z: float, name: str = "document") -> Ranking:
    """Return a ranking of one document whose hits are all pairs with A ≠ 0, for `weft.explain`.

    Parameters
    ----------
    similarity, weight : arrays, shape (n, m)
        S and A.
    z : float
    name : str

    Examples
    --------
    >>> ranking = ranking_of(np.array([[1.0, 2.0]]), np.array([[0.5, 0.25]]), 2.0, "d")
    >>> ranking[0], ranking.contributions(0).tolist()
    (Result(id='d', score=0.5), [0.25, 0.25])
    """
    rows, columns = np.nonzero(weight)
    kept = similarity[rows, columns], weight[rows, columns]
    hits = Hits(rows.astype(np.int32), np.zeros(len(rows), np.int64), columns.astype(np.int32), *kept)
    total = float((similarity * weight).sum()) / z
    return Ranking([name], np.array([total], np.float32), [hits], z=np.array([z], np.float32))


class _Kept:
    def __init__(self) -> None:
        self.added: dict[str, list[Tensor]] = {name: [] for name in PARTS[1:]}
        self.states: list[Tensor] = []
        self.output: Tensor = torch.empty(0)


@contextmanager
def _kept(blocks: Any) -> Iterator[_Kept]:
    """Keep what each sublayer adds to the residual stream, and what cross-attention reads, while the decoder runs."""
    kept, hooks = _Kept(), []

    def adding(name: str) -> Any:
        def hook(module: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG001
            after = output[0] if isinstance(output, tuple) else output
            kept.added[name].append(after - inputs[0])
            kept.output = after

        return hook

    def reading(module: Any, inputs: tuple[Any, ...]) -> None:  # noqa: ARG001
        kept.states.append(inputs[0])

    try:
        for block in blocks:
            for name, layer in zip(PARTS[1:], block.layer, strict=True):
                hooks.append(layer.register_forward_hook(adding(name)))
            hooks.append(block.layer[1].EncDecAttention.register_forward_pre_hook(reading))
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


def _by_head(states: Tensor, module: Any) -> Tensor:
    """(B, tokens, heads · dk) → (B, heads, tokens, dk)."""
    return states.unflatten(-1, (module.n_heads, -1)).transpose(1, 2)
