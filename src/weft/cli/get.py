"""``weft get``: what an index holds of a document."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.opening import IndexPath, Json, for_stdout, id_of, no_document
from weft.errors import DataError
from weft.explain.printable import json_line
from weft.ingest import own_metadata
from weft.text_index import TextIndex


def get(
    index: IndexPath,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Documents, or passages such as report##3.")],
    as_json: Json = False,
) -> None:
    """Print documents: text and metadata. A split document is printed passage by passage."""
    with TextIndex.open(index) as opened:
        found = {name: opened.family(id_of(opened, name)) for name in ids}
        missing = [no_document(opened, name, index) for name, documents in found.items() if not documents]
    for documents in found.values():
        for document in documents:
            if as_json:
                row = {"id": document.id, "text": document.text, "metadata": document.metadata}
                typer.echo(json_line(row))
                continue
            typer.secho(for_stdout(document.id), bold=True)
            for key, value in own_metadata(document).items():  # our own notes only --json has
                shown = value if isinstance(value, str) else json_line(value)
                typer.secho(for_stdout(f"  {key}: {shown}"), dim=True)
            typer.echo(for_stdout(f"\n{document.text.strip()}\n"))
    if missing:
        raise missing[0] if len(missing) == 1 else DataError("; ".join(map(str, missing)))
