"""Text that is safe to print: a document, a file's name or a query must not control the terminal."""

from __future__ import annotations

import unicodedata

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
    return "".join(c if c in _HARMLESS or unicodedata.category(c) not in ("Cc", "Cf", "Cs") else "\ufffd" for c in text)


def printable_line(text: str) -> str:
    r"""The same as one line.

    Examples
    --------
    >>> printable_line("two\nlines\r\x07")
    'two lines �'
    """
    return printable(" ".join(text.split()))
