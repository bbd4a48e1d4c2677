"""A T5 for decoding one token of every beam at a time, in a loop made for few rows on a CPU.

The weights are laid out for products of a dozen rows, one for each beam (`weft.generative.products`), once for each
model; the keys and values of a query are computed once and shared by its beams. The logits are the same, but for
rounding where the model decodes in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from weft.generative.model import START, GenerativeModel, padded
from weft.generative.products import Bytes, Floats


class _Layer:
    """The weights of one block, encoder's or decoder's."""

    def __init__(self, block: Any, product: type[Floats | Bytes]) -> None:
        attention, dense = block.layer[0].SelfAttention, block.layer[-1].DenseReluDense
        self.heads = int(attention.n_heads)
        self.norms = [layer.layer_norm for layer in block.layer]
        self.self_qkv = product(attention.q, attention.k, attention.v)
        self.self_o = product(attention.o)
        if len(block.layer) == 3:
            cross = block.layer[1].EncDecAttention
            self.cross_q, self.cross_kv, self.cross_o = product(cross.q), product(cross.k, cross.v), product(cross.o)
        self.gated = hasattr(dense, "wi_0")
        self.act = _gelu if type(dense.act).__name__ == "NewGELUActivation" else dense.act
        self.wi = product(dense.wi_0, dense.wi_1) if self.gated else product(dense.wi)
        self.wo = product(dense.wo)

    def feed_forward(self, x: Tensor) -> Tensor:
        h = self.wi(x)
        if self.gated:
            gate, linear = h.chunk(2, dim=-1)
            return self.wo(self.act(gate) * linear)
        return self.wo(self.act(h))


class _Weights:
    """All layers of a model, and its head."""

    def __init__(self, model: GenerativeModel) -> None:
        encoder: Any = model.t5.encoder
        decoder: Any = model.t5.decoder
        self.embedding = encoder.embed_tokens
        product = Bytes if model.decodes_in_bytes else Floats
        self.reading = [_Layer(block, Floats) for block in encoder.block]  # once a query, for all that follows
        self.layers = [_Layer(block, product) for block in decoder.block]
        self.biases = [stack.block[0].layer[0].SelfAttention for stack in (encoder, decoder)]
        self.finals = [stack.final_layer_norm for stack in (encoder, decoder)]
        self.head = product(model.t5.lm_head) if model.table is None else None
        self.scale = model.dim**-0.5 if model.t5.config.scale_decoder_outputs else 1.0
        self.versions = _versions(model)

    def encode(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Run the encoder over padded token ids, (B, N) → (B, N, d)."""
        x = self.embedding(ids)
        length = ids.shape[1]
        bias = self.biases[0].compute_bias(length, length)  # (1, H, N, N)
        bias = bias.masked_fill(mask[:, None, None, :] == 0, -torch.inf)
        for layer in self.reading:
            q, k, v = (_by_head(p, layer.heads) for p in layer.self_qkv(_normed(layer.norms[0], x)).chunk(3, dim=-1))
            A = (q @ k.transpose(-1, -2) + bias).softmax(-1)
            x = x + layer.self_o((A @ v).transpose(1, 2).flatten(2))
            x = x + layer.feed_forward(_normed(layer.norms[1], x))
        return _normed(self.finals[0], x)


_known: WeakKeyDictionary[GenerativeModel, _Weights] = WeakKeyDictionary()


def _weights(model: GenerativeModel) -> _Weights:
    """Return the weights of a model laid out for decoding, again if they were trained since."""
    found = _known.get(model)
    if found is None or found.versions != _versions(model):
        found = _known[model] = _Weights(model)
    return found


def _versions(model: GenerativeModel) -> tuple[Any, ...]:
    """What changes when a weight does: where it is, and how often it was written to."""
    parts = [*model.t5.parameters()]
    written = tuple((p.data_ptr(), 0 if p.is_inference() else p._version, p.dtype) for p in parts)
    return (model.decodes_in_bytes, *written)


