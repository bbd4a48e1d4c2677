"""From the bytes of a file to its text, by the kind that `weft.sources.kinds` names."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from weft.errors import DataError, WeftError, missing_extra
from weft.sources.code import code
from weft.sources.decoding import decode
from weft.sources.extracted import Builder, Extracted, clean_text, unix_lines
from weft.sources.kinds import CODE
from weft.sources.markdown import markdown

PARSERS = {
    "html": ("lxml", "lxml", "HTML"),
    "epub": ("lxml", "lxml", "EPUB"),
    "pdf": ("pypdfium2", "pypdfium2", "PDF"),
    "docx": ("docx", "python-docx", "Word"),
    "xlsx": ("openpyxl", "openpyxl", "Excel"),
    "mail": ("email", "", "e-mail"),
}
"""Kinds with complicated formats, read in a separate process: the module of each, its package, and what it reads."""


def extract(data: bytes, kind: str) -> Extracted:
    r"""Read a file of a kind; `DataError` says why it cannot be.

    Examples
    --------
    >>> extract(b"# Title\n\nSome text.", "markdown").title
    'Title'
    >>> extract(b"MZ\x00\x01", "text")
    Traceback (most recent call last):
    ...
    weft.errors.DataError: binary, not text
    """
    try:
        found = _reader(kind)(data)
    except WeftError:
        raise
    except MemoryError:
        raise DataError(f"not readable as {kind}: it needs too much memory") from None
    except Exception as error:  # damaged files make parsers raise anything at all
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"not readable as {kind}: {reason}") from None
    if not found.text.strip():
        raise DataError("no text in it" + (" (a scan?)" if kind == "pdf" else ""))
    return found


def refuse_missing(kind: str) -> None:
    """Raise `MissingExtraError` if the parser of a kind is not installed."""
    module, package, reads = PARSERS.get(kind, ("json", "", kind))
    if find_spec(module) is None:
        raise missing_extra(package, "files", f"reading {reads} files")


def _reader(kind: str) -> Callable[[bytes], Extracted]:
    if kind.startswith(CODE):
        return lambda data: code(data, kind.removeprefix(CODE))
    own = {"text": _text, "markdown": markdown, "notebook": _notebook}
    if kind in own:
        return own[kind]
    module = {"html": "markup", "epub": "markup", "mail": "mail"}.get(kind, "office")
    reader: Callable[[bytes], Extracted] = getattr(import_module(f"weft.sources.{module}"), kind)
    return reader


def _text(data: bytes) -> Extracted:
    return Extracted(unix_lines(decode(data)), first_line=1)


def _notebook(data: bytes) -> Extracted:
    """Read a Jupyter notebook: its texts and its code, without what the code printed."""
    cells = json.loads(decode(data))["cells"]
    made, headings = Builder(), list[tuple[int, str]]()
    for cell in cells:
        text = clean_text("".join(cell["source"]).strip())  # JSON can name half of a surrogate pair
        start = made.add(text)
        if cell["cell_type"] == "markdown" and text:
            headings += [(start + at, title) for at, title in markdown(text.encode()).headings]
    return Extracted(made.text, headings[0][1] if headings else "", headings=tuple(headings))
