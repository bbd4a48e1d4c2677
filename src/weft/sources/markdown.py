"""Markdown: headings, front matter and title, by one pass over the lines."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from weft.errors import DataError
from weft.sources.decoding import decode
from weft.sources.extracted import Extracted, one_line, unix_lines
from weft.storage.documents import DEEPEST

_FRONT = 2**16
"""Front matter is looked for in this many characters."""
_MOST_DOTS = 1000
"""TOML with more dots in a line, which may be a key of so many parts, takes the parser quadratic time."""
_FENCES = ("```", "~~~")


def markdown(data: bytes) -> Extracted:
    """Read a file: the text without its front matter, which becomes metadata."""
    text = unix_lines(decode(data))
    metadata, start = front_matter(text)
    body = text[start:]
    headings = [(at, title) for at, title, _ in _headings(body)]
    title = one_line(metadata.pop("title", "")) or next((t for _, t, level in _headings(body) if level == 1), "")
    return Extracted(
        body, title, headings=tuple(headings), first_line=text.count("\n", 0, start) + 1, metadata=metadata
    )


def front_matter(text: str) -> tuple[dict[str, Any], int]:
    r"""Return a file's front matter (YAML or TOML), and where the text after it begins.

    What cannot be read as such is left in the text.

    Examples
    --------
    >>> front_matter("---\ntitle: A fox\ntags: [red, quick]\n---\nText.")
    ({'title': 'A fox', 'tags': ['red', 'quick']}, 40)
    """
    mark = next((m for m in ("---", "+++") if text.startswith(m + "\n")), None)
    end = -1 if mark is None else text.find(f"\n{mark}\n", 3, _FRONT)
    if mark is None or end < 0:
        return {}, 0
    try:
        found = _yaml(text[4:end]) if mark == "---" else _toml(text[4:end])
    except (DataError, ValueError, RecursionError):
        return {}, 0
    if not isinstance(found, Mapping):
        return {}, 0
    return {str(key): value for key, value in found.items() if value is not None}, end + 5


def _toml(text: str) -> Any:
    return None if any(line.count(".") > _MOST_DOTS for line in text.split("\n")) else tomllib.loads(text)


def _yaml(text: str) -> Any:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST or isinstance(event, yaml.AliasEvent):
                return None  # a few lines of references can stand for gigabytes
        return yaml.load(text, Loader=loader)  # a safe loader: makes plain values only
    except yaml.YAMLError as error:
        raise DataError(f"not YAML: {error}") from None


def _headings(text: str) -> list[tuple[int, str, int]]:
    """Return where each heading stands, what it says, and its level."""
    found: list[tuple[int, str, int]] = []
    at, before, before_at, fence = 0, "", 0, ""
    for line in text.split("\n"):
        stripped = line.strip(" \t")
        if fence:
            if stripped.startswith(fence):
                fence = ""
            before = ""
        elif stripped.startswith(_FENCES):
            fence, before = stripped[:3], ""
        else:
            level = len(stripped) - len(stripped.lstrip("#"))
            if 1 <= level <= 6 and line.startswith("#") and stripped[level : level + 1] in (" ", "\t"):
                found.append((at, one_line(stripped[level:].strip(" \t").rstrip("#").rstrip(" \t")), level))
            elif before and (stripped.strip("=") == "" != stripped or (len(stripped) > 2 and not stripped.strip("-"))):
                found.append((before_at, one_line(before), 1 if stripped[0] == "=" else 2))
            before, before_at = ("" if stripped.startswith(("#", "-", "*", ">", "|")) else stripped), at
        at += len(line) + 1
    return [heading for heading in found if heading[1]]
