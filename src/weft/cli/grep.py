"""``weft grep``: search a folder by meaning, without making an index first."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from weft.cli.answers import readable
from weft.cli.index import say_skipped
from weft.cli.opening import Json, Queries, QueryEncoder, shown
from weft.errors import IndexFormatError, IndexLockedError, StorageError, WeftError
from weft.explain.printable import json_line
from weft.text_index import TextIndex, is_index

if TYPE_CHECKING:
    from weft.explain import Explanation
    from weft.search import Answer
    from weft.sources.find import Found
    from weft.types import Document

_VERSION = 1  # of what the cache holds


class Hit(NamedTuple):
    """A line that was found, with the lines around it."""

    path: str
    line: int
    text: str
    score: float
    heading: str
    first: int
    around: list[str]


def grep(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for.")],
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="Folders and files; default the current folder.",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-m", "--max-count", min=1, help="The maximum number of places.")] = 10,
    context: Annotated[int, typer.Option("-C", "--context", min=0, help="Lines to show around each.")] = 0,
    names: Annotated[bool, typer.Option("-l", "--files-with-matches", help="Print the names of files only.")] = False,
    include: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Only matching files, such as '*.py'; may be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Skip matching files and folders; may be repeated.")
    ] = None,
    ignore: Annotated[bool, typer.Option("--ignore/--no-ignore", help="Skip what .gitignore files name.")] = True,
    hybrid: Annotated[bool, typer.Option("--hybrid", help="Blend with BM25, which finds exact names.")] = False,
    model: Annotated[
        str | None, typer.Option("--model", metavar="FOLDER", help="The model: a folder or a name; default weft-small.")
    ] = None,
    query_encoder: Queries = QueryEncoder.full,
    cache: Annotated[
        Path | None, typer.Option(envvar="WEFT_CACHE", help="Where indexes are cached; default ~/.cache/weft.")
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Rebuild the index.")] = False,
    as_json: Json = False,
) -> None:
    """Search files by meaning, the way grep searches by letters.

    Prints path:line:text. What is searched is indexed in a cache folder at the first call and brought up to date at
    each. Exit codes are grep's: 0 found, 1 nothing found, 2 an error.
    """
    from weft.sources.find import Selection

    selection = Selection(tuple(include or ()), tuple(exclude or ()), ignore)
    try:
        query = readable(query, "query")
        home = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"
        hits: list[Hit] = []
        for path in paths or ["."]:
            place = home / "grep" / f"{_key(path, selection, model)}.weft"
            if rebuild:
                shutil.rmtree(place, ignore_errors=True)
            hits += _hits(path, place, selection, (model, query_encoder.value), query, k, context, hybrid)
    except (WeftError, OSError) as error:
        error.exit_code = 2  # type: ignore[union-attr]
        raise
    hits = sorted(hits, key=lambda hit: -hit.score)[:k]
    _print(hits, names, context, as_json)
    if not hits:
        raise typer.Exit(1)


def _key(path: str, selection: Any, model: str | None) -> str:
    """Name what is searched: where it is, which files of it, by which model."""
    parts = (_VERSION, os.path.realpath(path), selection.include, selection.exclude, selection.ignore, model)
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


def _hits(
    path: str,
    place: Path,
    selection: Any,
    model: tuple[str | None, str],
    query: str,
    k: int,
    context: int,
    hybrid: bool,
) -> list[Hit]:
    from weft.sources.find import Skipped, find_by_place

    skipped: list[Skipped] = []
    found = find_by_place([path], selection, skipped.append)
    if not found:
        return []
    try:
        opened = _up_to_date(path, place, found, model)
    except IndexFormatError:  # made by another version of weft or of the model: it is only a cache
        shutil.rmtree(place)
        opened = _up_to_date(path, place, found, model)
    with opened, opened.view():
        if not len(opened):
            return []
        (answer,) = opened.answers([query], k, hybrid=hybrid)
        return list(_read(opened, answer, path, context, found))


def _up_to_date(path: str, place: Path, found: dict[str, Found], model: tuple[str | None, str]) -> TextIndex:
    """Open the index of a path and bring it up to date; `found` has the files by their real paths.

    `model`: its name, and what encodes queries.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"no index can be kept in {place.parent}: {error.strerror}; --cache FOLDER chooses another place"
        ) from error
    listing = place.with_suffix(".json")
    now = {name: _stamp(file.path) for name, file in found.items()}
    known = is_index(place)
    opened = TextIndex.open(place, create=True, model=model[0], query=model[1])
    try:
        if known and _read_listing(listing) == now:
            return opened
        opened.lock()
        listing.unlink(missing_ok=True)  # until everything is in the index
        summary = opened.add_found(found.values(), roots=[path])
        say_skipped((skipped for skipped in summary.skipped if skipped.lost), rest="")
        listing.write_text(json.dumps(now), encoding="utf-8", errors="surrogateescape")
    except IndexLockedError:
        typer.echo("weft: another weft grep is indexing this: searching what it has so far", err=True)
    except BaseException:
        opened.close()
        raise
    return opened


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino]


