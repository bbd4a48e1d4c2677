"""``weft info``: what an index is."""

from __future__ import annotations

import json
from typing import Any

import typer

from weft.cli.opening import IndexPath, Json
from weft.cli.opening import shown as shown_value
from weft.encoders.loading import BUNDLED, query_encoders
from weft.explain.printable import json_line
from weft.text_index import TextIndex


def info(index: IndexPath, as_json: Json = False) -> None:
    """Print the sizes and settings of INDEX.

    Segments are the files that hold the vectors. They merge in the background as documents come and go; weft compact
    merges all of them.
    """
    with TextIndex.open(index) as opened:
        found = opened.info()
    if as_json:
        typer.echo(json_line(found))
        return
    shown = {
        "index": found["path"],
        "passages": f"{found['documents']:,}",
        "tokens": f"{found['tokens']:,}, of {found['dim']} dimensions",
        "size": _size(found["bytes"]),
        "bits": str(found["bits"]) + "".join(_part(found, name) for name in ("beta_d", "keep", "find_by")),
        "segments": f"{found['segments']:,}" + _deleted(found),
        "alignment": found["alignment"],
        "model": found["model"] or _model(found["encoder_fingerprint"]),
        "encoder": found["encoder_fingerprint"] or "unknown",
    }
    if len(towers := query_encoders(found["model"])) > 1:
        shown["queries"] = f"{', '.join(towers)} (--query-encoder)"
    if found["other_languages"]:
        from weft.encoders.languages import NAMES

        counts = (f"{count:,} {NAMES.get(code, code)}" for code, count in found["other_languages"].items())
        shown["languages"] = f"{', '.join(counts)}: passages that the model does not read well"
    for key, value in shown.items():
        typer.echo(typer.style(f"{key:>9}", dim=True) + f"  {shown_value(value)}")


def _model(fingerprint: str | None) -> str:
    """Name the model of an index that remembers no name: the one that comes with weft, if it is that."""
    try:
        bundled = json.loads((BUNDLED / "weft_encoder.json").read_text(encoding="utf-8")).get("fingerprint")
    except (OSError, ValueError):
        bundled = None
    return f"{BUNDLED.name}, which comes with weft" if bundled and bundled == fingerprint else "unknown"


def _part(found: dict[str, Any], name: str) -> str:
    return "" if found[name] is None else f", {'β_d' if name == 'beta_d' else name} {found[name]}"


def _deleted(found: dict[str, Any]) -> str:
    return f", {found['deleted']:,} passages in them deleted (weft compact frees them)" if found["deleted"] else ""


def _size(count: float) -> str:
    """Write bytes for people.

    Examples
    --------
    >>> _size(999), _size(1500), _size(12_345_678)
    ('999 B', '1.5 kB', '12.3 MB')
    """
    units = iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while count >= 1000 and (larger := next(units, None)):
        count, unit = count / 1000, larger
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
