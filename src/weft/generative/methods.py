"""The retrievers, from a recipe: for each method its model, its identifiers and the examples it learns from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.generative.checkpoints import load_t5, load_tokenizer, new_t5, train_tokenizer
from weft.generative.corpus import Corpus
from weft.generative.examples import Examples, IdentifierExamples, SpanExamples
from weft.generative.model import GenerativeModel
from weft.generative.recipes import Recipe

Embed = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass
class Task:
    """What the training loop needs."""

    model: GenerativeModel
    examples: Examples
    identifiers: Sequence[Sequence[int]] | None = None
    """A target for each document, without its end; None where targets are drawn (SEAL)."""

    def set_identifiers(self, identifiers: Sequence[Sequence[int]]) -> None:
        """Change the targets."""
        assert isinstance(self.examples, IdentifierExamples)
        self.identifiers = self.examples.identifiers = identifiers


def prepare(recipe: Recipe, corpus: Corpus, embed: Embed | None, folder: Path | None) -> Task:
    """Build model, identifiers and examples; the model and its identifiers are read from `folder` if there is one."""
    model = base_model(recipe, corpus) if folder is None else GenerativeModel.load(folder)
    model.settings.update(method=recipe.identifiers.method, query_length=recipe.model.query_length)
    examples = SpanExamples(corpus, model.tokenizer, recipe.examples, recipe.model.query_length)
    model.settings["span"] = recipe.examples.span
    return Task(model, examples)


def refresh(task: Task, step: int) -> None:
    """Do what a method does between steps."""


def base_model(recipe: Recipe, corpus: Corpus) -> GenerativeModel:
    """Return the model that training starts from."""
    settings = recipe.model
    if settings.base:
        t5: Any = load_t5(settings.base)
        tokenizer = load_tokenizer(settings.base)
        _set_dropout(t5, settings.dropout)
        return GenerativeModel(t5, tokenizer)
    texts = [document.full_text for document in corpus.documents] + [pair.query for pair in corpus.pairs]
    tokenizer = train_tokenizer(texts, settings.vocabulary, kind=settings.tokenizer, lowercase=settings.lowercase)
    t5 = new_t5(len(tokenizer), settings.size, dropout=settings.dropout, seed=recipe.training.seed)
    return GenerativeModel(t5, tokenizer)


def _set_dropout(t5: Any, dropout: float) -> None:
    import torch

    t5.config.dropout_rate = dropout
    for module in t5.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
        elif isinstance(getattr(module, "dropout", None), float):  # attention layers keep a number
            module.dropout = dropout
