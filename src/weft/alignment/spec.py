"""Small frozen objects with a string form: ``"top-k:4"``, ``"lp:0.4,eps=0.002"``.

A `Spec` subclass is a frozen dataclass with a `name`. Its string is the name, then the first field
after a colon, then the fields that differ from their defaults as ``key=value``. `parse` reads it back.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from functools import lru_cache
from types import NoneType
from typing import Any, ClassVar, Self, get_args, get_type_hints

from weft.errors import invalid


class Spec:
    """Base of `Alignment` and `Gate`: parsing, printing and the registry of names of one family."""

    family: ClassVar[str]
    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    _registry: ClassVar[dict[str, type[Any]]]

    def __init_subclass__(cls, *, family: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if family is not None:  # the root of a family, not a member
            cls.family = family
            cls._registry = {}
            return
        for name in (cls.name, *cls.aliases):
            if name in cls._registry:
                raise invalid("name", cls.__name__, "a name not yet taken", name)
            cls._registry[name] = cls

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return every name that `parse` knows, aliases included."""
        return tuple(cls._registry)

    @classmethod
    def parse(cls, text: str | Self) -> Self:
        """Read an object from its string; an object passes through unchanged."""
        if isinstance(text, cls):
            return text
        if not isinstance(text, str):
            raise invalid(cls.family, "parse", f"a string or a {cls.__name__}", text)
        return cls._read(text)

    @classmethod
    @lru_cache(maxsize=256)  # searches parse the same few strings over and over
    def _read(cls, text: str) -> Self:
        head, *options = text.strip().split(",")
        name, colon, first = head.partition(":")
        made: type[Self] | None = cls._registry.get(name.strip().lower())
        if made is None:
            known = ", ".join(sorted(cls._registry))
            raise invalid(cls.family, "parse", f"one of: {known} (with :value and ,key=value after it)", text)
        hints = get_type_hints(made)
        declared = {f.name: f for f in fields(made)}  # type: ignore[arg-type]
        values: dict[str, Any] = {}
        if colon:
            if not declared or next(iter(declared)) == "z":
                raise invalid(cls.family, "parse", f"{name!r} without a value after a colon", text)
            key = next(iter(declared))
            values[key] = _convert(first, hints[key], key, made.__name__)
        for option in options:
            key, equals, value = (part.strip() for part in option.partition("="))
            if not equals or key not in declared or key in values:
                allowed = ", ".join(declared)
                raise invalid(
                    cls.family,
                    "parse",
                    f"options of {name!r} given once each, as key=value, from: {allowed}",
                    text,
                )
            values[key] = _convert(value, hints[key], key, made.__name__)
        for field in declared.values():
            if field.default is MISSING and field.name not in values:
                raise invalid(cls.family, "parse", f"written with its {field.name}, as in '{name}:{field.name}'", text)
        return made(**values)

    def _settle(self, **values: Any) -> None:
        """Store checked fields: numbers of any kind become plain ones, so that equal objects print alike."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        text = self.name
        declared: tuple[Field[Any], ...] = fields(self)  # type: ignore[arg-type]
        for position, field in enumerate(declared):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            text += f":{value}" if position == 0 and field.name != "z" else f",{field.name}={value}"
        return text


def _convert(text: str, kind: Any, parameter: str, owner: str) -> Any:
    if kind is str:
        return text.strip()
    kind = next((k for k in get_args(kind) if k is not NoneType), kind)  # of a field that may be left out
    try:
        return kind(text)
    except ValueError:
        raise invalid(parameter, owner, "a number" if kind is float else "an integer", text) from None