class Decoder:
    """The decoder's side of a batch of queries: one row a beam, keys and values of earlier positions kept.

    Any rows can be chosen at each step, so a beam that has ended costs nothing.
    """

    def __init__(self, model: GenerativeModel, ids: Sequence[Sequence[int]]) -> None:
        self.model, self._weights = model, _weights(model)
        tokens, mask = (tensor.to(model.device) for tensor in padded(ids, START))
        hidden = self._weights.encode(tokens, mask)
        n = len(ids)
        self._prefix = torch.full((n, 1), START, dtype=torch.int64, device=model.device)
        self._owner = torch.arange(n, device=model.device)
        self._padding = torch.zeros(mask.shape, dtype=hidden.dtype, device=model.device)
        self._padding.masked_fill_(mask == 0, -torch.inf)
        self._cross = []  # of each layer: keys (n, H, dk, N) and values (n, H, N, dk)
        for layer in self._weights.layers:
            keys, values = (_by_head(part, layer.heads) for part in layer.cross_kv(hidden).chunk(2, dim=-1))
            self._cross.append((keys.transpose(-1, -2).contiguous(), values.contiguous()))
        self._past: list[tuple[Tensor, Tensor] | None] = [None] * len(self._weights.layers)

    def logits(self) -> Tensor:
        """Return the logits of the next token of each row, (rows, V)."""
        weights = self._weights
        x = self.model.embed(self._prefix[:, -1])  # (R, d)
        length = self._prefix.shape[1]
        bias = weights.biases[1].compute_bias(length, length)[:, :, -1:, :]  # (1, H, 1, L)
        padding = self._padding[self._owner][:, None, None, :]  # (R, 1, 1, N)
        alone = len(self._padding) == 1
        for number, layer in enumerate(weights.layers):
            normed = _normed(layer.norms[0], x)
            q, k, v = (_by_head(part[:, None], layer.heads) for part in layer.self_qkv(normed).chunk(3, dim=-1))
            before = self._past[number]
            if before is not None:
                k, v = torch.cat([before[0], k], 2), torch.cat([before[1], v], 2)
            self._past[number] = k, v  # (R, H, L, dk)
            A = (q @ k.transpose(-1, -2) + bias).softmax(-1)
            x = x + layer.self_o((A @ v).flatten(1))
            keys, values = self._cross[number]
            q = layer.cross_q(_normed(layer.norms[1], x)).unflatten(-1, (layer.heads, -1))  # (R, H, dk)
            if alone:  # all rows are of one query: one product for all of them
                A = (q.transpose(0, 1) @ keys[0] + padding[0]).softmax(-1)  # (H, R, N)
                read = (A @ values[0]).transpose(0, 1)
            else:
                A = (q[:, :, None] @ keys[self._owner] + padding).softmax(-1)  # (R, H, 1, N)
                read = (A @ values[self._owner])[:, :, 0]
            x = x + layer.cross_o(read.flatten(1))
            x = x + layer.feed_forward(_normed(layer.norms[2], x))
        hidden = _normed(weights.finals[1], x)
        if weights.head is None:
            return self.model.logits(hidden[:, None], self._prefix)[:, -1]
        return weights.head(hidden * weights.scale)

    def advance(self, rows: NDArray[np.int64], tokens: NDArray[np.int32]) -> None:
        """Keep the chosen rows, each one token longer."""
        chosen = torch.from_numpy(rows).to(self.model.device)
        said = torch.from_numpy(tokens.astype(np.int64)).to(self.model.device)
        self._prefix = torch.cat([self._prefix[chosen], said[:, None]], 1)
        if len(rows) == len(self._owner) and np.array_equal(rows, np.arange(len(rows))):
            return
        self._owner = self._owner[chosen]
        self._past = [None if past is None else (past[0][chosen], past[1][chosen]) for past in self._past]


def _normed(norm: Any, x: Tensor) -> Tensor:
    """T5's norm, RMSNorm without a bias, as one operation."""
    return functional.rms_norm(x, x.shape[-1:], norm.weight, norm.variance_epsilon)


def _gelu(x: Tensor) -> Tensor:
    """T5 v1.1's activation as one operation."""
    return functional.gelu(x, approximate="tanh")


def _by_head(states: Tensor, heads: int) -> Tensor:
    """(B, tokens, heads · dk) → (B, heads, tokens, dk)."""
    return states.unflatten(-1, (heads, -1)).transpose(1, 2)
