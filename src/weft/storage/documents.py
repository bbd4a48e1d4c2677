"""Documents on their way in: what an index can keep, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from weft.errors import CorruptIndexError, invalid
from weft.types import Document

_SETTINGS: dict[str, tuple[type, ...]] = {
    "dim": (int,),
    "bits": (int,),
    "encoder": (str,),
    "beta_d": (float, int, type(None)),
    "keep": (float, int),
    "find_by": (float, int),
    "weights": (bool,),
    "reading": (bool,),
    "model": (str,),
    "alignment": (str,),
}
_ALWAYS = ("dim", "bits", "encoder", "beta_d")
DEEPEST = 100
"""Metadata may nest lists and objects this deep, which any JSON reader can follow."""


def checked(given: Document | str) -> Document:
    """Return a document that can be stored as it is; otherwise raise one line that says why it cannot."""
    document = Document(given) if isinstance(given, str) else given
    if not isinstance(document, Document):
        raise invalid("documents", "add", "of documents, or of ids", given)
    if not isinstance(document.id, str) or not document.id:
        raise invalid("id", "Document", "a string with at least one character", document.id)
    for name in ("id", "text"):
        try:
            getattr(document, name).encode()
        except (UnicodeEncodeError, AttributeError):
            raise invalid(name, "Document", "valid Unicode text", getattr(document, name)) from None
    try:
        text = json.dumps(dict(document.metadata), allow_nan=False, ensure_ascii=False)
        text.encode()
        if text.count("[") + text.count("{") > DEEPEST and _depth(json.loads(text)) > DEEPEST:
            raise ValueError(f"more than {DEEPEST} lists and objects in each other")
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid("metadata", "Document", f"a JSON object ({error})", document.metadata) from None
    return document


def checked_ids(given: str | Iterable[str]) -> list[str]:
    """Return ids as a list; a single one may stand alone."""
    alone = isinstance(given, str) or not isinstance(given, Iterable)
    return [checked_id(name) for name in ([given] if alone else given)]


def checked_id(given: Any) -> str:
    """Return an id that is a string; SQLite would take 5 for "5"."""
    if not isinstance(given, str):
        raise invalid("id", "Document", "a string", given)
    return given


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, (dict, list))]:
        depth += 1
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]
    return depth


def checked_settings(stored: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return the settings of an index that was opened, if they are such as `create` stores."""
    for name, types in _SETTINGS.items():
        if name in stored or name in _ALWAYS:
            value = stored.get(name)
            if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
                raise CorruptIndexError(f"{file}: damaged: the setting {name!r} is {value!r}")
    if not 1 <= stored["dim"] <= 65536 or stored["bits"] not in (8, 4, 2):
        raise CorruptIndexError(f"{file}: damaged: dimension {stored['dim']}, bits {stored['bits']}")
    for name in ("beta_d", "keep", "find_by"):
        if stored.get(name) is not None and not 0 < stored[name] <= 1:
            raise CorruptIndexError(f"{file}: damaged: the setting {name!r} is {stored[name]!r}")
    return stored
