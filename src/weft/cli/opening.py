"""What the verbs share: an index with its model as arguments, and stdin."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from weft.errors import DataError, WeftError
from weft.explain.printable import printable, printable_line

if TYPE_CHECKING:
    from weft.text_index import TextIndex

IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="The index: a folder made by weft index.")]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="FOLDER", help="The model: a folder or a name; by default the index's own."),
]


class QueryEncoder(StrEnum):
    """What encodes queries."""

    full = "full"
    fast = "fast"
    static = "static"


Queries = Annotated[
    QueryEncoder,
    typer.Option("--query-encoder", help="What encodes queries: the model, or its query tower, fast or static."),
]


class Damage(StrEnum):
    """What to do about damaged segments."""

    stop = "raise"
    skip = "skip"


OnDamage = Annotated[
    Damage,
    typer.Option("--on-damage", help="Stop at damaged parts of the index, or skip them and report it."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_LISTED = 100_000
"""A wrong id is compared with those of the index if there are at most this many passages."""


class InterruptedRunError(WeftError):
    """Ctrl-C, with a message that says how far the work got."""

    exit_code = 130


def stdin_of_texts() -> IO[bytes]:
    """Return stdin for reading texts; in a terminal, say that it is being read."""
    if sys.stdin.isatty():
        typer.echo("weft: reading texts from the terminal, one a line; Ctrl-D ends", err=True)
    return sys.stdin.buffer


def shown(text: str) -> str:
    """Return a message or a name as one line without control characters."""
    return printable_line(text)


def for_stdout(text: str) -> str:
    """Return text for stdout: without control characters for a terminal, unchanged for a pipe."""
    return printable(text) if sys.stdout.isatty() else text


def id_of(texts: TextIndex, name: str) -> str:
    """Return a document's id, given that id or any path to its file."""
    if texts.family(name) or not os.path.exists(name):
        return name
    from weft.ingest import as_known
    from weft.sources.find import Found, name_of

    (file,) = as_known(texts.index, [Found(Path(name), name_of(Path(name)), "text", 0, True)])
    return file.name


def no_document(texts: TextIndex, name: str, index: Path) -> DataError:
    """Return the message for a document that an index does not have, with the nearest id."""
    known = {id.partition("##")[0] for id in texts} if len(texts) <= _LISTED else set()  # noqa: A001
    end = "/" + name.replace(os.sep, "/").lstrip("./")
    close = sorted(id for id in known if id.endswith(end)) or get_close_matches(name, sorted(known), n=1)  # noqa: A001
    hint = f": did you mean {close[0]!r}?" if close else ""
    return DataError(f"no document {name!r} in {index}{hint}")
