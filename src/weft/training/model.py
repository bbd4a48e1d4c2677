"""From a base encoder to a model to train: projection, scoring mask, salience heads.

The modules, in order: Transformer, WholeText (if asked for), MultiVectorMask (which tokens count), Salience (if asked
for), Dense (the projection), Normalize. Saliences come after the mask, so that budgets ⌈α·m⌉ count the tokens that are
scored.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from torch import Tensor, nn

from weft.encoders.importers import detect, import_checkpoint
from weft.encoders.salience import Salience
from weft.encoders.whole_text import WholeText
from weft.errors import DataError
from weft.training.frozen import freeze
from weft.training.recipes import ModelSettings

PCA_TEXTS = 1536
"""How many texts the PCA looks at. From 256 of them the trained model was a quarter of a point worse on dev."""


def build_model(settings: ModelSettings, texts: Sequence[str] = ()) -> MultiVectorEncoder:
    """Build the model of a recipe; `texts` are documents for the PCA.

    A base that is a multi-vector checkpoint already keeps its projection and, unless the recipe names gates, its
    salience heads; gates make new heads.
    """
    if (folder := Path(settings.base)).is_dir() and detect(folder) != "plain":
        return _continue(settings, folder)
    transformer = load_transformer(settings)
    hidden = transformer.get_embedding_dimension()
    modules: list[nn.Module] = [transformer, *([WholeText()] if settings.whole_text else []), mask_module(settings)]
    if settings.query_gate:
        modules.append(Salience(hidden, settings.query_gate, settings.document_gate, settings.salience_weights))
    if settings.projection != "none":
        weight = None
        if settings.projection == "pca":
            weight = principal_directions(transformer, texts[:PCA_TEXTS], settings.dim)
        modules.append(
            Dense(
                hidden,
                settings.dim,
                bias=False,
                activation_function=None,
                init_weight=weight,
                module_input_name="token_embeddings",
            )
        )
    modules.append(Normalize(module_input_name="token_embeddings"))
    model = MultiVectorEncoder(modules=modules, prompts=_prompts(settings), device=None)
    freeze(transformer.auto_model, settings.frozen_layers)
    return model


def _continue(settings: ModelSettings, folder: Path) -> MultiVectorEncoder:
    model, _ = import_checkpoint(folder, str(folder))
    modules: list[Any] = list(model)
    transformer = modules[0]
    transformer.query_length, transformer.document_length = settings.query_length, settings.document_length
    if settings.whole_text and not any(isinstance(module, WholeText) for module in modules):
        modules.insert(1, WholeText())
        model = _with(modules, model)
    if settings.query_gate:
        modules = [module for module in modules if not isinstance(module, Salience)]
        place = next(i for i, module in enumerate(modules) if isinstance(module, Dense | Normalize))
        hidden = transformer.get_embedding_dimension()
        head = Salience(hidden, settings.query_gate, settings.document_gate, settings.salience_weights)
        modules.insert(place, head)
        model = _with(modules, model)
    freeze(transformer.auto_model, settings.frozen_layers)
    return model


def _with(modules: list[Any], model: MultiVectorEncoder) -> MultiVectorEncoder:
    return MultiVectorEncoder(modules=modules, prompts={name: text or "" for name, text in model.prompts.items()})


def build_teacher(settings: ModelSettings, teacher: str) -> MultiVectorEncoder:
    """Return the teacher: a checkpoint, or with ``"base"`` the untrained base with all its dimensions."""
    if teacher != "base":
        folder = Path(teacher)
        return import_checkpoint(folder, teacher)[0] if folder.is_dir() else MultiVectorEncoder(teacher)
    transformer = load_transformer(settings)
    normalize = Normalize(module_input_name="token_embeddings")
    return MultiVectorEncoder(modules=[transformer, mask_module(settings), normalize], prompts=_prompts(settings))


def load_transformer(settings: ModelSettings) -> Transformer:
    """Load the base encoder with the recipe's lengths."""
    config = (
        {}
        if settings.dropout is None
        else {
            "hidden_dropout_prob": settings.dropout,
            "attention_probs_dropout_prob": settings.dropout,
        }
    )
    if (
        ("/" in settings.base or "." in settings.base)
        and settings.base[0] in "/.~"
        and not Path(settings.base).exists()
    ):
        raise DataError(f"no such model folder: {settings.base!r}")
    return Transformer(
        settings.base,
        query_length=settings.query_length,
        document_length=settings.document_length,
        max_seq_length=max(settings.query_length, settings.document_length),
        config_kwargs=config,
    )


def mask_module(settings: ModelSettings) -> MultiVectorMask:
    """Return the module that says which tokens are scored."""
    return MultiVectorMask(list(string.punctuation) if settings.skiplist == "punctuation" else [])


@torch.no_grad()
def principal_directions(transformer: Transformer, texts: Sequence[str], dim: int) -> Tensor:
    """Return the `dim` directions (dim, hidden) that keep most of the inner products of normalised token vectors.

    The second moment is not centred: inner products are to be kept, not variances.
    """
    if not texts:
        raise DataError("a PCA projection needs some documents to look at")
    transformer.eval()
    moment: Any = 0.0
    for begin in range(0, len(texts), 32):
        features = transformer.preprocess(list(texts[begin : begin + 32]), task="document")
        features = {key: value for key, value in features.items() if isinstance(value, Tensor)}
        output = transformer(dict(features), task="document")
        real = output["token_embeddings"][output["attention_mask"].bool()].double()
        real = real / real.norm(dim=1, keepdim=True)
        moment = moment + real.T @ real
    _, vectors = torch.linalg.eigh(moment)  # ascending
    return vectors[:, -dim:].flip(1).T.contiguous().float()


def _prompts(settings: ModelSettings) -> dict[str, str]:
    return {"query": settings.query_prefix, "document": settings.document_prefix}
