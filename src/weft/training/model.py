"""Build the model to train from a base encoder: projection, scoring mask, salience heads.

The modules, in order: Transformer, MultiVectorMask (which tokens count), Salience (if asked for), Dense or
WholeTextProjection, Normalize. Saliences come after the mask, so that budgets ⌈α·m⌉ count the tokens that are scored.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from torch import nn

from weft.encoders.importers import detect, import_checkpoint
from weft.encoders.importers.files import check_whole
from weft.encoders.loading import locate
from weft.encoders.salience import Salience
from weft.encoders.whole_text import WholeTextProjection
from weft.errors import CheckpointError, DataError, first_line
from weft.training.fitted_projection import Group
from weft.training.frozen import freeze
from weft.training.projection import build_projection, with_whole_text
from weft.training.recipes import ModelSettings


def build_model(settings: ModelSettings, texts: Sequence[str] = (), groups: Sequence[Group] = ()) -> MultiVectorEncoder:
    """Build the model of a recipe; `texts` are for the PCA, `groups` for a projection that is fitted.

    A base that is already a multi-vector checkpoint keeps its projection and, unless the recipe names gates, its
    salience heads; gates make new heads.
    """
    folder = _folder(settings.base)
    if detect(folder) != "plain":
        return _continue(settings, folder, texts)
    transformer = load_transformer(settings)
    hidden = transformer.get_embedding_dimension()
    modules: list[nn.Module] = [transformer, mask_module(settings)]
    if settings.query_gate:
        modules.append(Salience(hidden, settings.query_gate, settings.document_gate, settings.salience_weights))
    if settings.projection != "none":
        modules.append(build_projection(settings, transformer, texts, groups))
    elif settings.whole_text:
        raise DataError("model.whole_text needs a projection")
    modules.append(Normalize(module_input_name="token_embeddings"))
    model = MultiVectorEncoder(modules=modules, prompts=_prompts(settings), device=None)
    freeze(transformer.auto_model, settings.frozen_layers)
    return model


def _continue(settings: ModelSettings, folder: Path, texts: Sequence[str]) -> MultiVectorEncoder:
    model, _ = import_checkpoint(folder, str(folder))
    modules: list[Any] = list(model)
    transformer = modules[0]
    transformer.query_length, transformer.document_length = settings.query_length, settings.document_length
    if settings.whole_text and not any(isinstance(module, WholeTextProjection) for module in modules):
        place = next((i for i, module in enumerate(modules) if isinstance(module, Dense)), None)
        if place is None:
            raise DataError(f"model.whole_text: {folder} has no projection to put whole texts beside")
        modules[place] = with_whole_text(modules[place], transformer, texts)
        model = _with(modules, model)
    if settings.query_gate:
        modules = [module for module in modules if not isinstance(module, Salience)]
        place = next(
            i for i, module in enumerate(modules) if isinstance(module, Dense | WholeTextProjection | Normalize)
        )
        hidden = transformer.get_embedding_dimension()
        head = Salience(hidden, settings.query_gate, settings.document_gate, settings.salience_weights)
        modules.insert(place, head)
        model = _with(modules, model)
    if settings.query_prefix or settings.document_prefix:
        model.prompts |= _prompts(settings)
    freeze(transformer.auto_model, settings.frozen_layers)
    return model


def _with(modules: list[Any], model: MultiVectorEncoder) -> MultiVectorEncoder:
    return MultiVectorEncoder(modules=modules, prompts={name: text or "" for name, text in model.prompts.items()})


def build_teacher(settings: ModelSettings, teacher: str) -> MultiVectorEncoder:
    """Return the teacher: a checkpoint, or with ``"base"`` the untrained base with all its dimensions."""
    if teacher != "base":
        return import_checkpoint(_folder(teacher), teacher)[0]
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
    folder = _folder(settings.base)
    try:
        transformer = Transformer(
            str(folder),
            query_length=settings.query_length,
            document_length=settings.document_length,
            max_seq_length=max(settings.query_length, settings.document_length),
            config_kwargs=config,
        )
    except Exception as error:  # whatever the libraries below make of a broken checkpoint
        raise CheckpointError(f"the base {settings.base} could not be loaded: {first_line(error)}") from error
    check_whole(transformer, folder)
    return transformer


def _folder(name: str) -> Path:
    """Return the folder of a model; one of the hub is downloaded."""
    if name.startswith(("/", ".", "~")) and not Path(name).expanduser().exists():
        raise DataError(f"no such model folder: {name!r}")
    return locate(name)[0]


def mask_module(settings: ModelSettings) -> MultiVectorMask:
    """Return the module that says which tokens are scored."""
    return MultiVectorMask(list(string.punctuation) if settings.skiplist == "punctuation" else [])


def _prompts(settings: ModelSettings) -> dict[str, str]:
    return {"query": settings.query_prefix, "document": settings.document_prefix}
