"""Files with many documents: JSON lines, CSV, TSV, Parquet, and what comes on stdin. Read as streams, row by row."""

from __future__ import annotations

import codecs
import csv
import datetime
import decimal
import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

from weft.errors import DataError, WeftError, invalid, missing_extra
from weft.sources.decoding import decode, guess
from weft.sources.extracted import clean_text
from weft.storage.documents import DEEPEST

ID_FIELDS = ("_id", "id", "doc_id", "docid")
TEXT_FIELDS = ("text", "contents", "content", "body", "passage")
TITLE_FIELDS = ("title",)
LONGEST = 64 * 2**20
"""The maximum size of a row, in bytes."""
VALUES = 1_000_000
"""The maximum number of values in a JSON text: a value of a few bytes can take a hundred bytes of memory."""
EXPANSION = 200
"""How many times its size a gzipped file may have when it is unpacked, beyond the first 256 MB."""
_LONGEST_INTEGER = 14_000
"""Bits of the longest integer in metadata: Python writes no more than 4,300 digits as text."""
FILE, GLOBAL = "file", "global"
"""Scopes of ids: unique per file, or across all files."""


@dataclass(frozen=True)
class Fields:
    """Which fields of a row mean what. None: the usual names are looked for; `metadata`: all other fields.

    In CSV and TSV a number names a column of a file without a header line, from 1 on.
    """

    id: str | None = None
    text: str | None = None
    title: str | None = None
    metadata: tuple[str, ...] | None = None
    scope: str = FILE
    """``"file"``: ids begin with the file's name and a colon, so that two files never have the same ids; ``"global"``:
    ids are what the rows say."""

    def __post_init__(self) -> None:
        if self.scope not in (FILE, GLOBAL):
            raise invalid("scope", "Fields", f"{FILE!r} or {GLOBAL!r}", self.scope)


class Row(NamedTuple):
    """A row of a file: its number from 1 on, its approximate size in bytes, and its fields or why it has none."""

    number: int
    size: int
    fields: Mapping[str, Any] | DataError


class Record(NamedTuple):
    """A row as a document. `id` is "" where the row has none."""

    id: str
    text: str
    title: str
    metadata: dict[str, Any]


def read_rows(path: Path, kind: str, fields: Fields) -> Iterator[Row]:
    """Read the rows of a file; `DataError` where the rest of it cannot be read."""
    try:
        if kind == "parquet":
            yield from _parquet(path, fields)
            return
        packed = path.suffix == ".gz"
        most = max(256 * 2**20, EXPANSION * path.stat().st_size) if packed else None
        with gzip.open(path) if packed else open(path, "rb") as file:
            yield from _json_lines(file, most) if kind == "jsonl" else _table(file, kind, fields)  # type: ignore[arg-type]
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"not readable as gzip: {error}") from None


def read_stream(stream: IO[bytes]) -> Iterator[Row]:
    """Read stdin: JSON lines if the first line is a JSON object, else one document a line."""
    lines = _raw_lines(stream)
    first = next(lines, None)
    if first is None:
        return
    rest = chain([first], lines)
    if isinstance(_json_row(first[1]), dict):
        yield from _as_json(rest)
    else:
        for number, line in rest:
            yield Row(number, len(line), {"text": _decoded(line)})


def record(fields: Mapping[str, Any], wanted: Fields) -> Record:
    """Make a document of a row.

    Examples
    --------
    >>> record({"id": 7, "body": "Text.", "year": 2020}, Fields())
    Record(id='7', text='Text.', title='', metadata={'year': 2020})
    """
    id_field = _pick(fields, wanted.id, ID_FIELDS, "id")
    text_field = _pick(fields, wanted.text, TEXT_FIELDS, "text")
    title_field = _pick(fields, wanted.title, TITLE_FIELDS, "title")
    if text_field is None:
        raise DataError(f"no text field among {_names(fields)}: name it with --text-field")
    used = {id_field, text_field, title_field}
    names = [name for name in fields if name not in used] if wanted.metadata is None else wanted.metadata
    metadata = plain({name: fields[name] for name in names if name in fields})
    inner = metadata.get("metadata")
    if wanted.metadata is None and isinstance(inner, dict):  # BEIR's place for everything else
        metadata = {**{name: value for name, value in metadata.items() if name != "metadata"}, **inner}
    own_id = "" if id_field is None or fields[id_field] is None else clean_text(str(fields[id_field])).strip()
    title = "" if title_field is None else " ".join(_string(fields[title_field], title_field).split())
    return Record(own_id, _string(fields[text_field], text_field), title, metadata)


