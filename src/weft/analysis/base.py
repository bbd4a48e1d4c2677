"""What an experiment is: a few settings, a `run`, and an `Outcome` of tables and plots."""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_type_hints

from weft.analysis.plots import Plot
from weft.errors import WeftError, invalid
from weft.evaluation.tables import Table

if TYPE_CHECKING:
    from weft.analysis.lab import Lab


class NeedsError(WeftError):
    """An experiment cannot be made from what it was given; the message says what it needs."""


@dataclass
class Outcome:
    """What an experiment found."""

    tables: list[Table] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    """Sentences made of the numbers."""
    notes: list[str] = field(default_factory=list)
    """The limits of what was found."""


@dataclass(frozen=True)
class Experiment(ABC):
    """Base of all experiments: a frozen dataclass whose fields are its settings."""

    name: ClassVar[str]
    title: ClassVar[str]
    reproduces: ClassVar[str]
    """Which tables and figures of which paper."""
    paper: ClassVar[str]
    """What the paper found, in short."""
    trains: ClassVar[bool] = False
    """Whether it compares models that were trained differently, and trains them if none are given."""
    quick: ClassVar[dict[str, Any]] = {}
    """Settings of the quick form."""

    @abstractmethod
    def run(self, lab: Lab) -> Outcome:
        """Measure, and return tables and plots."""

    @classmethod
    def settings(cls) -> list[str]:
        """Return its settings with their defaults, as they are given on the command line."""
        made = cls()
        values = {f.name: getattr(made, f.name) for f in fields(cls)}
        return [
            f"{name}={','.join(map(str, value)) if isinstance(value, tuple) else value}"
            for name, value in values.items()
        ]

    @classmethod
    def make(cls, changes: Iterable[str] = (), *, quick: bool = False) -> Self:
        """Make one with some settings given as ``key=value``; those of a list are separated by commas."""
        made = replace(cls(), **cls.quick) if quick else cls()
        hints = get_type_hints(cls)
        names = [f.name for f in fields(cls)]
        given: dict[str, Any] = {}
        for change in changes:
            key, equals, text = change.partition("=")
            key = key.strip().replace("-", "_")
            if not equals or key not in names:
                near = difflib.get_close_matches(key, names, 1)
                known = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names) or 'none'}"
                raise NeedsError(f"{change!r} is not a setting (key=value) of the experiment {cls.name}: {known}")
            given[key] = _read(text.strip(), hints[key], key, cls.name)
        return replace(made, **given)


_COMMA = re.compile(r",(?![^,]*=)")
"""Commas between the items of a list, not those within an alignment such as ``sum-of-max,z=query``."""


def _read(text: str, kind: Any, key: str, owner: str) -> Any:
    """Turn text into a value of a field's type: int, float, str or a tuple of one of them."""
    inner = get_args(kind)
    if inner:
        parts = [part.strip() for part in _COMMA.split(text) if part.strip()]
        if not parts:
            raise invalid(key, owner, "at least one value", text)
        return tuple(_read(part, inner[0], key, owner) for part in parts)
    try:
        return kind(text)
    except ValueError:
        raise invalid(key, owner, "a number" if kind is float else "an integer", text) from None
