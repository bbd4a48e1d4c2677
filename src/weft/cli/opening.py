"""What the verbs share: an index with its model as arguments, and stdin."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated

import typer

from weft.errors import WeftError
from weft.explain.printable import printable, printable_line

IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="The index: a folder made by weft index.")]
Model = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="FOLDER", help="The model: a folder or a name; by default the index's own."),
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


class InterruptedRunError(WeftError):
    """Ctrl-C, with a word on how far it got."""

    exit_code = 130


def stdin_of_texts() -> IO[bytes]:
    """Return stdin for reading texts, with a word to whoever sits in front of it."""
    if sys.stdin.isatty():
        typer.echo("weft: reading texts from the terminal, one a line; Ctrl-D ends", err=True)
    return sys.stdin.buffer


def shown(text: str) -> str:
    """Return a message or a name as one line that a terminal only shows."""
    return printable_line(text)


def for_stdout(text: str) -> str:
    """Return text for stdout: what a terminal only shows, and exactly what there is for a pipe."""
    return printable(text) if sys.stdout.isatty() else text