def plain(value: Any, depth: int = 0) -> Any:
    """Turn a value into one that JSON and an index can hold; `depth` lists and objects are around it."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int) and value.bit_length() > _LONGEST_INTEGER:
        raise DataError("an integer of thousands of digits")
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, (float, decimal.Decimal)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if depth >= DEEPEST and isinstance(value, (Mapping, list, tuple)):
        raise DataError("nested too deeply")
    if isinstance(value, Mapping):
        return {clean_text(str(key)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in value]
    return clean_text(str(value))


def _pick(fields: Mapping[str, Any], named: str | None, usual: Iterable[str], role: str) -> str | None:
    if named is not None:
        if named not in fields:
            raise DataError(f"no field {named!r}, which --{role}-field names, among {_names(fields)}")
        return named
    return next((name for name in usual if name in fields), None)


def _names(fields: Mapping[str, Any]) -> str:
    listed = ", ".join(map(str, fields))
    return listed if len(listed) <= 200 else listed[:197] + "..."


def _string(value: Any, field: str) -> str:
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        raise DataError(f"the field {field!r} is not text")
    return clean_text(str(value))


# -- JSON lines ----------------------------------------------------------------------------------


def json_rows(data: bytes) -> list[Row] | None:
    """Return the rows of a JSON file that is a list of objects, else None: it is then read as text.

    Examples
    --------
    >>> [row.fields for row in json_rows(b'[{"text": "one"}, {"text": "two"}]')], json_rows(b'{"a": 1}')
    ([{'text': 'one'}, {'text': 'two'}], None)
    """
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return None
    if _values(data) > VALUES:
        raise DataError(f"more than {VALUES:,} values: store it as JSON lines, which are read row by row")
    try:
        values = json.loads(decode(data))
    except (ValueError, RecursionError):
        return None
    if not values or not all(isinstance(value, dict) for value in values):
        return None
    return [Row(number, len(data) // len(values), value) for number, value in enumerate(values, 1)]


def _values(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _json_lines(file: IO[bytes], most: int | None) -> Iterator[Row]:
    return _as_json(_raw_lines(file, most))


def _as_json(lines: Iterable[tuple[int, bytes]]) -> Iterator[Row]:
    for number, line in lines:
        value = _json_row(line)
        yield Row(number, len(line), value if isinstance(value, dict) else DataError(value))


def _json_row(line: bytes) -> dict[str, Any] | str:
    """Return the object of a line, or what is wrong with it."""
    if len(line) > LONGEST:
        return f"longer than {LONGEST // 2**20} MB"
    if len(line) > VALUES and _values(line) > VALUES:
        return f"more than {VALUES:,} values"
    try:
        value = json.loads(_decoded(line))
    except (ValueError, RecursionError) as error:
        return f"not JSON ({getattr(error, 'msg', None) or error})"
    return value if isinstance(value, dict) else f"expected an object, got {type(value).__name__}"


def _raw_lines(file: IO[bytes], most: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Read lines that are not blank, with their numbers; of a line without end only so much that it can be refused.

    `most` bytes in all: `DataError` beyond.
    """
    number = total = 0
    while line := file.readline(LONGEST + 1):
        number += 1
        rest = line
        total += len(line)
        while len(rest) > LONGEST and not rest.endswith(b"\n"):
            rest = file.readline(LONGEST + 1)
            total += len(rest)
            if most is not None and total > most:
                break
        if most is not None and total > most:
            raise DataError(f"more than {EXPANSION} times its size when unpacked")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.strip():
            yield number, line.rstrip(b"\r\n")


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode(guess(line), errors="replace")


