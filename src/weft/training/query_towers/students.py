"""The two kinds of query towers as torch modules: `Layered` (``fast``) and `Static`.

Both take token ids (B, T), texts of one length without padding, and return unit vectors (B, T, dim) and saliences
before the gate (B, T). The first and the last vector stand for the whole text (`WholeTextProjection`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from weft.encoders.query_towers import POSITIONS, TYPES, WORDS
from weft.errors import invalid
from weft.training.query_towers.weights import Weights


class Layer(nn.Module):
    """One of BERT's layers, with query, key and value in one product and no mask."""

    def __init__(self, width: int, heads: int, intermediate: int) -> None:
        super().__init__()
        self.heads = heads
        self.attend = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.attended_norm = nn.LayerNorm(width, eps=1e-12)
        self.widen = nn.Linear(width, intermediate)
        self.narrow = nn.Linear(intermediate, width)
        self.narrow_norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, states: Tensor) -> Tensor:
        """(B, T, width) → the same."""
        texts, tokens, width = states.shape
        size = width // self.heads
        q, k, v = self.attend(states).view(texts, tokens, 3, self.heads, size).permute(2, 0, 3, 1, 4)
        attended = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(size), -1) @ v  # (B, heads, T, size)
        states = self.attended_norm(states + self.attended(attended.transpose(1, 2).reshape(texts, tokens, width)))
        narrowed: Tensor = self.narrow_norm(states + self.narrow(F.gelu(self.widen(states))))
        return narrowed

    @torch.no_grad()
    def take(self, weights: Weights, number: int) -> None:
        """Begin as a layer of the model does; of its wide middle, keep what has the largest weights."""
        name = f"layer.{number}."
        parts = [f"{name}attention.self.{part}" for part in ("query", "key", "value")]
        _set(self.attend.weight, np.concatenate([weights[f"{part}.weight"] for part in parts], axis=1).T)
        _set(self.attend.bias, np.concatenate([weights[f"{part}.bias"] for part in parts]))
        _take(self.attended, weights, f"{name}attention.output.dense")
        _take(self.attended_norm, weights, f"{name}attention.output.LayerNorm")
        wide, narrow = weights[f"{name}intermediate.dense.weight"], weights[f"{name}output.dense.weight"]
        if self.widen.out_features > wide.shape[1]:
            least = f"at most the model's {wide.shape[1]}"
            raise invalid("tower.intermediate", "the recipe", least, self.widen.out_features)
        strength = np.linalg.norm(wide, axis=0) * np.linalg.norm(narrow, axis=1)
        kept = np.sort(np.argsort(-strength)[: self.widen.out_features])
        _set(self.widen.weight, wide[:, kept].T)
        _set(self.widen.bias, weights[f"{name}intermediate.dense.bias"][kept])
        _set(self.narrow.weight, narrow[kept].T)
        _set(self.narrow.bias, weights[f"{name}output.dense.bias"])
        _take(self.narrow_norm, weights, f"{name}output.LayerNorm")


