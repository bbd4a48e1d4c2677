"""The retrievers, from a recipe: for each method its model, its identifiers and the examples it learns from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from weft.errors import DataError
from weft.generative.checkpoints import load_t5, load_tokenizer, new_t5, train_tokenizer
from weft.generative.corpus import Corpus
from weft.generative.examples import Examples, IdentifierExamples, SpanExamples
from weft.generative.identifiers import DigitVocabulary, cluster_digits, lsa_vectors, title_prefixes
from weft.generative.model import GenerativeModel
from weft.generative.nonparametric import cluster_table
from weft.generative.pawa import Pawa
from weft.generative.recipes import IdentifierSettings, Recipe
from weft.generative.start import start_from_corpus

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts → one vector each, from which DSI's identifiers are clustered."""


@dataclass
class Task:
    """What the training loop needs."""

    model: GenerativeModel
    examples: Examples
    identifiers: Sequence[Sequence[int]] | None = None
    """A target for each document, without its end; None where targets are drawn (SEAL)."""
    between: Callable[[int], None] | None = None
    """Called before each step."""

    def set_identifiers(self, identifiers: Sequence[Sequence[int]]) -> None:
        """Change the targets."""
        assert isinstance(self.examples, IdentifierExamples)
        self.identifiers = self.examples.identifiers = identifiers


def prepare(recipe: Recipe, corpus: Corpus, embed: Embed | None = None, folder: Path | None = None) -> Task:
    """Build model, identifiers and examples; the model is read from `folder` where a run goes on."""
    if recipe.identifiers.method == "multi-vector":
        from weft.generative.multivector import prepare_multivector

        settings = recipe.identifiers
        make = prepare_multivector(settings.alignment, settings.dim, settings.document_length, settings.fill_queries)
        return make(recipe, corpus, embed, folder)
    model = base_model(recipe, corpus) if folder is None else GenerativeModel.load(folder)
    model.settings.update(method=recipe.identifiers.method, query_length=recipe.model.query_length)
    return {"seal": _seal, "dsi": _dsi, "genre": _genre}[recipe.identifiers.method](recipe, corpus, model, embed)


def base_model(recipe: Recipe, corpus: Corpus) -> GenerativeModel:
    """Return the model that training starts from."""
    settings = recipe.model
    if settings.base:
        t5 = load_t5(settings.base)
        _set_dropout(t5, settings.dropout)
        return GenerativeModel(t5, load_tokenizer(settings.base))
    texts = [document.full_text for document in corpus.documents]
    asked = [pair.query for pair in corpus.pairs]
    tokenizer = train_tokenizer(
        [*texts, *asked], settings.vocabulary, kind=settings.tokenizer, lowercase=settings.lowercase
    )
    t5 = new_t5(len(tokenizer), settings.size, dropout=settings.dropout, seed=recipe.training.seed)
    if settings.start == "corpus":
        start_from_corpus(t5, tokenizer(texts, add_special_tokens=False)["input_ids"], recipe.training.seed)
    return GenerativeModel(t5, tokenizer)


def title_identifiers(
    tokenizer: Any, titles: Sequence[str], texts: Sequence[str]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return GENRE's identifiers of documents, and the token ids of their texts (which begin with their titles)."""
    tokens: list[list[int]] = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    found = tokenizer(list(titles), add_special_tokens=False)["input_ids"] if titles else []
    return title_prefixes(tokens, [len(ids) for ids in found]), tokens


def _seal(recipe: Recipe, corpus: Corpus, model: GenerativeModel, embed: Embed | None) -> Task:  # noqa: ARG001
    model.settings["span"] = recipe.examples.span
    return Task(model, SpanExamples(corpus, model.tokenizer, recipe.examples, recipe.model.query_length))


def _dsi(recipe: Recipe, corpus: Corpus, model: GenerativeModel, embed: Embed | None) -> Task:
    settings = recipe.identifiers
    if "identifiers" not in model.settings:
        digits = cluster_digits(_vectors(settings, corpus, embed), settings.k, settings.c, recipe.training.seed)
        vocabulary = DigitVocabulary(max(settings.k, settings.c), max(map(len, digits)))
        # Drawn like T5's own embeddings; the head divides by √d.
        generator = torch.Generator().manual_seed(recipe.training.seed)
        model.set_table(torch.randn(vocabulary.size, model.dim, generator=generator))
        if settings.pawa:
            if model.dim % settings.pawa_heads:
                raise DataError(f"identifiers.pawa_heads must divide the model's width {model.dim}")
            model.pawa = Pawa(
                model.dim, vocabulary.size, settings.pawa_layers, settings.pawa_heads, settings.additive_table
            )
        names = [document.id for document in corpus.documents]
        model.settings["identifiers"] = {n: vocabulary.tokens(d) for n, d in zip(names, digits, strict=True)}
    identifiers = [model.settings["identifiers"][document.id] for document in corpus.documents]
    length = recipe.model.query_length
    return Task(model, IdentifierExamples(corpus, model.tokenizer, recipe.examples, identifiers, length), identifiers)


def _vectors(settings: IdentifierSettings, corpus: Corpus, embed: Embed | None) -> NDArray[np.float32]:
    texts = [document.full_text for document in corpus.documents]
    if settings.embedding == "lsa":
        return lsa_vectors(texts)
    if embed is None:
        raise DataError(f"identifiers.embedding = {settings.embedding!r} needs an encoder: train(embed=…) takes one")
    return embed(texts)


def _genre(recipe: Recipe, corpus: Corpus, model: GenerativeModel, embed: Embed | None) -> Task:  # noqa: ARG001
    settings = recipe.identifiers
    documents = corpus.documents
    identifiers, texts = title_identifiers(
        model.tokenizer, [document.title for document in documents], [document.full_text for document in documents]
    )
    lengths = [len(identifier) for identifier in identifiers]
    examples = IdentifierExamples(corpus, model.tokenizer, recipe.examples, identifiers, recipe.model.query_length)
    task = Task(model, examples, identifiers)
    if settings.np == "none":
        return task
    model.settings["np"] = settings.np

    def recluster(step: int) -> None:
        made = cluster_table(
            model, texts, lengths, clusters=settings.np_clusters, context=settings.np_context, seed=step
        )
        model.set_table(made.table, frozen=True, token_of=made.token_of)
        task.set_identifiers(made.identifiers)

    def between(step: int) -> None:
        if step and settings.np == "async" and step % settings.np_every == 0:
            recluster(step)

    recluster(0)
    task.between = between
    return task


def _set_dropout(t5: Any, dropout: float) -> None:
    t5.config.dropout_rate = dropout
    for module in t5.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
        elif isinstance(getattr(module, "dropout", None), float):  # attention layers keep a number
            module.dropout = dropout