# -- tables --------------------------------------------------------------------------------------


def _table(file: IO[bytes], kind: str, fields: Fields) -> Iterator[Row]:
    start = file.read(2**16)
    file.seek(0)
    encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        codecs.getincrementaldecoder(encoding)().decode(start)
    except UnicodeDecodeError:
        encoding = guess(start)
    with io.TextIOWrapper(file, encoding=encoding, errors="surrogateescape", newline="") as text:
        yield from _cells(text, kind, fields)


def _cells(text: io.TextIOWrapper, kind: str, fields: Fields) -> Iterator[Row]:
    try:
        head = text.readline(LONGEST)
    except UnicodeError as error:
        raise DataError(f"not readable as {text.encoding}: {error}") from None
    if "\x00" in head:
        raise DataError("binary, not text")
    options: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}  # TSV of this field quotes nothing
    if kind == "csv":
        options = {"delimiter": ";" if head.count(";") > head.count(",") else ","}
    before = csv.field_size_limit(LONGEST)
    try:
        reader = csv.reader(chain([head], text), **options)
        columns = [name for name in (fields.id, fields.text, fields.title, *(fields.metadata or ())) if name]
        named = not (columns and all(name.isdigit() for name in columns))
        header = next(reader, []) if named else []
        names = [_repaired(name, text.encoding).strip() for name in header]
        for row in reader:
            if not any(row):
                continue
            repaired = (_repaired(cell, text.encoding) for cell in row)
            cells = dict(zip(names or map(str, range(1, len(row) + 1)), repaired, strict=False))
            value: Mapping[str, Any] | DataError = _typed(cells, fields)
            if names and len(row) > len(names):
                value = DataError(f"{len(row)} cells under {len(names)} names")
            yield Row(reader.line_num, sum(map(len, row)) + len(row), value)
    except csv.Error as error:
        raise DataError(f"not readable as {kind}, line {reader.line_num}: {error}") from None
    except UnicodeError as error:
        raise DataError(f"not readable as {text.encoding}: {error}") from None
    finally:
        csv.field_size_limit(before)


def _repaired(cell: str, encoding: str) -> str:
    """Read anew what was not UTF-8 after all; of other encodings, put a mark for bytes that they do not have."""
    try:
        cell.encode()
    except UnicodeEncodeError:
        if encoding.startswith("utf-8"):
            return cell.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
        return cell.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return cell


_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]{0,14})\.[0-9]{1,15}")


def _typed(cells: dict[str, str], fields: Fields) -> dict[str, Any]:
    """Turn cells that are written as numbers into numbers, so that filters can compare them; never ids and texts."""
    kept = {fields.id, fields.text, fields.title, *ID_FIELDS, *TEXT_FIELDS, *TITLE_FIELDS}
    return {name: cell if name in kept else _number(cell) for name, cell in cells.items()}


def _number(cell: str) -> Any:
    if _INTEGER.fullmatch(cell):
        return int(cell)
    return float(cell) if _DECIMAL.fullmatch(cell) else cell


def _parquet(path: Path, fields: Fields) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise missing_extra("pyarrow", "files", "reading Parquet files") from None
    number = 0
    try:
        with ParquetFile(path) as file:
            size = path.stat().st_size // max(1, file.metadata.num_rows)
            columns = None
            if fields.metadata is not None:  # other columns may be large: do not even read them
                present = file.schema_arrow.names
                roles = ((fields.id, ID_FIELDS), (fields.text, TEXT_FIELDS), (fields.title, TITLE_FIELDS))
                wanted = {*fields.metadata, *(n for named, usual in roles for n in ([named] if named else usual))}
                columns = [name for name in present if name in wanted]
            for batch in file.iter_batches(batch_size=256, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield Row(number, size, row)
    except WeftError:
        raise
    except (ArrowException, OSError, ValueError) as error:
        raise DataError(f"not readable as Parquet: {' '.join(str(error).split())[:200]}") from None
