"""The SQLite database of an index: its documents, tombstones, live segments and settings. The commit point.

Every state a reader can see is one committed transaction of this database. A segment file is written and fsynced before
the transaction that names it, and removed only after the transaction that forgets it, so a crash leaves at worst a file
that nobody names, which the next writer collects. The tables are in `schema.py`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import CorruptIndexError, IndexFormatError, IndexStateError, NotAnIndexError
from weft.storage import schema
from weft.storage.database import FILE, UNAVAILABLE, connect, faults_named, primary_code, transaction
from weft.storage.folder import check_folder, is_segment_name
from weft.types import PASSAGE_SEPARATOR, Document

_MARKS = 500
"""Parameters in one query: SQLite allows 999 even where it was built long ago."""


class SegmentRow(NamedTuple):
    """A live segment as the catalogue names it."""

    segment: int
    file: str
    documents: int
    tokens: int
    first: int
    """Number of its first document; the others follow, unless the file lists their numbers."""


class Catalogue:
    """One connection to an index's database."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, version: int = schema.FORMAT_VERSION) -> None:
        self.folder = folder
        self._db = connection
        self._version = version

    @property
    def file(self) -> Path:
        """The database's file."""
        return self.folder / FILE

    # -- opening ---------------------------------------------------------------------------------

    @classmethod
    def create(cls, folder: Path, settings: Mapping[str, Any]) -> Catalogue:
        """Make the database of a new index in an existing, empty folder."""
        with faults_named(folder):
            db = connect(folder)
            try:
                db.execute("PRAGMA journal_mode = WAL")
                with transaction(db):
                    schema.create(db, settings)
            except BaseException:
                db.close()
                raise
        return cls(folder, db)

    @classmethod
    def open(cls, folder: Path) -> Catalogue:
        """Open an existing database, refusing what is no index and formats that are not known."""
        with faults_named(folder):
            check_folder(folder)
            db = connect(folder)
            try:
                version = schema.version(db)
                if version == 0:  # written in the same transaction as everything else
                    raise NotAnIndexError(
                        f"no index at {folder}: its creation was interrupted; remove the folder and create it again"
                    )
                if version not in (schema.FIRST_VERSION, schema.FORMAT_VERSION):
                    raise IndexFormatError(
                        f"the index at {folder} has format version {version}; "
                        f"this weft reads versions {schema.FIRST_VERSION} and {schema.FORMAT_VERSION}"
                    )
                if version == schema.FIRST_VERSION:
                    schema.look_through(db)
            except BaseException:
                db.close()
                raise
        return cls(folder, db, version)

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction or a snapshot is under way."""
        return self._db.in_transaction

    # -- transactions ----------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Hold one committed state: everything read inside belongs together."""
        if self._db.in_transaction:
            yield
            return
        with faults_named(self.folder):
            self._begin()
        try:
            yield
        finally:
            if self._db.in_transaction:  # a failing disk may have ended it
                self._db.execute("ROLLBACK")

    def _begin(self) -> None:
        self._db.execute("BEGIN")
        if not self._current and schema.version(self._db) == schema.FORMAT_VERSION:
            # A writer has brought the tables up to date since we opened them.
            self._db.execute("ROLLBACK")
            schema.look_directly(self._db)
            self._version = schema.FORMAT_VERSION
            self._db.execute("BEGIN")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write: all of it or nothing, on disk when this returns."""
        with faults_named(self.folder), transaction(self._db):
            if not self._current:
                if schema.version(self._db) == schema.FORMAT_VERSION:
                    schema.look_directly(self._db)
                else:
                    schema.upgrade(self._db)
            yield
            self._db.execute(
                "INSERT INTO settings VALUES ('generation', '1')"
                " ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)"
            )
        self._version = schema.FORMAT_VERSION

    # -- reading ---------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Return what `create` was given."""
        return {key: json.loads(value) for key, value in self._all("SELECT key, value FROM settings")}

    def generation(self) -> int:
        """Return a number that grows with every commit."""
        found = self._all("SELECT value FROM settings WHERE key = 'generation'")
        return int(found[0][0]) if found else 0

    def segments(self) -> list[SegmentRow]:
        """Return the live segments, oldest first."""
        columns = "segment, file, documents, tokens, first"
        rows = [SegmentRow(*row) for row in self._all(f"SELECT {columns} FROM segments ORDER BY segment")]
        for row in rows:
            if not is_segment_name(row.file):  # nothing outside the folder is ever opened or removed
                raise CorruptIndexError(f"{self.file}: damaged: it names a segment {row.file!r}, as weft does not")
        return rows

    def tombstones(self, after: int = 0) -> tuple[NDArray[np.int64], int]:
        """Return the numbers of documents that no longer count, those buried since `after`; and what to say next time.

        The first format keeps no order of burials: there it is always all of them.
        """
        rows = self._all("SELECT seq, doc FROM tombstones WHERE seq > ? ORDER BY seq", (after if self._current else 0,))
        last = rows[-1][0] if rows and self._current else after
        return np.array([doc for _, doc in rows], dtype=np.int64), last

    @property
    def _current(self) -> bool:
        """Whether the tables are those of today."""
        return self._version == schema.FORMAT_VERSION

    def count(self) -> int:
        """Return the number of documents."""
        return int(self._all("SELECT count(*) FROM documents")[0][0])

    def ids(self, numbers: Sequence[int]) -> list[str]:
        """Return the ids of documents by their numbers, in that order."""
        found = dict(self._where("doc, id", numbers))
        return [found[number] for number in numbers]

    def documents(self, numbers: Sequence[int]) -> dict[int, Document]:
        """Return documents by their numbers."""
        rows = self._where("doc, id, text, metadata", numbers)
        return {row[0]: Document(row[1], row[2], json.loads(row[3])) for row in rows}

    def _where(self, columns: str, numbers: Sequence[int]) -> Iterator[Any]:
        for start in range(0, len(numbers), _MARKS):
            part = numbers[start : start + _MARKS]
            marks = ",".join("?" * len(part))
            yield from self._all(f"SELECT {columns} FROM documents WHERE doc IN ({marks})", tuple(part))

    def get(self, id: str) -> Document | None:  # noqa: A002
        """Return a document, or None."""
        rows = self._all("SELECT id, text, metadata FROM documents WHERE id = ?", (id,))
        return Document(rows[0][0], rows[0][1], json.loads(rows[0][2])) if rows else None

    def family(self, id: str) -> list[Document]:  # noqa: A002
        """Return the document with this id, and those whose ids are made from it: ``id#…``, ``id##…``."""
        # The character after the separator's ends a range of the unique index over ids.
        mark = PASSAGE_SEPARATOR[0]
        first, end = id + mark, id + chr(ord(mark) + 1)
        query = "SELECT id, text, metadata FROM documents WHERE id = ? OR (id >= ? AND id < ?)"
        return [Document(i, t, json.loads(m)) for i, t, m in self._all(query, (id, first, end))]

    def marked(self, *paths: str) -> list[tuple[Any, ...]]:
        """Return (id, a value for each path) of each document whose metadata has something at the first JSON path."""
        columns = ", ".join("json_extract(metadata, ?)" for _ in paths)
        query = f"SELECT id, {columns} FROM documents WHERE json_extract(metadata, ?) IS NOT NULL"
        return self._all(query, (*paths, paths[0]))

    def value_counts(self, condition: str, parameters: Iterable[Any], most: int) -> list[tuple[Any, ...]]:
        """Return (field, whether in a list, JSON type, value, documents) of the `most` commonest values of each field.

        Of metadata's first level: scalars, and scalars in lists; `condition` is as for `select`.
        """
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
        row = "documents.doc" if self._current else "documents.lexical_row"
        query = (
            f"SELECT documents.id, -bm25(lexical) FROM lexical JOIN documents ON {row} = lexical.rowid"
            f" WHERE lexical MATCH ? AND {condition} ORDER BY bm25(lexical), documents.doc LIMIT ?"
        )
        return [(found[0], found[1]) for found in self._all(query, (match, *parameters, limit))]

    def numbers(self) -> NDArray[np.int64]:
        """Return the numbers of all documents."""
        return self.select("1", ())

    def _all(self, query: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        with faults_named(self.folder):
            return self._db.execute(query, parameters).fetchall()

    # -- writing, inside `transaction` -----------------------------------------------------------------

    def next_number(self) -> int:
        """Return the number that the next document gets; those after it follow."""
        rows = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'documents'").fetchall()
        return int(rows[0][0]) + 1 if rows else 1

    def add_segment(self, file: str, documents: int, tokens: int, first: int) -> int:
        """Name a segment file that is already safe on disk; return its number."""
        values = (file, documents, tokens, first)
        cursor = self._db.execute("INSERT INTO segments (file, documents, tokens, first) VALUES (?, ?, ?, ?)", values)
        return int(cursor.lastrowid or 0)

    def put(self, document: Document, number: int) -> None:
        """Insert a document under its number; another with its id is buried."""
        metadata = json.dumps(dict(document.metadata), ensure_ascii=False, separators=(",", ":"))
        self.delete(document.id)
        values = (number, document.id, document.text, metadata)
        self._db.execute("INSERT INTO documents (doc, id, text, metadata) VALUES (?, ?, ?, ?)", values)

    def delete(self, id: str) -> bool:  # noqa: A002
        """Remove a document; False if there was none."""
        buried = self._db.execute("INSERT INTO tombstones (doc) SELECT doc FROM documents WHERE id = ?", (id,)).rowcount
        if buried:
            self._db.execute("DELETE FROM documents WHERE id = ?", (id,))
        return bool(buried)

    def drop_segment(self, segment: int) -> None:
        """Forget a segment; refuse if it is gone, so that no document is put in twice by two merges of it."""
        if not self._db.execute("DELETE FROM segments WHERE segment = ?", (segment,)).rowcount:
            raise IndexStateError(f"a segment of the index at {self.folder} was merged meanwhile, from a newer state")

    def drop_tombstones(self, numbers: Iterable[int]) -> None:
        """Forget tombstones of documents that no segment holds any more."""
        self._db.executemany("DELETE FROM tombstones WHERE doc = ?", ((int(number),) for number in numbers))

    def set(self, key: str, value: Any) -> None:
        """Store a setting."""
        self._db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (key, json.dumps(value)))

    # -- checking --------------------------------------------------------------------------------

    def integrity(self) -> list[str]:
        """Return what SQLite's own checks complain of, nothing if all is well."""
        try:
            found = [row[0] for row in self._db.execute("PRAGMA integrity_check")]
        except sqlite3.DatabaseError as error:
            return [str(error)]
        return [line for line in found if line != "ok"]

    def lexical_integrity(self) -> list[str]:
        """Return what is wrong with the lexical index; nothing inside a snapshot, as SQLite needs the write lock."""
        if self._db.in_transaction:
            return []
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.execute("INSERT INTO lexical(lexical, rank) VALUES ('integrity-check', 1)")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
        except sqlite3.DatabaseError as error:
            return [] if primary_code(error) in UNAVAILABLE else [str(error)]
        return []
