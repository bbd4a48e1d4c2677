"""Queries from a file: JSON lines, TSV, or one a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

from weft.errors import DataError

ID_FIELDS = ("_id", "id", "query_id", "qid")
TEXT_FIELDS = ("text", "query")
LONGEST = 2**20
"""The most characters of a line."""


class Query(NamedTuple):
    """A query with its id; its line number, where the file gives it none."""

    id: str
    text: str


def read_query_file(path: Path, stdin: TextIO | None = None) -> list[Query]:
    """Read queries.

    ``.jsonl`` has objects with ``_id``, ``id``, ``query_id`` or ``qid`` (or none), and ``text`` or ``query``. ``.tsv``
    has an id, a tab and the query. Any other file, and ``-`` for `stdin`, has one query a line. Blank
    lines are left out.
    """
    try:
        if str(path) == "-" and stdin is not None:
            return _queries(path, _numbered(stdin))
        with path.open(encoding="utf-8-sig") as lines:
            return _queries(path, _numbered(lines))
    except FileNotFoundError:
        raise DataError(f"no such file of queries: {path}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from None


def _numbered(file: TextIO) -> Iterator[tuple[int, str]]:
    number = 0
    while line := file.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            raise DataError(f"line {number} of the queries is longer than {LONGEST // 2**20} MB")
        yield number, line


def _queries(path: Path, lines: Iterator[tuple[int, str]]) -> list[Query]:
    read = {".jsonl": _from_json, ".tsv": _from_tsv}.get(path.suffix.lower(), _from_line)
    found = [read(f"{path} line {number}", number, line.strip("\r\n")) for number, line in lines if line.strip()]
    if not found:
        raise DataError(f"no queries in {path}")
    seen: set[str] = set()
    for query in found:
        if query.id in seen:
            raise DataError(f"{path}: two queries have the id {query.id!r}")
        seen.add(query.id)
    return found


def _from_line(where: str, number: int, line: str) -> Query:  # noqa: ARG001
    return Query(str(number), line.strip())


def _from_tsv(where: str, number: int, line: str) -> Query:  # noqa: ARG001
    name, tab, text = line.partition("\t")
    if not tab or not name.strip() or not text.strip():
        raise DataError(f"{where}: not an id, a tab and a query: {line[:80]!r}")
    return Query(name.strip(), text.strip())


def _from_json(where: str, number: int, line: str) -> Query:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise DataError(f"{where}: not a JSON object: {line[:80]!r}")
    text = next((row[name] for name in TEXT_FIELDS if isinstance(row.get(name), str)), "")
    if not text.strip():
        raise DataError(f"{where}: no query in the fields {' or '.join(TEXT_FIELDS)}")
    name = next((row[name] for name in ID_FIELDS if row.get(name) is not None), number)
    return Query(str(name), text)
