"""``weft index``: files, folders and streams into an index, and only what changed the next time."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.opening import InterruptedRunError, Json, Model, shown, stdin_of_texts
from weft.errors import DataError, IndexFormatError, counted
from weft.explain.printable import json_line
from weft.text_index import TextIndex, is_taken

if TYPE_CHECKING:
    from weft.ingest import Summary
    from weft.sources.find import Skipped

_LISTED = 10
_ALIKE = 3  # of one reason are listed; of more, only how many there are


class Scope(StrEnum):
    """Where an id of a row is unique."""

    file = "file"
    everywhere = "global"


def index(
    paths: Annotated[list[str], typer.Argument(help="Files and folders; - reads stdin.", metavar="PATH")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The index; created if it does not exist.")],
    model: Model = None,
    sync: Annotated[bool, typer.Option("--sync", help="Remove documents whose files under PATH are gone.")] = False,
    include: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Only matching files, such as '*.md'; may be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Skip matching files and folders; may be repeated.")
    ] = None,
    ignore: Annotated[bool, typer.Option("--ignore/--no-ignore", help="Skip what .gitignore files name.")] = True,
    follow_links: Annotated[bool, typer.Option("--follow-links", help="Follow links out of the folders.")] = False,
    id_field: Annotated[str | None, typer.Option(help="The field or column with the ids of rows.")] = None,
    id_scope: Annotated[
        Scope, typer.Option(help="Whether the ids of rows are unique per file or across all files.")
    ] = Scope.file,
    text_field: Annotated[str | None, typer.Option(help="The field with the texts.")] = None,
    title_field: Annotated[
        str | None,
        typer.Option(
            help="The field with the titles, which go before the texts.",
        ),
    ] = None,
    metadata_fields: Annotated[
        str | None, typer.Option(help="Metadata fields to keep, separated by commas; by default all.")
    ] = None,
    split: Annotated[
        bool | None,
        typer.Option("--split/--no-split", help="Split long documents; on by default, except for test collections."),
    ] = None,
    length: Annotated[int | None, typer.Option(min=1, help="The maximum number of tokens of a passage.")] = None,
    max_size: Annotated[int, typer.Option(min=1, help="Skip texts of more megabytes than this.")] = 64,
    bits: Annotated[int | None, typer.Option(help="Bits per coordinate of a new index: 8, 4 or 2; default 8.")] = None,
    beta_d: Annotated[
        float | None,
        typer.Option(
            "--beta-d",
            help="Keep this share of the tokens, the most salient ones, in a new index.",
        ),
    ] = None,
    keep: Annotated[
        float | None,
        typer.Option(help="Pool similar tokens to this share of the vectors in a new index: 0.2 for a fifth."),
    ] = None,
    find_by: Annotated[
        float | None,
        typer.Option(
            help="In a new index, find documents by this share of their tokens, the most salient ones; rank by all."
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Processors to use; default all.")] = None,
    progress: Annotated[
        bool | None, typer.Option("--progress/--no-progress", help="Show a progress bar; on by default in a terminal.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Index files, folders, stdin.

    Reads text, Markdown, HTML, PDF, Word, Excel, EPUB, e-mail, notebooks and source code, rows of .jsonl .json .csv
    .tsv .parquet, and BEIR folders.

    Run it again after files have changed: only those are encoded. Ctrl-C loses at most the current batch. New
    segments merge in the background; there is no need for weft compact.
    """
    from weft.ingest import Summary
    from weft.sources.find import STDIN, Selection, Skipped, find
    from weft.sources.records import Fields

    fields = Fields(id_field, text_field, title_field, _names(metadata_fields), id_scope.value)
    selection = Selection(tuple(include or ()), tuple(exclude or ()), ignore, follow_links)
    summary = Summary()
    found = find(paths, selection, summary.skipped.append)
    if not found:
        raise DataError(f"nothing to index in {', '.join(paths)}{_because(summary.skipped)}")
    opened, fresh = _open(output, model, bits, beta_d, keep, find_by)
    with opened:
        try:
            opened.add_found(
                found,
                fields=fields,
                roots=paths if sync else None,
                stdin=stdin_of_texts() if any(file.name == STDIN for file in found) else None,
                largest=max_size * 2**20,
                split=split,
                length=length,
                threads=threads,
                progress=progress,
                summary=summary,
            )
        except KeyboardInterrupt:
            raise InterruptedRunError(
                f"interrupted: {output} is sound and holds {counted(len(opened), 'passage')}; "
                "the same command continues from there"
            ) from None
        empty = fresh and len(opened) == 0
    if empty:
        shutil.rmtree(output)  # made a moment ago, for nothing
    if not summary.added + summary.updated + summary.unchanged + summary.removed:
        raise DataError(f"nothing to index in {', '.join(paths)}{_because(summary.skipped)}")
    say_skipped(summary.skipped)
    if summary.cut:
        typer.echo(f"weft: {counted(summary.cut, 'document')} cut to the model's length; --split keeps all", err=True)
    typer.echo(_as_json(summary) if as_json else f"{output}: {summary}")
    asked = {file.name for file in found if file.asked}
    unread = any(isinstance(s, Skipped) and s.line is None and s.path in asked for s in summary.skipped)
    if unread or summary.clashes:  # what was asked for by name, or one of two documents of one id, is not in the index
        raise typer.Exit(1)


