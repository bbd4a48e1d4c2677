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

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from weft.alignment import Alignment, Gate
from weft.errors import DataError, WeftError, invalid
from weft.training.data import Source


class RecipeError(WeftError, ValueError):
    """A recipe has an unknown key, a value of the wrong type, or values that do not go together."""


@dataclass(frozen=True)
class ModelSettings:
    """The ``[model]`` table."""

    base: str
    """A folder or hub name: a plain encoder, or any multi-vector checkpoint to go on from."""
    dim: int = 128
    projection: str = "pca"
    """How the projection to `dim` begins: ``"pca"`` of the base's own token vectors, ``"random"``, or ``"none"``."""
    query_length: int = 32
    document_length: int = 256
    query_prefix: str = ""
    document_prefix: str = ""
    skiplist: str = ""
    """``"punctuation"`` leaves punctuation tokens of documents out of scoring."""
    query_gate: str = ""
    document_gate: str = ""
    """Salience gates (ALIGNER eq. 3-5), such as ``"lp:0.5"``; both or neither."""
    salience_weights: bool = True
    """Whether saliences weigh scores in use, or only tell which tokens may be left out. In training they weigh."""
    frozen_layers: int = 0
    """How many of the first layers (and the embeddings) stay as they are."""
    dropout: float | None = None

    def __post_init__(self) -> None:
        if self.projection not in ("pca", "random", "none"):
            raise invalid("model.projection", "the recipe", "'pca', 'random' or 'none'", self.projection)
        if self.skiplist not in ("", "punctuation"):
            raise invalid("model.skiplist", "the recipe", "'' or 'punctuation'", self.skiplist)
        if bool(self.query_gate) != bool(self.document_gate):
            raise invalid("model.query_gate", "the recipe", "given together with model.document_gate", self.query_gate)
        for gate in (self.query_gate, self.document_gate):
            if gate:
                Gate.parse(gate)
        for key in ("dim", "query_length", "document_length"):
            _at_least(1, f"model.{key}", getattr(self, key))
        _at_least(0, "model.frozen_layers", self.frozen_layers)


@dataclass(frozen=True)
class LossSettings:
    """The ``[loss]`` table; see `weft.training.AlignmentLoss`."""

    alignment: str = "sum-of-max"
    scale: float = 1.0
    distillation: float = 0.0
    teacher: str = ""
    """A multi-vector checkpoint or plain encoder with the same tokenizer, or ``"base"``: the untrained base itself,
    with all its dimensions."""
    teacher_alignment: str = "sum-of-max,z=query"
    teacher_scale: float = 1.0
    mini_batch_size: int | None = None

    def __post_init__(self) -> None:
        Alignment.parse(self.alignment)
        Alignment.parse(self.teacher_alignment)
        for key in ("scale", "teacher_scale"):
            if not getattr(self, key) > 0:
                raise invalid(f"loss.{key}", "the recipe", "greater than 0", getattr(self, key))
        if not 0 <= self.distillation <= 1:
            raise invalid("loss.distillation", "the recipe", "between 0 and 1", self.distillation)
        if self.teacher and not self.distillation:
            raise invalid("loss.distillation", "the recipe", "above 0 when a teacher is named", self.distillation)


@dataclass(frozen=True)
class TrainingSettings:
    """The ``[training]`` table."""

    output: str
    steps: int
    batch_size: int = 32
    learning_rate: float = 2e-5
    head_learning_rate: float | None = None
    """For the projection and the salience heads, which begin further from where they end."""
    warmup: float = 0.1
    """Share of the steps over which the learning rate rises."""
    weight_decay: float = 0.01
    scheduler: str = "linear"
    optimizer: str = "adamw_torch"
    precision: str = "fp32"
    max_document_length: int | None = None
    """Cut documents shorter in training than the model will in use."""
    gradient_accumulation: int = 1
    gather_across_devices: bool = False
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
        if not self.learning_rate > 0:
            raise invalid("training.learning_rate", "the recipe", "greater than 0", self.learning_rate)
        for key in ("steps", "save_every", "log_every", "gradient_accumulation"):
            _at_least(1, f"training.{key}", getattr(self, key))
        _at_least(2, "training.batch_size", self.batch_size)


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
        """Return plain tables, as they would stand in the TOML file."""
        return asdict(self)


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
    path = Path(path)
    if not path.is_file():
        raise DataError(f"no such recipe: {str(path)!r}")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{str(path)!r} is not a TOML file: {error}") from None
    for change in changes:
        _change(tables, change)
    for key, table in tables.items():
        if key not in ("data", "notes") and not isinstance(table, dict):
            raise RecipeError(f"{key!r} must be a table, [{key}]")
    return build_recipe(_fill(tables, folders or {}))


def build_recipe(tables: Mapping[str, Any]) -> Recipe:
    """Turn tables into a checked `Recipe`.

    Examples
    --------
    >>> build_recipe({"model": {"base": "bert"}, "training": {"output": "out", "steps": 3, "bacth_size": 2}})
    Traceback (most recent call last):
    ...
    weft.training.recipes.RecipeError: unknown key training.bacth_size; did you mean 'batch_size'?
    """
    _known(tables, Recipe, "")
    data = tables.get("data", [])
    if not isinstance(data, list) or not all(isinstance(table, dict) for table in data):
        raise RecipeError("data must be tables, each under its own [[data]]")
    return Recipe(
        _table(tables, "model", ModelSettings),
        _table(tables, "training", TrainingSettings),
        tuple(_settings(table, Source, "data.") for table in data),
        _table(tables, "loss", LossSettings),
        str(tables.get("notes", "")),
    )


def _table(tables: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    return _settings(tables.get(name, {}), kind, f"{name}.")


def _settings(table: Mapping[str, Any], kind: type[Any], where: str) -> Any:
    _known(table, kind, where)
    hints = get_type_hints(kind)
    values = {key: _typed(value, hints[key], where + key) for key, value in table.items()}
    try:
        return kind(**values)
    except TypeError:
        needed = [f.name for f in fields(kind) if f.name not in values and f.default is f.default_factory]
        raise RecipeError(f"missing key {where}{needed[0] if needed else '?'}") from None


def _known(table: Mapping[str, Any], kind: type[Any], where: str) -> None:
    names = [f.name for f in fields(kind)]
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(names)}"
            raise RecipeError(f"unknown key {where}{key}{hint}")


def _typed(value: Any, hint: Any, where: str) -> Any:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if int not in kinds else value
    if not any(isinstance(value, kind) and not (kind is int and isinstance(value, bool)) for kind in kinds):
        names = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
        raise RecipeError(f"{where} must be {names}, got {value!r}")
    return value


def _change(tables: dict[str, Any], change: str) -> None:
    name, equals, text = change.partition("=")
    table, dot, key = name.strip().partition(".")
    if not equals or not dot or table == "data":
        raise RecipeError(
            f"a change is written table.key=value, with a table of model, loss or training; got {change!r}"
        )
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    tables.setdefault(table, {})[key] = value


def _fill(value: Any, folders: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _fill(inner, folders) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fill(inner, folders) for inner in value]
    if isinstance(value, str):
        for name in _names(value):
            if name not in folders:
                raise RecipeError(f"{value!r} needs the folder {name!r}: give --{name} or set WEFT_{name.upper()}")
            value = value.replace(f"{{{name}}}", folders[name])
    return value


def _names(text: str) -> Iterable[str]:
    return [name for name in ("data", "models") if f"{{{name}}}" in text]


def _at_least(least: int, name: str, value: int) -> None:
    if value < least:
        raise invalid(name, "the recipe", f"at least {least}", value)
