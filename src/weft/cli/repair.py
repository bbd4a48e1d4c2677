"""``weft repair``: keep what can still be read of a damaged index."""

from __future__ import annotations

from dataclasses import asdict

import typer

from weft.cli.opening import IndexPath, Json, shown
from weft.errors import counted
from weft.explain.printable import json_line
from weft.storage.folder import QUARANTINE
from weft.storage.repair import repair as repaired


def repair(index: IndexPath, as_json: Json = False) -> None:
    """Drop what is damaged in INDEX, keep the rest, and print the ids of documents that are gone.

    Damaged files go to INDEX/quarantine, with the texts of documents whose vectors are lost, to index again.
    """
    done = repaired(index)
    if as_json:
        typer.echo(json_line(asdict(done)))
        return
    for note in done.notes:
        typer.echo(f"weft: {shown(note)}", err=True)
    for name in done.lost:
        typer.echo(shown(name))
    if not done:
        typer.echo(f"{index}: sound, nothing to repair", err=True)
    elif done.lost:
        typer.echo(
            f"weft: {counted(len(done.lost), 'passage')} lost, listed above; what is left of their texts is in "
            f"{index / QUARANTINE}",
            err=True,
        )
    else:
        typer.echo("weft: repaired; nothing was lost", err=True)
