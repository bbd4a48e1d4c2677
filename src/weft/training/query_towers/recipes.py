"""Recipes of query towers: TOML files with the tables ``[tower]``, ``[training]`` and ``[[data]]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from weft.errors import invalid
from weft.training.query_towers.texts import TextSource
from weft.training.tables import RecipeError, at_least, leave_out, list_of, positive, reject_unknown, settings

KINDS = ("fast", "static")


@dataclass(frozen=True)
class TowerSettings:
    """The ``[tower]`` table."""

    kind: str
    """``"fast"``: a few layers; ``"static"``: a table."""
    model: str = "weft-small"
    """The light model whose vectors are learnt: a folder or a name."""
    name: str = ""
    """The tower's name; by default the model's name and the kind."""
    layers: str = "0 5 11"
    """Fast: the numbers of the model's layers to begin with."""
    intermediate: int = 768
    """Fast: the width of the layers' middle."""
    heads: int = 12
    """Fast: the model's attention heads."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise invalid("tower.kind", "the recipe", f"one of {KINDS}", self.kind)
        if not self.chosen_layers:
            raise invalid("tower.layers", "the recipe", "numbers of the model's layers, such as '0 5 11'", self.layers)
        for key in ("intermediate", "heads"):
            at_least(1, f"tower.{key}", getattr(self, key))

    @property
    def chosen_layers(self) -> tuple[int, ...]:
        """The numbers in `layers`; none if it holds anything else."""
        numbers = self.layers.replace(",", " ").split()
        return tuple(map(int, numbers)) if all(number.isdecimal() for number in numbers) else ()


@dataclass(frozen=True)
class TowerTraining:
    """The ``[training]`` table."""

    output: str
    passes: float = 4.0
    """How often to go through the texts; 0 for a static tower that stays at the least squares solution."""
    texts: int = 0
    """Learn from this many of the texts (0: all)."""
    tokens: int = 2048
    """About how many tokens a step has."""
    learning_rate: float = 3e-4
    warmup: int = 50
    """Steps over which the learning rate rises."""
    decay: float = 0.4
    """The last part of the steps, over which it falls to 0."""
    weight_decay: float = 0.01
    text_weight: float = 1.0
    """Weight of the agreement of scores, beside 1 − cosine of the tokens."""
    salience_weight: float = 0.02
    precision: str = "fp32"
    taught: str = ""
    """A folder for the model's vectors, which several towers can share."""
    threads: int = 1
    """How many groups of texts of a step are learnt from at the same time."""
    seed: int = 17

    def __post_init__(self) -> None:
        if self.precision not in ("fp32", "bf16"):
            raise invalid("training.precision", "the recipe", "'fp32' or 'bf16'", self.precision)
        positive("training.learning_rate", self.learning_rate)
        if not 0 < self.decay <= 1:
            raise invalid("training.decay", "the recipe", "above 0 and at most 1", self.decay)
        for key in ("passes", "weight_decay", "text_weight", "salience_weight"):
            if not getattr(self, key) >= 0:
                raise invalid(f"training.{key}", "the recipe", "at least 0", getattr(self, key))
        at_least(0, "training.texts", self.texts)
        at_least(0, "training.warmup", self.warmup)
        for key in ("tokens", "threads"):
            at_least(1, f"training.{key}", getattr(self, key))


@dataclass(frozen=True)
class TowerRecipe:
    """A whole recipe."""

    tower: TowerSettings
    training: TowerTraining
    data: tuple[TextSource, ...]
    notes: str = ""

    def __post_init__(self) -> None:
        if not self.data:
            raise RecipeError("a recipe needs at least one [[data]] table")

    def without(self, names: Sequence[str]) -> TowerRecipe:
        """Return the recipe without some collections, on which the tower is then judged (leave-one-out)."""
        return replace(self, data=leave_out(self.data, names))

    def as_dict(self) -> dict[str, Any]:
        """Return plain tables, as in the TOML file."""
        return asdict(self)


def is_tower_recipe(tables: Mapping[str, Any]) -> bool:
    """Whether a recipe is for a query tower."""
    return "tower" in tables


def build_tower_recipe(tables: Mapping[str, Any]) -> TowerRecipe:
    """Turn tables into a checked `TowerRecipe`.

    Examples
    --------
    >>> build_tower_recipe({"tower": {"kind": "quick"}, "training": {"output": "out"}})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    weft.errors.InvalidParameterError: The 'tower.kind' parameter ... must be one of ('fast', 'static'). Got 'quick' ...
    """
    reject_unknown(tables, TowerRecipe)
    return TowerRecipe(
        settings(tables, "tower", TowerSettings),
        settings(tables, "training", TowerTraining),
        list_of(tables, "data", TextSource),
        str(tables.get("notes", "")),
    )
