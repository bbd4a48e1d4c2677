"""``weft compact``: fewer, fuller segments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from weft.cli.info import _size
from weft.cli.opening import IndexPath, Json
from weft.text_index import TextIndex


def compact(index: IndexPath, as_json: Json = False) -> None:
    """Merge all segments into one and drop deleted documents.

    Seldom needed: segments merge in the background, a few at a time. This is the full merge, now. Searches
    and writes go on meanwhile.
    """
    before = _info(index)
    with TextIndex.open(index) as opened:
        opened.compact()
    after = _info(index)
    if as_json:
        keys = ("documents", "segments", "deleted", "bytes")
        typer.echo(json.dumps({"before": {k: before[k] for k in keys}, "after": {k: after[k] for k in keys}}))
        return
    typer.echo(
        f"{index}: {before['segments']:,} → {after['segments']:,} segments, "
        f"{_size(before['bytes'])} → {_size(after['bytes'])}"
    )


def _info(index: Path) -> dict[str, Any]:
    """Look at an index that was just opened: SQLite's log, which goes when the index is closed, is not counted."""
    with TextIndex.open(index) as opened:
        return opened.info()
