"""``weft add``: a text, or many on stdin, into an index."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.opening import IndexPath, Json, Model, for_stdout, shown, stdin_of_texts
from weft.errors import DataError, invalid
from weft.explain.printable import json_line
from weft.text_index import TextIndex
from weft.types import Document

if TYPE_CHECKING:
    from weft.sources.files import Source


def add(
    index: IndexPath,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text; without one, stdin: JSON lines, or one text a line.")
    ] = None,
    document_id: Annotated[str | None, typer.Option("--id", help="Its id; by default made from the text.")] = None,
    metadata: Annotated[str | None, typer.Option(help="A JSON object, such as '{\"year\": 2024}'.")] = None,
    model: Model = None,
    as_json: Json = False,
) -> None:
    """Add a text, or many from stdin.

    A document with the same id is replaced. Prints the ids of the documents added or replaced.
    """
    from weft.ingest import Summary, text_source
    from weft.sources.files import read_sources
    from weft.sources.find import STDIN, Found
    from weft.sources.records import Fields

    summary = Summary()
    if text is not None:
        sources = iter([text_source(Document(document_id or "", text, _object(metadata)))])
    else:
        if document_id is not None or metadata is not None:
            raise invalid("--id and --metadata", "weft add", "given with a TEXT", "none")
        stdin = Found(Path(STDIN), STDIN, STDIN, 0, True)
        sources = read_sources([stdin], Fields(), summary.skipped.append, stdin=stdin_of_texts())
    with TextIndex.open(index, model=model, lock=True) as opened:
        opened.add_sources(_added(sources), summary=summary, progress=None if text is None else False)
    for skipped in summary.skipped:
        typer.echo(f"weft: skipped {shown(str(skipped))}", err=True)
    if as_json:
        counts = {name: getattr(summary, name) for name in ("added", "updated", "unchanged", "passages")}
        typer.echo(json_line({**counts, "ids": summary.ids}))
    else:
        for name in summary.ids:
            typer.echo(for_stdout(name))
        typer.echo(f"{index}: {summary}", err=True)


def _added(sources: Iterator[Source]) -> Iterator[Source]:
    first = next(sources, None)
    if first is None:
        raise DataError("nothing to add: no text on stdin")
    for source in chain([first], sources):
        yield dataclasses.replace(source, origin="")  # of no file, so that weft index --sync leaves it alone


def _object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text) if text is not None else {}
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise invalid("--metadata", "weft add", "a JSON object", text)
    return value