class Layered(nn.Module):
    """A few layers of the model, its embeddings as they are, its heads, and a table that adds a vector for each token.

    Parameters
    ----------
    weights : Weights
        The model's, to begin with.
    layers : sequence of int
        Which of its layers to take.
    intermediate : int
        Width of their middle, at most the model's.
    heads : int
        Attention heads of the model.
    """

    words: Tensor
    positions: Tensor

    def __init__(self, weights: Weights, layers: Sequence[int], intermediate: int, heads: int) -> None:
        super().__init__()
        self.register_buffer("words", torch.from_numpy(weights[WORDS]), persistent=False)
        positions = torch.from_numpy(weights[POSITIONS] + weights[TYPES][0])
        self.register_buffer("positions", positions, persistent=False)
        width, dim = self.words.shape[1], len(weights["token.bias"])
        self.norm = nn.LayerNorm(width, eps=1e-12)
        made = [Layer(width, heads, intermediate) for _ in layers]
        self.layers = nn.ModuleList(made)
        self.token = nn.Linear(width, dim)
        self.text = nn.Linear(width, 2 * dim)
        self.salience = nn.Linear(width, 1)
        self.table = nn.Parameter(torch.zeros(len(self.words), dim))
        _take(self.norm, weights, "embeddings.LayerNorm")
        for layer, number in zip(made, layers, strict=True):
            layer.take(weights, number)
        _take(self.token, weights, "token")
        _take(self.text, weights, "text")
        if "query.weight" in weights and "2.query.weight" in weights:
            _take(self.salience, weights, "2.query")

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Token ids (B, T) → vectors (B, T, dim) and saliences (B, T)."""
        return self.encode(ids, self.words[ids] + self.positions[: ids.shape[1]])

    def encode(self, ids: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """The part that becomes a graph: token ids (B, T), and embeddings (B, T, width) before their norm."""
        states = self.states(embedded)
        vectors = self.token(states) + F.embedding(ids, self.table)
        both = self.text(self.of_text(states)).view(len(states), 2, -1)
        vectors = torch.cat([both[:, :1], vectors[:, 1:-1], both[:, 1:]], 1)
        return F.normalize(vectors, dim=-1), torch.relu(self.salience(states))[..., 0]

    def states(self, embedded: Tensor) -> Tensor:
        """Embeddings (B, T, width) → the last layer's states."""
        states: Tensor = self.norm(embedded)
        for layer in self.layers:
            states = layer(states)
        return states

    def of_text(self, states: Tensor) -> Tensor:
        """The direction of the states' mean, (B, 1, width)."""
        return F.normalize(states.mean(1, keepdim=True), dim=-1)


class Static(nn.Module):
    """A table of token vectors, plus linear functions of a token's neighbours and of the text's weighted mean.

    Parameters
    ----------
    tokens : int
        Size of the vocabulary.
    dim : int
        Dimension of the vectors.
    """

    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(tokens, dim))
        self.weight = nn.Parameter(torch.zeros(tokens))
        self.salient = nn.Parameter(torch.zeros(tokens))
        self.neighbours = nn.Linear(3 * dim, dim)
        self.text = nn.Linear(2 * dim, 2 * dim)
        self.salience = nn.Linear(3 * dim, 1)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Token ids (B, T) → vectors (B, T, dim) and saliences (B, T)."""
        own, around = self.around(ids)
        vectors = own + self.neighbours(around)
        both = self.text(self.of_text(vectors, around)).view(len(ids), 2, -1)
        vectors = torch.cat([both[:, :1], vectors[:, 1:-1], both[:, 1:]], 1)
        scores = torch.relu(self.salient[ids] + self.salience(around)[..., 0])
        return F.normalize(vectors, dim=-1), scores

    def around(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens' own vectors (B, T, d), and those before and after them with the mean: (B, T, 3d)."""
        own = self.table[ids]
        share = torch.softmax(self.weight[ids], -1)[..., None]
        mean = (share * own).sum(1, keepdim=True).expand_as(own)
        none = torch.zeros_like(own[:, :1])
        before, after = torch.cat([none, own[:, :-1]], 1), torch.cat([own[:, 1:], none], 1)
        return own, torch.cat([before, after, mean], -1)

    def of_text(self, vectors: Tensor, around: Tensor) -> Tensor:
        """Return what tells of the whole text: its weighted mean, and the mean of the finished vectors, (B, 2d)."""
        return torch.cat([around[:, 0, -vectors.shape[-1] :], vectors.mean(1)], -1)


def _take(module: nn.Linear | nn.LayerNorm, weights: Weights, name: str) -> None:
    weight = weights[f"{name}.weight"]
    _set(module.weight, weight.T if isinstance(module, nn.Linear) else weight)
    _set(module.bias, weights[f"{name}.bias"])


@torch.no_grad()
def _set(parameter: Tensor, value: NDArray[np.float32]) -> None:
    parameter.copy_(torch.from_numpy(np.ascontiguousarray(value)))
