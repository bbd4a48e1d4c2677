"""Tables of a TOML file as settings: checked against dataclasses, changed from the command line, folders filled in."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from weft.errors import DataError, WeftError, invalid

Kind = TypeVar("Kind")


class RecipeError(WeftError, ValueError):
    """A recipe has an unknown key, a value of the wrong type, or values that contradict each other."""


def read_tables(
    path: str | Path, changes: Sequence[str] = (), folders: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Read a recipe's tables, with changes from the command line and folders for ``{data}`` and ``{models}``."""
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
    filled: dict[str, Any] = _fill(tables, folders or {})
    return filled


def settings(tables: Mapping[str, Any], name: str, kind: type[Kind]) -> Kind:
    """Turn the table of a name into a dataclass; a table that is not there counts as empty."""
    return _settings(tables.get(name, {}), kind, f"{name}.")


def list_of(tables: Mapping[str, Any], name: str, kind: type[Kind]) -> tuple[Kind, ...]:
    """Turn ``[[name]]`` tables into dataclasses."""
    found = tables.get(name, [])
    if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
        raise RecipeError(f"{name} must be tables, each under its own [[{name}]]")
    return tuple(_settings(table, kind, f"{name}.") for table in found)


class Labelled(Protocol):
    """A collection with a short name."""

    @property
    def label(self) -> str:
        """The name."""
        ...


Labels = TypeVar("Labels", bound=Labelled)


def leave_out(sources: Sequence[Labels], names: Sequence[str]) -> tuple[Labels, ...]:
    """Return the collections without those of some names, which must be among them."""
    known = [source.label for source in sources]
    for name in names:
        if name not in known:
            raise RecipeError(f"the recipe has no collection {name!r} to leave out; it has {', '.join(known)}")
    return tuple(source for source in sources if source.label not in names)


def reject_unknown(table: Mapping[str, Any], kind: type[Any], where: str = "") -> None:
    """Refuse keys that are not fields of `kind`, and name the nearest one."""
    names = [f.name for f in fields(kind)]
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(names)}"
            raise RecipeError(f"unknown key {where}{key}{hint}")


def at_least(least: int, name: str, value: int) -> None:
    """Refuse a number below the least."""
    if value < least:
        raise invalid(name, "the recipe", f"at least {least}", value)


def positive(name: str, value: float) -> None:
    """Refuse a number that is not above 0, or is infinite."""
    if not 0 < value < float("inf"):
        raise invalid(name, "the recipe", "greater than 0 and finite", value)


def _settings(table: Mapping[str, Any], kind: type[Kind], where: str) -> Kind:
    reject_unknown(table, kind, where)
    hints = get_type_hints(kind)
    values = {key: _typed(value, hints[key], where + key) for key, value in table.items()}
    try:
        return kind(**values)
    except TypeError:
        needed = [f.name for f in fields(kind) if f.name not in values and f.default is f.default_factory]  # type: ignore[arg-type]
        raise RecipeError(f"missing key {where}{needed[0] if needed else '?'}") from None


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
    if not equals or not dot:
        raise RecipeError(f"a change is written table.key=value, such as training.steps=100; got {change!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    if table == "data":
        _change_data(tables, key, value, change)
        return
    if not isinstance(tables.setdefault(table, {}), dict):
        raise RecipeError(f"{table} is not a table of the recipe; got {change!r}")
    tables[table][key] = value


def _change_data(tables: dict[str, Any], key: str, value: Any, change: str) -> None:
    """Change every ``[[data]]`` table (``data.limit=100``), or one of them (``data.2.limit=100``: the second)."""
    listed = tables.get("data", [])
    number, dot, rest = key.partition(".")
    if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
        raise RecipeError(f"the recipe has no [[data]] to change; got {change!r}")
    if not dot:
        for one in listed:
            one[key] = value
        return
    if not number.isdecimal() or not 1 <= int(number) <= len(listed):
        raise RecipeError(f"the recipe has {len(listed)} [[data]] tables, data.1 the first; got {change!r}")
    listed[int(number) - 1][rest] = value


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
