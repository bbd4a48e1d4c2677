"""What the verbs share: opening an index, and finding the encoder that it was made with."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from weft.errors import CheckpointError, IndexFormatError, NotAnIndexError, WeftError

if TYPE_CHECKING:
    from weft.encoders import Encoder
    from weft.search import Index

IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="The index: a folder made by weft index.")]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="FOLDER", help="The model, a folder or a name; by default the one of the index."
    ),
]


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class InterruptedRunError(WeftError):
    """Ctrl-C, with a word on how far it got."""

    exit_code = 130


def open_index(path: Path) -> Index:
    """Open an index, or say in one line why there is none."""
    from weft.search import Index

    if not path.exists():
        raise NotAnIndexError(f"no such index: {path}; weft index PATH -o {path} makes one")
    if not path.is_dir():
        raise NotAnIndexError(f"{path} is not an index: an index is a folder, this is a file")
    return Index.open(path)


def encoder_of(index: Index, model: str | None = None) -> Encoder:
    """Load the encoder of an index: the one named, else the one it remembers, else the bundled one."""
    from weft.encoders import Encoder

    try:
        encoder = Encoder.load(model or index.model or None)
    except CheckpointError as error:
        if model:
            raise
        raise CheckpointError(f"the model of the index at {index.folder}: {error}; name it with --model") from None
    check_encoder(index, encoder)
    return encoder


def check_encoder(index: Index, encoder: Encoder) -> None:
    """Refuse an encoder whose vectors are not those of the index."""
    if encoder.dim != index.dim or (index.encoder and encoder.fingerprint != index.encoder):
        was = f"the model {index.model}" if index.model else "another model"
        why = f"{encoder.dim} dimensions, not {index.dim}" if encoder.dim != index.dim else "other vectors"
        raise IndexFormatError(
            f"the index at {index.folder} was made with {was}; {encoder.name} has {why}: give --model the right one"
        )


def stdin_of_texts() -> IO[bytes]:
    """Return stdin for reading texts, with a word to whoever sits in front of it."""
    if sys.stdin.isatty():
        typer.echo("weft: reading texts from the terminal, one a line; Ctrl-D ends", err=True)
    return sys.stdin.buffer


def model_reference(model: str | None) -> str:
    """Return what an index is to remember of ``--model``: a folder's full path, a name as it is, "" for none."""
    if not model:
        return ""
    folder = Path(model).expanduser()
    return os.path.abspath(folder) if folder.is_dir() else model
