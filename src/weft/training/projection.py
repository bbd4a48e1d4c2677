"""Where the projection of a base's states begins: at random, at a PCA, or fitted to what the base finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from sentence_transformers.base.modules import Dense, Transformer
from torch import Tensor, nn
from tqdm import tqdm

from weft.encoders.whole_text import PARTS, WholeTextProjection
from weft.errors import DataError
from weft.training.fitted_projection import Group, fit, states_of
from weft.training.recipes import ModelSettings

PCA_TEXTS = 3072
"""The PCA looks at this many texts. With 256 the trained model was a quarter of a point worse on dev."""

CENTRE = 0.8
"""The share of the average subtracted from vectors that are projected with a bias (docs/notes/weft-small.md)."""


def build_projection(
    settings: ModelSettings, transformer: Transformer, texts: Sequence[str], groups: Sequence[Group] = ()
) -> nn.Module:
    """Build the projection of a recipe; `texts` are for the PCA, `groups` for fitting."""
    hidden = transformer.get_embedding_dimension()
    if settings.dim > hidden:
        raise DataError(f"model.dim must be at most {hidden}, the width of {settings.base}; got {settings.dim}")
    moments = None
    if settings.projection in ("pca", "fitted"):
        moments = state_moments(transformer, texts[:PCA_TEXTS])
    if settings.whole_text:
        projection = WholeTextProjection(hidden, settings.dim)
        if moments is not None:
            tokens, means = moments
            weight, bias = tokens.directions(settings.dim, CENTRE)
            projection.token.weight.data, projection.token.bias.data = weight, tokens.length * bias
            begin_whole_text(projection, means)
        if settings.projection == "fitted":
            fit(projection.token, transformer, groups)
        return projection
    dense = Dense(
        hidden,
        settings.dim,
        bias=False,
        activation_function=None,
        init_weight=None if moments is None else moments[0].directions(settings.dim)[0],
        module_input_name="token_embeddings",
    )
    if settings.projection == "fitted":
        fit(dense.linear, transformer, groups)
    return dense


@dataclass
class Moments:
    """First and second moment of vectors divided by their lengths, and the lengths, summed up."""

    count: int
    first: Tensor
    second: Tensor
    lengths: float = 0.0

    @classmethod
    def none(cls, width: int) -> Moments:
        """Return the moments of no vectors."""
        return cls(0, torch.zeros(width, dtype=torch.float64), torch.zeros(width, width, dtype=torch.float64))

    def add(self, vectors: Tensor) -> None:
        """Add vectors, (n, width), each divided by its length."""
        self.lengths += vectors.double().norm(dim=-1).sum().item()
        vectors = nn.functional.normalize(vectors.double(), dim=-1)
        self.count += len(vectors)
        self.first += vectors.sum(0)
        self.second += vectors.T @ vectors

    @property
    def length(self) -> float:
        """The mean length of the vectors: what a bias for unit vectors is multiplied by for those as they are."""
        return self.lengths / max(self.count, 1)

    def directions(self, dim: int, centre: float = 0.0) -> tuple[Tensor, Tensor]:
        """Return the strongest directions W (dim, width) of unit vectors x − centre·μ, and the bias −W·centre·μ (dim,).

        Without centring these keep most of the inner products, not of the variance.
        """
        mean = self.first / max(self.count, 1)
        second = self.second / max(self.count, 1) - centre * (2 - centre) * torch.outer(mean, mean)
        _, vectors = torch.linalg.eigh(second)  # ascending
        weight = vectors[:, -dim:].flip(1).T.contiguous()
        return weight.float(), -(weight @ (centre * mean)).float()


def state_moments(transformer: Transformer, texts: Sequence[str]) -> tuple[Moments, Moments]:
    """Return the moments of the token states of `texts`, and of the texts' mean states."""
    if not texts:
        raise DataError("a PCA projection needs some documents to look at")
    hidden = transformer.get_embedding_dimension()
    tokens, means = Moments.none(hidden), Moments.none(hidden)
    for states, real in tqdm(states_of(transformer, texts), desc="PCA", disable=None, leave=False):
        tokens.add(states[real])
        means.add((states * real[..., None]).sum(1))  # divided by its length anyway
    return tokens, means


def with_whole_text(dense: Dense, transformer: Transformer, texts: Sequence[str]) -> WholeTextProjection:
    """Return a projection that keeps `dense` for tokens, and begins at a PCA for texts."""
    projection = WholeTextProjection(dense.in_features, dense.out_features)
    _, means = state_moments(transformer, texts[:PCA_TEXTS])
    begin_whole_text(projection, means)
    projection.token.weight.data = dense.linear.weight.detach().clone()
    projection.token.bias.data = torch.zeros(dense.out_features)
    if dense.linear.bias is not None:
        projection.token.bias.data = dense.linear.bias.detach().clone()
    return projection


def begin_whole_text(projection: WholeTextProjection, means: Moments, seed: int = 0) -> None:
    """Begin the vectors of whole texts at the centred PCA of means, with the dimensions of both, rotated at random.

    After the rotation both parts say equally much, and neither resembles a token.
    """
    most = PARTS * projection.out_features
    weight, bias = means.directions(min(most, projection.in_features), CENTRE)
    generator = torch.Generator().manual_seed(seed)
    turn, _ = torch.linalg.qr(torch.randn(most, len(weight), generator=generator))
    projection.text.weight.data, projection.text.bias.data = turn @ weight, turn @ bias
