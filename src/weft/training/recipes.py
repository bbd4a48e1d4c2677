"""Recipes: TOML files that say everything about a training run, checked before the first step.

    [model]      what to start from and which heads to add
    [loss]       the alignment trained with, temperature, distillation
    [training]   steps, batches, learning rates
    [[data]]     one table for each collection

Unknown keys are errors. Any key can be set on the command line: ``weft train recipe.toml training.steps=100``. In
strings ``{data}`` and ``{models}`` stand for the folders given by ``--data`` and ``--models`` (or ``WEFT_DATA`` and
``WEFT_MODELS``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from weft.alignment import XTR, Alignment, Attention, Gate
from weft.errors import invalid
from weft.training.data import Source
from weft.training.tables import (
    RecipeError,
    at_least,
    leave_out,
    list_of,
    positive,
    read_tables,
    reject_unknown,
    settings,
)


def trainable(text: str, key: str) -> Alignment:
    """Return an alignment to train with; refuse those that are not for training."""
    parsed = Alignment.parse(text)
    if isinstance(parsed, XTR):  # its k′ is of a corpus, and most of what it scores would be imputed
        raise invalid(key, "the recipe", "xtr-in-batch:k_train (xtr:k_prime is for searching a corpus)", text)
    if isinstance(parsed, Attention):
        raise invalid(key, "the recipe", "one that is made from similarities (attention is given)", text)
    return parsed


@dataclass(frozen=True)
class ModelSettings:
    """The ``[model]`` table."""

    base: str
    """A folder or hub name: a plain encoder, or any multi-vector checkpoint to go on from."""
    dim: int = 128
    projection: str = "pca"
    """How the projection to `dim` begins: ``"pca"`` of the base's own token vectors, ``"fitted"`` from there to the
    similarities that the base finds with all its dimensions, ``"random"``, or ``"none"``."""
    query_length: int = 32
    document_length: int = 256
    query_prefix: str = ""
    document_prefix: str = ""
    whole_text: bool = False
    """Whether the first and the last token become two vectors of the text as a whole (`WholeTextProjection`); a base
    with a projection keeps it for its tokens."""
    skiplist: str = ""
    """``"punctuation"`` leaves punctuation tokens of documents out of scoring."""
    query_gate: str = ""
    document_gate: str = ""
    """Salience gates (ALIGNER eq. 3-5), such as ``"lp:0.5"``; both or neither."""
    salience_weights: bool = True
    """Whether saliences weigh scores in use, or only tell which tokens may be left out. In training they weigh."""
    frozen_layers: int = 0
    """This many of the first layers stay unchanged, and so do the embeddings."""
    dropout: float | None = None
    search: str = ""
    """The default alignment of an index of its vectors; empty for the one it is trained with."""

    def __post_init__(self) -> None:
        if self.search:
            Alignment.parse(self.search)
        if self.projection not in ("pca", "fitted", "random", "none"):
            raise invalid("model.projection", "the recipe", "'pca', 'fitted', 'random' or 'none'", self.projection)
        if self.skiplist not in ("", "punctuation"):
            raise invalid("model.skiplist", "the recipe", "'' or 'punctuation'", self.skiplist)
        if self.whole_text and self.skiplist:  # a text's mean is that of all its tokens
            raise invalid("model.skiplist", "the recipe", "'' with model.whole_text", self.skiplist)
        if bool(self.query_gate) != bool(self.document_gate):
            raise invalid("model.query_gate", "the recipe", "given together with model.document_gate", self.query_gate)
        for gate in (self.query_gate, self.document_gate):
            if gate:
                Gate.parse(gate)
        for key in ("dim", "query_length", "document_length"):
            at_least(1, f"model.{key}", getattr(self, key))
        at_least(0, "model.frozen_layers", self.frozen_layers)
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise invalid("model.dropout", "the recipe", "at least 0 and below 1", self.dropout)


@dataclass(frozen=True)
class LossSettings:
    """The ``[loss]`` table; see `weft.training.AlignmentLoss`."""

    alignment: str = "sum-of-max"
    scale: float = 1.0
    distillation: float = 0.0
    token_distillation: float = 0.0
    """Weight of imitating what each query token finds in each document with the teacher, beside the loss of scores."""
    teacher: str = ""
    """A multi-vector checkpoint or plain encoder with the same tokenizer, or ``"base"``: the untrained base itself,
    with all its dimensions."""
    teacher_alignment: str = "sum-of-max,z=query"
    teacher_scale: float = 1.0
    mini_batch_size: int | None = None

    def __post_init__(self) -> None:
        trainable(self.alignment, "loss.alignment")
        trainable(self.teacher_alignment, "loss.teacher_alignment")
        for key in ("scale", "teacher_scale"):
            positive(f"loss.{key}", getattr(self, key))
        if not 0 <= self.distillation <= 1:
            raise invalid("loss.distillation", "the recipe", "between 0 and 1", self.distillation)
        if not self.token_distillation >= 0:
            raise invalid("loss.token_distillation", "the recipe", "at least 0", self.token_distillation)
        if self.token_distillation and not self.teacher:
            raise invalid("loss.teacher", "the recipe", "named where loss.token_distillation is above 0", self.teacher)
        if self.teacher and not (self.distillation or self.token_distillation):
            raise invalid("loss.distillation", "the recipe", "above 0 when a teacher is named", self.distillation)


@dataclass(frozen=True)
class TrainingSettings:
    """The ``[training]`` table."""

    output: str
    steps: int
    """0 trains nothing: the model is saved as it begins."""
    batch_size: int = 32
    learning_rate: float = 2e-5
    head_learning_rate: float | None = None
    """For the projection and the salience heads, which have further to go."""
    warmup: float = 0.1
    """Share of the steps over which the learning rate rises."""
    weight_decay: float = 0.01
    scheduler: str = "linear"
    optimizer: str = "adamw_torch"
    precision: str = "fp32"
    max_document_length: int | None = None
    """Cut documents to fewer tokens in training than in use."""
    gradient_accumulation: int = 1
    gather_across_devices: bool = False
    interpolation: float = 1.0
    """How far to go from the initial weights to the trained ones (WiSE-FT), to lose less on texts unlike the training
    data; 1 takes the trained weights."""
    seed: int = 17
    save_every: int = 100
    log_every: int = 10
    remember_frozen: str = ""
    """A folder for the outputs of frozen layers: they are computed once a text."""

    def __post_init__(self) -> None:
        if self.precision not in ("fp32", "bf16", "fp16"):
            raise invalid("training.precision", "the recipe", "'fp32', 'bf16' or 'fp16'", self.precision)
        if not 0 <= self.warmup < 1:
            raise invalid("training.warmup", "the recipe", "a share of the steps, at least 0 and below 1", self.warmup)
        if not 0 < self.interpolation <= 1:
            raise invalid("training.interpolation", "the recipe", "above 0 and at most 1", self.interpolation)
        for key in ("learning_rate", "head_learning_rate"):
            if getattr(self, key) is not None:
                positive(f"training.{key}", getattr(self, key))
        if not self.weight_decay >= 0:
            raise invalid("training.weight_decay", "the recipe", "at least 0", self.weight_decay)
        if self.max_document_length is not None:
            at_least(1, "training.max_document_length", self.max_document_length)
        at_least(0, "training.steps", self.steps)
        for key in ("save_every", "log_every", "gradient_accumulation"):
            at_least(1, f"training.{key}", getattr(self, key))
        at_least(2, "training.batch_size", self.batch_size)


@dataclass(frozen=True)
class Recipe:
    """A whole recipe."""

    model: ModelSettings
    training: TrainingSettings
    data: tuple[Source, ...]
    loss: LossSettings = field(default_factory=LossSettings)
    notes: str = ""

    def __post_init__(self) -> None:
        if not self.data:
            raise RecipeError("a recipe needs at least one [[data]] table")
        if self.training.remember_frozen and not self.model.frozen_layers:
            raise RecipeError("training.remember_frozen needs model.frozen_layers above 0")

    def as_dict(self) -> dict[str, Any]:
        """Return plain tables, as in the TOML file."""
        return asdict(self)

    def without(self, names: Sequence[str]) -> Recipe:
        """Return the recipe without some collections, on which the model is then judged (leave-one-out)."""
        return replace(self, data=leave_out(self.data, names))


def read_recipe(path: str | Path, changes: Sequence[str] = (), folders: Mapping[str, str] | None = None) -> Recipe:
    """Read and check a recipe.

    Parameters
    ----------
    path : path
    changes : list of ``"table.key=value"``
        Values are TOML (``3``, ``1e-5``, ``"text"``); a bare word counts as text.
    folders : {"data": …, "models": …}, optional
        What ``{data}`` and ``{models}`` in strings stand for.
    """
    return build_recipe(read_tables(path, changes, folders))


def build_recipe(tables: Mapping[str, Any]) -> Recipe:
    """Turn tables into a checked `Recipe`.

    Examples
    --------
    >>> build_recipe({"model": {"base": "bert"}, "training": {"output": "out", "steps": 3, "bacth_size": 2}})
    Traceback (most recent call last):
    ...
    weft.training.tables.RecipeError: unknown key training.bacth_size; did you mean 'batch_size'?
    """
    reject_unknown(tables, Recipe)
    return Recipe(
        settings(tables, "model", ModelSettings),
        settings(tables, "training", TrainingSettings),
        list_of(tables, "data", Source),
        settings(tables, "loss", LossSettings),
        str(tables.get("notes", "")),
    )
