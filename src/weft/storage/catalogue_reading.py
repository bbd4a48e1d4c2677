"""What the catalogue of an index says: settings, segments, tombstones, documents and what is asked of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import CorruptIndexError
from weft.storage import schema
from weft.storage.database import FILE, faults_named
from weft.storage.folder import is_segment_name
from weft.storage.sums import checks_id, row_sum, segment_sum, settings_sum, tombstones_sum
from weft.types import PASSAGE_SEPARATOR, Document

_MARKS = 500
"""Parameters in one query: SQLite allows 999 even where it was built long ago."""


def _any_text(data: bytes) -> str:
    """Decode bytes that may not be text; if they are not, the checksum will not match."""
    return data.decode("utf-8", "surrogateescape")


_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def _object(text: Any) -> Any:
    """Read JSON as `json.loads` does, without its steps in Python where the text is as `json.dumps` wrote it."""
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        return json.loads(text)
    return value if end == len(text) else json.loads(text)


class SegmentRow(NamedTuple):
    """A live segment as the catalogue names it."""

    segment: int
    file: str
    documents: int
    tokens: int
    first: int
    """Number of its first document; the others follow, unless the file lists their numbers."""


class CatalogueReading:
    """The reading side of one connection to an index's database; `Catalogue` opens it and writes."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, version: int) -> None:
        self.folder = folder
        self._db = connection
        self._version = version

    @property
    def file(self) -> Path:
        """The database's file."""
        return self.folder / FILE

    # -- the index -------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Return what `create` was given."""
        stored = dict(self._all("SELECT key, value FROM settings"))
        if self._current and stored.get("checksum") != str(settings_sum(stored)):
            raise CorruptIndexError(f"{self.file}: damaged: checksum of the settings")
        try:
            return {key: json.loads(value) for key, value in stored.items()}
        except (TypeError, ValueError, RecursionError) as error:
            raise CorruptIndexError(f"{self.file}: damaged: settings ({error})") from None

    def generation(self) -> int:
        """Return a number that grows with every commit."""
        found = self._all("SELECT value FROM settings WHERE key = 'generation'")
        try:
            return int(found[0][0]) if found else 0
        except (TypeError, ValueError):
            raise CorruptIndexError(f"{self.file}: damaged: the number of the last commit") from None

    def segments(self) -> list[SegmentRow]:
        """Return the live segments, oldest first."""
        columns = f"segment, file, documents, tokens, first, {self._sum}"
        rows = []
        for *found, stored in self._all(f"SELECT {columns} FROM segments ORDER BY segment"):
            row = SegmentRow(*found)
            if not is_segment_name(row.file):  # nothing outside the folder is ever opened or removed
                raise CorruptIndexError(
                    f"{self.file}: damaged: it names a segment {row.file!r}, which is no name of weft's"
                )
            if not all(isinstance(n, int) and n >= 0 for n in (row.segment, *row[2:])):
                raise CorruptIndexError(f"{self.file}: damaged: the entry of segment {row.file}")
            if self._current and stored != segment_sum(*row[1:]):
                raise CorruptIndexError(f"{self.file}: damaged: checksum of the entry of segment {row.file}")
            rows.append(row)
        return rows

    def tombstones(self, after: int = 0, *, verify: bool = True) -> tuple[NDArray[np.int64], int]:
        """Return the numbers of deleted documents, those deleted since `after`; and the `after` of the next call.

        The first format keeps no order of deletions: there it is always all of them. All are verified by their number
        and sum, unless `verify` is False; later ones are not.
        """
        ordered = self._version > schema.FIRST_VERSION
        rows = self._all("SELECT seq, doc FROM tombstones WHERE seq > ? ORDER BY seq", (after if ordered else 0,))
        last = rows[-1][0] if rows and ordered else after
        if not all(isinstance(doc, int) for _, doc in rows):
            raise CorruptIndexError(f"{self.file}: damaged: the list of deleted documents")
        numbers = np.array([doc for _, doc in rows], dtype=np.int64)
        if verify and after == 0 and self._current:
            known = self._tombstones_known(self.generation())
            if known is not None and known != (len(numbers), tombstones_sum(numbers)):
                raise CorruptIndexError(f"{self.file}: damaged: checksum of the list of deleted documents")
        return numbers, last

    def _tombstones_known(self, generation: int) -> tuple[int, int] | None:
        """Return the number of tombstones and their sum; None if the writer of this state did not store them."""
        found = self._all("SELECT value FROM settings WHERE key = 'tombstones'")
        try:
            said, count, total = map(int, json.loads(found[0][0])) if found else (-1, 0, 0)
        except (TypeError, ValueError, RecursionError):
            raise CorruptIndexError(f"{self.file}: damaged: checksum of the list of deleted documents") from None
        return (count, total) if said == generation else None

    @property
    def _current(self) -> bool:
        """Whether the tables are of the current format."""
        return self._version == schema.FORMAT_VERSION

    @property
    def _sum(self) -> str:
        """The column of checksums, which older formats lack."""
        return "checksum" if self._current else "NULL"

    # -- documents -------------------------------------------------------------------------------

    def count(self) -> int:
        """Return the number of documents."""
        return int(self._all("SELECT count(*) FROM documents")[0][0])

    def ids(self, numbers: Sequence[int], *, whole: bool = False) -> list[str]:
        """Return the ids of documents by their numbers, in that order; verify their `whole` rows, or the ids alone."""
        found = {}
        if whole:
            for number, *row in self._where(f"doc, {self._columns}", numbers):
                found[number] = self._document(*row).id
        else:
            for number, name, stored in self._where(f"doc, id, {self._sum}", numbers):
                if not checks_id(stored, name):
                    raise self._torn(number)
                found[number] = name
        missing = next((number for number in numbers if number not in found), None)
        if missing is not None:
            raise self._lost(missing)
        return [found[number] for number in numbers]

    def _lost(self, number: int) -> CorruptIndexError:
        return CorruptIndexError(f"{self.file}: damaged: document {number} of a segment is not in the catalogue")

    def documents(self, numbers: Sequence[int]) -> dict[int, Document]:
        """Return documents by their numbers, those that are there."""
        rows = self._where(f"doc, {self._columns}", numbers)
        return {number: self._document(*row) for number, *row in rows}

    def read(self, numbers: Sequence[int]) -> list[Document]:
        """Return documents by their numbers, in that order; they must all be there."""
        found = self.documents(numbers)
        if len(found) < len(numbers):
            raise self._lost(next(number for number in numbers if number not in found))
        return [found[number] for number in numbers]

    @property
    def _columns(self) -> str:
        return f"id, {self._sum}, text, metadata"

    def _document(self, id: Any, stored: Any, text: Any, metadata: Any) -> Document:  # noqa: A002
        """Return a row as a document, if its checksum is right."""
        try:
            if stored is not None and stored != row_sum(id, text, metadata):
                raise ValueError("checksum")
            return Document.trusted(id, text, _object(metadata))
        except (TypeError, ValueError, RecursionError):
            raise self._torn(id) from None

    def _torn(self, name: object) -> CorruptIndexError:
        return CorruptIndexError(f"{self.file}: damaged: checksum of document {name!r}; `weft repair` keeps the others")

    def torn(self) -> dict[int, str]:
        """Return the numbers and ids of all documents whose rows are damaged."""
        found = {}
        usual, self._db.text_factory = self._db.text_factory, _any_text
        try:
            with faults_named(self.folder):
                for number, *row in self._db.execute(f"SELECT doc, {self._columns} FROM documents"):
                    try:
                        self._document(*row)
                    except CorruptIndexError:
                        found[int(number)] = str(row[0]).encode("utf-8", "replace").decode()
        finally:
            self._db.text_factory = usual
        return found

    def verify(self, ids: Iterable[str]) -> None:
        """Verify the rows of documents that a filter chose: it believes metadata that nobody has verified yet."""
        self.several(sorted(set(ids)))

    def _where(self, columns: str, wanted: Sequence[int] | Sequence[str], column: str = "doc") -> Iterator[Any]:
        for start in range(0, len(wanted), _MARKS):
            part = wanted[start : start + _MARKS]
            marks = ",".join("?" * len(part))
            yield from self._all(f"SELECT {columns} FROM documents WHERE {column} IN ({marks})", tuple(part))

    def get(self, id: str) -> Document | None:  # noqa: A002
        """Return a document, or None."""
        rows = self._all(f"SELECT {self._columns} FROM documents WHERE id = ?", (id,))
        if rows and rows[0][0] != id:  # SQLite's list of ids led elsewhere
            raise self._torn(id)
        return self._document(*rows[0]) if rows else None

    def several(self, ids: Sequence[str]) -> dict[str, tuple[int, Document]]:
        """Return numbers and documents by their ids, those that are there, with one query for hundreds of them."""
        rows = self._where(f"doc, {self._columns}", ids, column="id")
        return {row[0]: (number, self._document(*row)) for number, *row in rows}

    def family(self, id: str) -> list[Document]:  # noqa: A002
        """Return the document with this id, and those whose ids are made from it: ``id#…``, ``id##…``."""
        # The character after the separator's ends a range of the unique index over ids.
        mark = PASSAGE_SEPARATOR[0]
        first, end = id + mark, id + chr(ord(mark) + 1)
        query = f"SELECT {self._columns} FROM documents WHERE id = ? OR (id >= ? AND id < ?)"
        return [self._document(*row) for row in self._all(query, (id, first, end))]

    def marked(self, *paths: str) -> list[tuple[Any, ...]]:
        """Return (id, a value for each path) of each document whose metadata has something at the first JSON path."""
        columns = ", ".join("json_extract(metadata, ?)" for _ in paths)
        query = f"SELECT id, {columns} FROM documents WHERE json_extract(metadata, ?) IS NOT NULL"
        return self._all(query, (*paths, paths[0]))

    def metadata_counts(self, path: str) -> list[tuple[Any, int]]:
        """Return the values that metadata have at a JSON path, and how many documents have each, most common first."""
        query = "SELECT json_extract(metadata, ?) AS value, COUNT(*) FROM documents GROUP BY 1 ORDER BY 2 DESC, 1"
        return [(value, int(count)) for value, count in self._all(query, (path,)) if value is not None]

    def value_counts(self, condition: str, parameters: Sequence[Any], most: int) -> list[tuple[Any, ...]]:
        """Return (field, whether in a list, JSON type, value, documents) of the `most` commonest values of each field.

        Of metadata's first level: scalars, and scalars in lists; `condition` is as for `select`. All that is counted is
        verified first.
        """
        with faults_named(self.folder):
            rows = self._db.execute(f"SELECT {self._columns} FROM documents WHERE {condition}", tuple(parameters))
            for name, stored, text, metadata in rows:
                if stored is not None and stored != row_sum(name, text, metadata):
                    raise self._torn(name)
        query = (
            f"WITH chosen AS (SELECT metadata FROM documents WHERE {condition}), counted AS ("
            " SELECT field.key AS name, 0 AS many, field.type AS kind, field.atom AS value, COUNT(*) AS number"
            " FROM chosen, json_each(chosen.metadata) AS field WHERE field.type NOT IN ('array', 'object')"
            " GROUP BY 1, 2, 3, 4 UNION ALL"
            " SELECT field.key, 1, item.type, item.atom, COUNT(*) FROM chosen, json_each(chosen.metadata) AS field,"
            " json_each(field.value) AS item WHERE field.type = 'array' AND item.type NOT IN ('array', 'object')"
            " GROUP BY 1, 2, 3, 4)"
            " SELECT name, many, kind, value, number FROM (SELECT *, ROW_NUMBER() OVER"
            " (PARTITION BY name, many ORDER BY number DESC, value) AS place FROM counted)"
            " WHERE place <= ? ORDER BY name, many, place"
        )
        return self._all(query, (*parameters, most))

    def number(self, id: str) -> int | None:  # noqa: A002
        """Return the number of a document, or None."""
        rows = self._all("SELECT doc FROM documents WHERE id = ?", (id,))
        return int(rows[0][0]) if rows else None

    def select(self, condition: str, parameters: Iterable[Any]) -> NDArray[np.int64]:
        """Return the numbers of all documents for which an SQL expression over `documents` is true."""
        # As a text and not as rows, which would be a Python object for each document.
        query = f"SELECT group_concat(doc) FROM documents WHERE {condition}"
        ((numbers,),) = self._all(query, tuple(parameters))
        return np.zeros(0, np.int64) if numbers is None else np.fromstring(numbers, dtype=np.int64, sep=",")

    def lexical(self, match: str, condition: str, parameters: Iterable[Any], limit: int) -> list[tuple[str, float]]:
        """Return (id, BM25) of documents whose text matches an FTS5 expression, best first, of equals the older first.

        `condition` is an SQL expression over `documents`, as for `select`.
        """
        row = "documents.lexical_row" if self._version == schema.FIRST_VERSION else "documents.doc"
        query = (
            f"SELECT documents.id, -bm25(lexical), {self._sum} FROM lexical JOIN documents ON {row} = lexical.rowid"
            f" WHERE lexical MATCH ? AND {condition} ORDER BY bm25(lexical), documents.doc LIMIT ?"
        )
        found = self._all(query, (match, *parameters, limit))
        for name, _, stored in found:
            if not checks_id(stored, name):
                raise self._torn(name)
        return [(name, score) for name, score, _ in found]

    def lexical_count(self, match: str) -> int:
        """Return how many documents match an FTS5 expression."""
        return int(self._all("SELECT count(*) FROM lexical WHERE lexical MATCH ?", (match,))[0][0])

    def lexical_sizes(self) -> tuple[int, int]:
        """Return how many documents the lexical index has, and of how many words."""
        (row,) = self._all("SELECT block FROM lexical_data WHERE id = 1") or [(b"",)]  # FTS5's record of totals
        documents, words = (*_varints(row[0]), 0, 0)[:2]
        return documents, words

    def lexical_rows(self, match: str) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Return number, BM25 and length in words of each document that matches an FTS5 expression."""
        row = "documents.lexical_row" if self._version == schema.FIRST_VERSION else "documents.doc"
        query = (
            "SELECT documents.doc, -bm25(lexical), lexical_docsize.sz FROM lexical"
            f" JOIN documents ON {row} = lexical.rowid JOIN lexical_docsize ON lexical_docsize.id = lexical.rowid"
            " WHERE lexical MATCH ?"
        )
        rows = self._all(query, (match,))
        numbers = np.array([found[0] for found in rows], dtype=np.int64)
        scores = np.array([found[1] for found in rows], dtype=np.float64)
        return numbers, scores, np.array([_varints(found[2])[0] for found in rows], dtype=np.int64)

    def numbers(self) -> NDArray[np.int64]:
        """Return the numbers of all documents."""
        return self.select("1", ())

    def _all(self, query: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._db.execute(query, parameters).fetchall()
        except Exception:
            with faults_named(self.folder):
                raise


def _varints(data: bytes) -> list[int]:
    """Read SQLite's integers of variable length, seven bits a byte, the highest first."""
    found, value = [], 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            found.append(value)
            value = 0
    return found
