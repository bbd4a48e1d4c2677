"""Text that is safe to print: a document, a file's name or a query must not control the terminal."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

_HARMLESS = "\n\t\u00ad\u200b\u200c\u200d\ufeff"


def printable(text: str) -> str:
    r"""Replace control characters by U+FFFD, so that escape sequences and marks of text direction have no effect.

    Examples
    --------
    >>> printable("a\x1b[31mb")
    'a�[31mb'
    """
    if text.isprintable():
        return text
    return "".join(c if _harmless(c) else "\ufffd" for c in text)


def _harmless(character: str) -> bool:
    return character in _HARMLESS or unicodedata.category(character) not in ("Cc", "Cf", "Cs")


def printable_line(text: str) -> str:
    r"""The same as one line.

    Examples
    --------
    >>> printable_line("two\nlines\r\x07")
    'two lines �'
    """
    return printable(" ".join(text.split()))


def json_line(value: Any, *, allow_nan: bool = True) -> str:
    r"""Return JSON in one line without characters that control a terminal; `json.dumps` leaves some as they are.

    Examples
    --------
    >>> print(json_line({"text": "a\x9b31m\u202eb"}))
    {"text": "a\u009b31m\u202eb"}
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=allow_nan)
    return text if text.isprintable() else "".join(c if _harmless(c) else json.dumps(c)[1:-1] for c in text)
