"""Where projections begin: the PCA against NumPy's, what two vectors of a text add up to, and what fitting keeps."""

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="needs the torch extra: pip install 'weft-search[torch]'")
pytest.importorskip("sentence_transformers", reason="needs the torch extra: pip install 'weft-search[torch]'")

from weft.encoders.whole_text import WholeTextProjection
from weft.errors import DataError
from weft.training import projection as projections
from weft.training.fitted_projection import Group, fit
from weft.training.model import build_model, load_transformer
from weft.training.projection import CENTRE, Moments, begin_whole_text, state_moments
from weft.training.recipes import ModelSettings


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


TEXTS = [
    "the red cat sat on the round mat",
    "a blue bird sings in the rain",
    "mars is a small red planet",
    "why is the sky blue, and the rain wet?",
    "a cat and a bird on one round mat",
    "the rain on mars is dust",
]


def settings_of(base, **others):
    return ModelSettings(base=str(base), dropout=0.0, query_length=16, document_length=32, **others)


def test_the_average_is_taken_off_states_of_any_length(tiny_bert):
    """The bias was that of unit vectors, while the states of an encoder are about √hidden long: next to nothing."""
    settings = settings_of(tiny_bert, dim=6, whole_text=True)
    transformer = load_transformer(settings)
    with torch.no_grad():
        for name in ("weight", "bias"):
            getattr(projections_norm(transformer), name).mul_(30)  # longer states, the same directions
    tokens, _ = state_moments(transformer, TEXTS)
    assert tokens.length > 30
    projection = projections.build_projection(settings, transformer, TEXTS)
    mean = tokens.length * (tokens.first / tokens.count).float()  # of the states
    left = projection.token(mean)
    assert torch.allclose(left, (1 - CENTRE) * projection.token.weight @ mean, atol=1e-3)


def projections_norm(transformer):
    """The last layer's normalisation, whose output is the states."""
    return transformer.auto_model.encoder.layer[-1].output.LayerNorm


def test_a_fitted_projection_finds_what_the_base_finds(tiny_bert):
    transformer = load_transformer(settings_of(tiny_bert))
    before = {name: p.clone() for name, p in transformer.named_parameters()}
    torch.manual_seed(3)
    linear = torch.nn.Linear(transformer.get_embedding_dimension(), 4)
    group = Group([text.partition(" on ")[0] for text in TEXTS], TEXTS)
    losses = fit(linear, transformer, [group], steps=120)
    assert len(losses) == 120
    assert np.mean(losses[-10::2]) < 0.5 * np.mean(losses[:10:2])  # every other batch is of random words
    assert all(torch.equal(before[name], p) for name, p in transformer.named_parameters())


def test_nothing_but_texts_of_both_kinds_can_be_fitted_to(tiny_bert):
    settings = settings_of(tiny_bert, dim=4, projection="fitted")
    for groups in ([], [Group([], TEXTS)], [Group(["red"], TEXTS[:1])]):
        with pytest.raises(DataError, match="a fitted projection needs queries and documents"):
            build_model(settings, TEXTS, groups)


@pytest.mark.parametrize("whole_text", [False, True])
def test_fitting_goes_on_from_the_pca(tiny_bert, whole_text):
    pca, fitted = (
        build_model(settings_of(tiny_bert, dim=4, projection=p, whole_text=whole_text), TEXTS, [Group(TEXTS, TEXTS)])[
            -2
        ]
        for p in ("pca", "fitted")
    )
    linear = (lambda module: module.token) if whole_text else (lambda module: module.linear)
    assert not torch.allclose(linear(pca).weight, linear(fitted).weight, atol=1e-3)
    if whole_text:
        assert torch.equal(pca.text.weight, fitted.text.weight)
