"""``weft compact``: fewer, fuller segments."""

from __future__ import annotations

import json

import typer

from weft.cli.info import _size
from weft.cli.opening import IndexPath, Json
from weft.text_index import TextIndex


def compact(index: IndexPath, as_json: Json = False) -> None:
    """Merge all segments into one and drop deleted documents.

    Seldom needed: segments merge in the background, a few at a time. This is the full merge, now. Searches
    and writes go on meanwhile.
    """
    with TextIndex.open(index) as opened:
        before = opened.info()
        opened.compact()
        after = opened.info()
    if as_json:
        keys = ("documents", "segments", "deleted", "bytes")
        typer.echo(json.dumps({"before": {k: before[k] for k in keys}, "after": {k: after[k] for k in keys}}))
        return
    typer.echo(
        f"{index}: {before['segments']:,} → {after['segments']:,} segments, "
        f"{_size(before['bytes'])} → {_size(after['bytes'])}"
    )
