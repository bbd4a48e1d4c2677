"""``weft check``: whether everything in an index is as it was written."""

from __future__ import annotations

import typer

from weft.cli.opening import IndexPath, Json, shown
from weft.errors import counted
from weft.explain.printable import json_line
from weft.text_index import TextIndex


def check(index: IndexPath, as_json: Json = False) -> None:
    """Verify that INDEX is sound.

    Checks every checksum and every cross-reference; the exit code is 1 if something is wrong.
    """
    with TextIndex.open(index) as opened:
        report = opened.check()
        count = len(opened) if report.sound else 0
    if as_json:
        row = {"sound": report.sound, "problems": report.problems, "leftovers": report.leftovers}
        typer.echo(json_line(row))
    elif report.sound:
        more = f"; {len(report.leftovers)} leftover files, which the next write removes" if report.leftovers else ""
        typer.echo(f"{index}: sound, {counted(count, 'passage')}{more}")
    else:
        for problem in report.problems:
            typer.echo(f"weft: {shown(problem)}", err=True)
        typer.echo(f"weft: weft repair {shown(str(index))} keeps what is sound, and names what is gone", err=True)
    if not report.sound:
        raise typer.Exit(1)
