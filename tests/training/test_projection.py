"""Where projections begin: the PCA against NumPy's, and what two vectors of a text add up to."""

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="needs the torch extra: pip install 'weft-search[torch]'")
pytest.importorskip("sentence_transformers", reason="needs the torch extra: pip install 'weft-search[torch]'")

from weft.encoders.whole_text import WholeTextProjection
from weft.training.projection import CENTRE, Moments, begin_whole_text


@pytest.fixture
def vectors():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(200, 12, generator=generator) * torch.linspace(3, 0.2, 12) + 1


def moments(vectors):
    found = Moments.none(vectors.shape[1])
    for part in vectors.split(64):
        found.add(part)
    return found


@pytest.mark.parametrize("centre", [0.0, 0.8, 1.0])
def test_directions_are_those_of_a_pca(vectors, centre):
    weight, bias = moments(vectors).directions(5, centre)
    unit = vectors.double().numpy()
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    off = unit - centre * unit.mean(axis=0)
    _, _, expected = np.linalg.svd(off, full_matrices=False)
    # The same space, whatever the signs; and the bias takes off what centring does.
    assert np.allclose(weight.T @ weight, expected[:5].T @ expected[:5], atol=1e-5)
    assert np.allclose(unit @ weight.numpy().T + bias.numpy(), off @ weight.numpy().T, atol=1e-5)


def test_the_two_vectors_of_a_text_keep_what_its_mean_says(vectors):
    projection = WholeTextProjection(12, 4)
    begin_whole_text(projection, moments(vectors))
    parts = projection.of_texts(vectors).detach()
    assert parts.shape == (200, 2, 4)
    weight, bias = moments(vectors).directions(8, CENTRE)
    kept = torch.nn.functional.normalize(vectors, dim=-1) @ weight.T + bias
    both = parts.flatten(1)
    assert torch.allclose(both @ both.T, kept @ kept.T, atol=1e-5)
    own = (parts[:, 0] * parts[:, 0]).sum(1).mean()
    across = (parts[:, 0] * parts[:, 1]).sum(1).abs().mean()
    assert across < own  # a half is like the same half of another text, not like the other half


def test_more_parts_than_dimensions(vectors):
    projection = WholeTextProjection(12, 10)
    begin_whole_text(projection, moments(vectors))
    assert projection.of_texts(vectors).shape == (200, 2, 10)


def test_padding_changes_nothing():
    torch.manual_seed(2)
    projection = WholeTextProjection(6, 3)
    states = torch.randn(1, 4, 6)
    alone = projection({"token_embeddings": states, "attention_mask": torch.ones(1, 4)})["token_embeddings"]
    padded = torch.cat([states, torch.randn(1, 3, 6)], dim=1)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0, 0]])
    found = projection({"token_embeddings": padded, "attention_mask": mask})["token_embeddings"]
    assert torch.allclose(found[:, :4], alone, atol=1e-6)
    assert torch.allclose(alone[0, 1:3], projection.token(states[0, 1:3]))