def _read_listing(listing: Path) -> Any:
    try:
        return json.loads(listing.read_text(encoding="utf-8", errors="surrogateescape"))
    except (OSError, ValueError):
        return None


def _read(opened: TextIndex, answer: Answer, path: str, context: int, files: dict[str, Found]) -> Iterator[Hit]:
    from weft.ingest.origins import real_path
    from weft.ingest.texts import note_of

    root = os.path.realpath(path)
    for result in answer.ranking:
        document = opened.index.get(result.id)
        assert document is not None
        real = real_path(opened.index, note_of(document, "file"))
        below = os.path.relpath(real, root)
        name = path if below == "." else os.path.normpath(os.path.join(path, below))
        why = opened.explain_answer(answer, result.id) if answer.behind(result.id) else None
        whole = opened.get(str(document.metadata.get("parent", result.id))) or document
        lines = whole.text.split("\n")
        at = _best_line(lines, document, why)
        # The text of a file may begin after its first line: front matter is left out of it.
        number = at + 1 + _lines_before(document, whole)
        before, after = min(at, context), context
        if (row := _row(files.get(real), str(note_of(document, "hash")))) is not None:
            number, before, after = row, 0, 0  # the lines beside it are of other documents
        around = lines[at - before : at + after + 1]
        heading = str(document.metadata.get("heading", ""))
        yield Hit(name, number, lines[at].strip(), result.score, heading, number - before, around)


def _row(file: Found | None, digest: str) -> int | None:
    """Return the line that a row stands on now; None if the file has no rows, or they have no lines of their own.

    The digest is the row's, which the splitting follows.
    """
    from weft.sources.files import LARGEST, read_sources
    from weft.sources.records import Fields

    if file is None or file.kind not in ("jsonl", "csv", "tsv") or file.size > LARGEST:
        return None
    rows = read_sources([file], Fields(), lambda _: None)
    return next((row.line for row in rows if row.hash == digest.partition(":")[0]), None)


def _lines_before(passage: Document, whole: Document) -> int:
    if "line" not in passage.metadata:
        return 0
    start = int(passage.metadata["start"]) + len(passage.text) - len(passage.text.lstrip())
    return int(passage.metadata["line"]) - 1 - whole.text.count("\n", 0, start)


def _best_line(lines: list[str], passage: Document, why: Explanation | None) -> int:
    """Return which line of a document the score of one of its passages came from most."""
    from weft.explain.words import words

    ends = list(accumulate(len(line) + 1 for line in lines))
    start = int(passage.metadata.get("start", 0))
    sums: dict[int, float] = {}
    for word in words(why.document) if why is not None else ():
        if word.span is not None:
            line = bisect_right(ends, start + word.span[0])
            sums[line] = sums.get(line, 0.0) + word.contribution
    first, last = (bisect_right(ends, at) for at in (start, start + max(len(passage.text) - 1, 0)))
    filled = [number for number in range(first, min(last + 1, len(lines))) if lines[number].strip()]
    return max(filled, key=lambda number: (sums.get(number, 0.0), -number), default=first)


def _print(hits: list[Hit], names: bool, context: int, as_json: bool) -> None:
    if names and not as_json:
        for name in dict.fromkeys(hit.path for hit in hits):
            typer.echo(shown(name))
        return
    colour = sys.stdout.isatty()
    for number, hit in enumerate(hits):
        if as_json:
            row = {"path": hit.path, "line": hit.line, "score": hit.score, "text": hit.text, "heading": hit.heading}
            typer.echo(json_line({**row, "first": hit.first, "context": hit.around}))
            continue
        if context and number:
            typer.echo("--")
        for offset, line in enumerate(hit.around):
            found = hit.first + offset == hit.line
            mark = ":" if found else "-"
            name, text = shown(hit.path), _kept(line)
            if colour:
                name = typer.style(name, fg="magenta")
                text = typer.style(text, bold=True) if found and context else text
            typer.echo(f"{name}{mark}{hit.first + offset}{mark}{text}")


def _kept(line: str) -> str:
    """Return a line with its indentation, harmless."""
    from weft.explain.printable import printable

    return printable(line.rstrip())