def _open(
    output: Path,
    model: str | None,
    bits: int | None,
    beta_d: float | None,
    keep: float | None,
    find_by: float | None,
) -> tuple[TextIndex, bool]:
    """Open the index or make it; return it, locked, and whether it is new."""
    fresh = not is_taken(output)
    opened = TextIndex.open(
        output,
        create=True,
        model=model,
        bits=8 if bits is None else bits,
        beta_d=beta_d,
        keep=keep,
        find_by=find_by,
        lock=True,
    )
    try:
        stored = opened.index
        settings = (
            ("--bits", bits, stored.bits),
            ("--beta-d", beta_d, stored.beta_d),
            ("--keep", keep, stored.keep),
            ("--find-by", find_by, stored.find_by),
        )
        for option, asked, made in settings:
            if asked is not None and asked != made:
                how = f"without {option}, not with" if made is None else f"with {option} {made}, not"
                raise IndexFormatError(f"{output} was made {how} {asked}: that cannot be changed")
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


def say_skipped(skipped: Iterable[Skipped], rest: str = "; --json lists all") -> None:
    """Tell on stderr what was not indexed; `rest` says where to find what is not listed."""
    lines = _lines(skipped)
    for line in lines[:_LISTED]:
        typer.echo(f"weft: skipped {line}", err=True)
    if len(lines) > _LISTED:
        typer.echo(f"weft: skipped {len(lines) - _LISTED:,} more{rest}", err=True)


def _lines(skipped: Iterable[Skipped]) -> list[str]:
    """Write a line for each, except that files of unknown kinds share one, and so do files with a common reason."""
    from weft.sources.find import IGNORED, NO_KIND

    listed = list(skipped)
    unknown = [Path(s.path).suffix or "no suffix" for s in listed if s.reason.startswith(NO_KIND)]
    ignored = sum(s.reason == IGNORED for s in listed)
    others = [s for s in listed if not s.reason.startswith((NO_KIND, IGNORED))]
    common = {reason for reason, count in Counter(s.reason for s in others).items() if count > _ALIKE}
    lines = [str(s) for s in others if s.reason not in common]
    for reason in sorted(common):
        alike = [s.path for s in others if s.reason == reason]
        lines.append(f"{counted(len(alike), 'file')}: {reason} ({alike[0]}, …)")
    if unknown:
        kinds = Counter(unknown).most_common()
        named = ", ".join(f"{count:,} {suffix}" for suffix, count in kinds[:_LISTED])
        more = f", {len(kinds) - _LISTED} other kinds" if len(kinds) > _LISTED else ""
        lines.append(f"{counted(len(unknown), 'file')} {NO_KIND} ({named}{more})")
    if ignored:
        what = "file or folder" if ignored == 1 else "files and folders"
        lines.append(f"{ignored:,} {what} {IGNORED} (--no-ignore takes {'it' if ignored == 1 else 'them'})")
    return [shown(line) for line in lines]


def _as_json(summary: Summary) -> str:
    names = ("added", "updated", "unchanged", "removed", "passages", "cut", "clashes")
    reasons = Counter(s.reason.partition(" (")[0].partition(":")[0] for s in summary.skipped)
    found = {
        **{name: getattr(summary, name) for name in names},
        "languages": summary.languages,
        "skipped_by_reason": dict(reasons.most_common()),
        "skipped": [s._asdict() for s in summary.skipped],
    }
    return json_line(found)
