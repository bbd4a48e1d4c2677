"""``weft delete``: documents out of an index, by id or by filter."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.opening import IndexPath, Json, for_stdout, id_of, no_document
from weft.cli.unknown_fields import warn_of_unknown_fields
from weft.errors import DataError, invalid
from weft.explain.printable import json_line
from weft.text_index import TextIndex


def delete(
    index: IndexPath,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Documents, or passages such as report##3.")
    ] = None,
    where: Annotated[str | None, typer.Option("--filter", help="All documents that match, as in weft search.")] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print what would be deleted, and delete nothing.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Delete documents with their passages.

    If any of them does not exist, nothing is deleted.
    """
    if not ids and where is None:
        raise invalid("IDS", "weft delete", "at least one id, or --filter", ids)
    with TextIndex.open(index) as opened:
        doomed: dict[str, None] = {}
        for name in ids or ():
            members = opened.family(id_of(opened, name))
            if not members:
                raise DataError(f"nothing was deleted: {no_document(opened, name, index)}")
            doomed.update(dict.fromkeys(member.id for member in members))
        if where is not None:
            found = opened.matching(where)
            doomed.update(dict.fromkeys(found))
            if not found:
                warn_of_unknown_fields(opened, where)
        count = len(doomed) if dry_run else opened.index.delete(list(doomed))
    if as_json:
        typer.echo(json_line({"deleted": count, "ids": list(doomed), "dry_run": dry_run}))
        return
    if dry_run:
        for name in doomed:
            typer.echo(for_stdout(name))
    typer.echo(f"{index}: {count:,} {'would be deleted' if dry_run else 'deleted'}", err=dry_run)
