"""``weft index``: files, folders and streams into an index, and only what changed the next time."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.opening import InterruptedRunError, Json, Model, stdin_of_texts
from weft.errors import DataError, IndexFormatError
from weft.text_index import TextIndex, is_taken

if TYPE_CHECKING:
    from weft.ingest import Summary
    from weft.sources.find import Skipped

_LISTED = 10
_NO_KIND = "of no known kind"


def index(
    paths: Annotated[list[str], typer.Argument(help="Files and folders; - reads stdin.", metavar="PATH")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The index, made if it is not there.")],
    model: Model = None,
    sync: Annotated[bool, typer.Option("--sync", help="Remove documents whose files under PATH are gone.")] = False,
    include: Annotated[
        list[str] | None, typer.Option(help="Only files like this, such as '*.md'; may be repeated.")
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="No files or folders like this; may be repeated.")] = None,
    id_field: Annotated[str | None, typer.Option(help="Of JSON lines, CSV, TSV, Parquet: the ids.")] = None,
    text_field: Annotated[str | None, typer.Option(help="The texts.")] = None,
    title_field: Annotated[str | None, typer.Option(help="The titles, which go before the texts.")] = None,
    metadata_fields: Annotated[
        str | None, typer.Option(help="What to keep beside, separated by commas; by default everything.")
    ] = None,
    split: Annotated[
        bool | None,
        typer.Option("--split/--no-split", help="Split long documents; by default all but test collections."),
    ] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Tokens of a passage at the most.")] = None,
    max_size: Annotated[int, typer.Option(min=1, help="Skip texts of more megabytes than this.")] = 64,
    bits: Annotated[int | None, typer.Option(help="8, 4 or 2 bits a coordinate, for a new index; 8.")] = None,
    beta_d: Annotated[
        float | None, typer.Option("--beta-d", help="Keep this part of the tokens, by salience, for a new index.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Processors to use; all.")] = None,
    progress: Annotated[
        bool | None, typer.Option("--progress/--no-progress", help="Show a bar; where a person watches.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Index files, folders, stdin.

    Reads .txt .md .html .pdf .docx, rows of .jsonl .csv .tsv .parquet, and BEIR folders.

    Run it again after files have changed: only those are encoded. Ctrl-C loses at most the batch under way. What
    was written is merged with the rest in the end; there is no need for weft compact.
    """
    from weft.ingest import Summary
    from weft.sources.files import read_sources
    from weft.sources.find import STDIN, Selection, Skipped, find, name_of
    from weft.sources.records import Fields

    fields = Fields(id_field, text_field, title_field, _names(metadata_fields))
    selection = Selection(tuple(include or ()), tuple(exclude or ()))
    summary = Summary()
    found = find(paths, selection, summary.skipped.append)
    if not found:
        raise DataError(f"nothing to index in {', '.join(paths)}{_because(summary.skipped)}")
    opened, fresh = _open(output, model, bits, beta_d)
    with opened:
        stdin = stdin_of_texts() if any(file.name == STDIN for file in found) else None
        sources = read_sources(found, fields, summary.skipped.append, stdin=stdin, largest=max_size * 2**20)
        try:
            opened.add_sources(
                sources,
                roots=[path if path == STDIN else name_of(Path(path)) for path in paths] if sync else None,
                split=split,
                length=length,
                threads=threads,
                progress=progress,
                total=sum(file.size for file in found) or None,
                summary=summary,
            )
        except KeyboardInterrupt:
            raise InterruptedRunError(
                f"interrupted: {output} is sound and holds {len(opened):,} passages; "
                "the same command goes on from there"
            ) from None
        empty = fresh and len(opened) == 0
    if empty:
        shutil.rmtree(output)  # made a moment ago, for nothing
    if not summary.added + summary.updated + summary.unchanged + summary.removed:
        raise DataError(f"nothing to index in {', '.join(paths)}{_because(summary.skipped)}")
    _say_skipped(summary.skipped)
    if summary.cut:
        typer.echo(f"weft: {summary.cut:,} documents were cut to the model's length; --split keeps all", err=True)
    typer.echo(_as_json(summary) if as_json else f"{output}: {summary}")
    asked = {file.name for file in found if file.asked}
    if any(isinstance(s, Skipped) and s.line is None and s.path in asked for s in summary.skipped):
        raise typer.Exit(1)  # a file that was asked for by name is not in the index


def _open(output: Path, model: str | None, bits: int | None, beta_d: float | None) -> tuple[TextIndex, bool]:
    """Open the index or make it; return it, locked, and whether it is new."""
    fresh = not is_taken(output)
    opened = TextIndex.open(
        output, create=True, model=model, bits=8 if bits is None else bits, beta_d=beta_d, lock=True
    )
    try:
        stored = opened.index
        for option, asked, made in (("--bits", bits, stored.bits), ("--beta-d", beta_d, stored.beta_d)):
            if asked is not None and asked != made:
                raise IndexFormatError(f"{output} was made with {option} {made}, not {asked}: that cannot change")
        if model:
            opened.remember_model(model)
    except BaseException:
        opened.close()
        raise
    return opened, fresh


def _names(listed: str | None) -> tuple[str, ...] | None:
    return None if listed is None else tuple(name.strip() for name in listed.split(",") if name.strip())


def _because(skipped: Iterable[Skipped]) -> str:
    lines = _lines(skipped)
    if not lines:
        return ": there is no text"
    return ": " + "; ".join(lines[:3]) + (f"; and {len(lines) - 3:,} more" if len(lines) > 3 else "")


def _say_skipped(skipped: Iterable[Skipped]) -> None:
    lines = _lines(skipped)
    for line in lines[:_LISTED]:
        typer.echo(f"weft: skipped {line}", err=True)
    if len(lines) > _LISTED:
        typer.echo(f"weft: skipped {len(lines) - _LISTED:,} more; --json lists all", err=True)


def _lines(skipped: Iterable[Skipped]) -> list[str]:
    """Write a line for each, but one for all files of no known kind."""
    listed = list(skipped)
    kinds = Counter(Path(s.path).suffix or s.path for s in listed if s.reason.startswith(_NO_KIND))
    lines = [str(s) for s in listed if not s.reason.startswith(_NO_KIND)]
    if kinds:
        common = ", ".join(suffix for suffix, _ in kinds.most_common(5)) + (", …" if len(kinds) > 5 else "")
        total = sum(kinds.values())
        lines.append(f"{total:,} {'file' if total == 1 else 'files'} {_NO_KIND} ({common})")
    return lines


def _as_json(summary: Summary) -> str:
    counts = {name: getattr(summary, name) for name in ("added", "updated", "unchanged", "removed", "passages", "cut")}
    return json.dumps({**counts, "skipped": [s._asdict() for s in summary.skipped]}, ensure_ascii=False)
