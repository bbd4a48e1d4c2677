"""The SQLite database of an index: its documents, tombstones, live segments and settings. The commit point.

Every state a reader can see is one committed transaction of this database. A segment file is written and
fsynced before the transaction that names it, and removed only after the transaction that forgets it, so a
crash leaves at worst a file that nobody names, which the next writer collects.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import CorruptIndexError, IndexFormatError, NotAnIndexError, StorageError, WeftError
from weft.types import Document

FORMAT_VERSION = 1
FILE = "catalogue.sqlite"

# `documents.doc` is a number of our own, never used twice. A document lives at (segment, ordinal); where it lived
# before an update or a delete is a tombstone until compaction drops it.
_SCHEMA = """
CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE segments (
    segment INTEGER PRIMARY KEY AUTOINCREMENT,
    file TEXT NOT NULL UNIQUE,
    documents INTEGER NOT NULL,
    tokens INTEGER NOT NULL
);
CREATE TABLE documents (
    doc INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    segment INTEGER NOT NULL REFERENCES segments(segment),
    ordinal INTEGER NOT NULL,
    text TEXT NOT NULL,
    metadata TEXT NOT NULL,
    UNIQUE (segment, ordinal)
);
CREATE TABLE tombstones (
    segment INTEGER NOT NULL REFERENCES segments(segment) ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    PRIMARY KEY (segment, ordinal)
) WITHOUT ROWID;
CREATE VIRTUAL TABLE lexical USING fts5(text, content='documents', content_rowid='doc', tokenize='porter unicode61');
CREATE TRIGGER lexical_insert AFTER INSERT ON documents BEGIN
    INSERT INTO lexical(rowid, text) VALUES (new.doc, new.text);
END;
CREATE TRIGGER lexical_delete AFTER DELETE ON documents BEGIN
    INSERT INTO lexical(lexical, rowid, text) VALUES ('delete', old.doc, old.text);
END;
CREATE TRIGGER lexical_update AFTER UPDATE OF text ON documents BEGIN
    INSERT INTO lexical(lexical, rowid, text) VALUES ('delete', old.doc, old.text);
    INSERT INTO lexical(rowid, text) VALUES (new.doc, new.text);
END;
"""


class SegmentRow(NamedTuple):
    """A live segment as the catalogue names it."""

    segment: int
    file: str
    documents: int
    tokens: int


class Catalogue:
    """One connection to an index's database."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder = folder
        self._db = connection

    @property
    def file(self) -> Path:
        """The database's file."""
        return self.folder / FILE

    # -- opening ---------------------------------------------------------------------------------

    @classmethod
    def create(cls, folder: Path, settings: Mapping[str, Any]) -> Catalogue:
        """Make the database of a new index in an existing, empty folder."""
        with faults_named(folder):
            db = _connect(folder)
            try:
                db.execute("PRAGMA journal_mode = WAL")
                with _transaction(db):
                    for statement in _statements(_SCHEMA):
                        db.execute(statement)
                    stored = {**settings, "format_version": FORMAT_VERSION}
                    rows = [(key, json.dumps(value)) for key, value in stored.items()]
                    db.executemany("INSERT INTO settings VALUES (?, ?)", rows)
                    db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            except BaseException:
                db.close()
                raise
        return cls(folder, db)

    @classmethod
    def open(cls, folder: Path) -> Catalogue:
        """Open an existing database, refusing what is no index and other format versions."""
        if not (folder / FILE).is_file():
            raise NotAnIndexError(f"no index at {folder}: there is no {FILE} in it")
        with faults_named(folder):
            db = _connect(folder)
            try:
                version = db.execute("PRAGMA user_version").fetchone()[0]
            except BaseException:
                db.close()
                raise
        if version == 0:  # written in the same transaction as everything else
            db.close()
            raise NotAnIndexError(
                f"no index at {folder}: its creation was interrupted; remove the folder and create it again"
            )
        if version != FORMAT_VERSION:
            db.close()
            raise IndexFormatError(
                f"the index at {folder} has format version {version}; this weft reads version {FORMAT_VERSION}"
            )
        return cls(folder, db)

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    # -- transactions ----------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Hold one committed state: everything read inside belongs together."""
        if self._db.in_transaction:
            yield
            return
        with faults_named(self.folder):
            self._db.execute("BEGIN")
        try:
            yield
        finally:
            if self._db.in_transaction:  # a failing disk may have ended it
                self._db.execute("ROLLBACK")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write: all of it or nothing, on disk when this returns."""
        with faults_named(self.folder), _transaction(self._db):
            yield
            self._db.execute(
                "INSERT INTO settings VALUES ('generation', '1')"
                " ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)"
            )

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
        return [
            SegmentRow(*row)
            for row in self._all("SELECT segment, file, documents, tokens FROM segments ORDER BY segment")
        ]

    def tombstones(self, segment: int) -> NDArray[np.int64]:
        """Return the ordinals of a segment that no longer count."""
        return _column(self._all("SELECT ordinal FROM tombstones WHERE segment = ?", (segment,)))

    def count(self) -> int:
        """Return the number of documents."""
        return int(self._all("SELECT count(*) FROM documents")[0][0])

    def ids(self, segment: int, ordinals: Iterable[int]) -> list[str]:
        """Return the ids of documents at places in a segment, in that order."""
        wanted = [int(ordinal) for ordinal in ordinals]
        found: dict[int, str] = {}
        for start in range(0, len(wanted), 500):  # SQLite allows 999 parameters even where it was built long ago
            part = wanted[start : start + 500]
            marks = ",".join("?" * len(part))
            query = f"SELECT ordinal, id FROM documents WHERE segment = ? AND ordinal IN ({marks})"
            found.update(self._all(query, (segment, *part)))
        return [found[ordinal] for ordinal in wanted]

    def get(self, id: str) -> Document | None:  # noqa: A002
        """Return a document, or None."""
        rows = self._all("SELECT id, text, metadata FROM documents WHERE id = ?", (id,))
        return Document(rows[0][0], rows[0][1], json.loads(rows[0][2])) if rows else None

    def family(self, id: str) -> list[Document]:  # noqa: A002
        """Return the document with this id, and those whose ids are made from it: ``id#…``."""
        # '$' follows '#': a range of the unique index over ids.
        query = "SELECT id, text, metadata FROM documents WHERE id = ? OR (id >= ? AND id < ?)"
        return [Document(i, t, json.loads(m)) for i, t, m in self._all(query, (id, f"{id}#", f"{id}$"))]

    def marked(self, *paths: str) -> list[tuple[Any, ...]]:
        """Return (id, a value for each path) of each document whose metadata has something at the first JSON path."""
        columns = ", ".join("json_extract(metadata, ?)" for _ in paths)
        query = f"SELECT id, {columns} FROM documents WHERE json_extract(metadata, ?) IS NOT NULL"
        return self._all(query, (*paths, paths[0]))

    def place(self, id: str) -> tuple[int, int] | None:  # noqa: A002
        """Return where a document lives, (segment, ordinal), or None."""
        rows = self._all("SELECT segment, ordinal FROM documents WHERE id = ?", (id,))
        return (rows[0][0], rows[0][1]) if rows else None

    def select(self, condition: str, parameters: Iterable[Any]) -> dict[int, NDArray[np.int64]]:
        """Return the places of all documents for which an SQL expression over `documents` is true, by segment."""
        # As two texts and not as rows, which would be a Python object for each document.
        query = f"SELECT group_concat(segment), group_concat(ordinal) FROM documents WHERE {condition}"
        ((segments, ordinals),) = self._all(query, tuple(parameters))
        if segments is None:
            return {}
        number, place = (np.fromstring(text, dtype=np.int64, sep=",") for text in (segments, ordinals))
        return {int(segment): place[number == segment] for segment in np.unique(number)}

    def lexical(self, match: str, condition: str, parameters: Iterable[Any], limit: int) -> list[tuple[str, float]]:
        """Return (id, BM25) of documents whose text matches an FTS5 expression, best first, of equals the older first.

        `condition` is an SQL expression over `documents`, as for `select`.
        """
        query = (
            "SELECT documents.id, -bm25(lexical) FROM lexical JOIN documents ON documents.doc = lexical.rowid"
            f" WHERE lexical MATCH ? AND {condition} ORDER BY bm25(lexical), documents.doc LIMIT ?"
        )
        return [(row[0], row[1]) for row in self._all(query, (match, *parameters, limit))]

    def places(self, segment: int) -> list[tuple[int, str]]:
        """Return (ordinal, id) of the documents that live in a segment, by ordinal."""
        return self._all("SELECT ordinal, id FROM documents WHERE segment = ? ORDER BY ordinal", (segment,))

    def _all(self, query: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        with faults_named(self.folder):
            return self._db.execute(query, parameters).fetchall()

    # -- writing, inside `transaction` -----------------------------------------------------------------

    def add_segment(self, file: str, documents: int, tokens: int) -> int:
        """Name a segment file that is already safe on disk; return its number."""
        cursor = self._db.execute(
            "INSERT INTO segments (file, documents, tokens) VALUES (?, ?, ?)", (file, documents, tokens)
        )
        return int(cursor.lastrowid or 0)

    def put(self, document: Document, segment: int, ordinal: int) -> None:
        """Insert a document at its place, or move it there; its old place becomes a tombstone."""
        metadata = json.dumps(dict(document.metadata), ensure_ascii=False, separators=(",", ":"))
        self._bury(document.id)
        self._db.execute(
            "INSERT INTO documents (id, segment, ordinal, text, metadata) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET segment = excluded.segment, ordinal = excluded.ordinal,"
            " text = excluded.text, metadata = excluded.metadata",
            (document.id, segment, ordinal, document.text, metadata),
        )

    def move(self, id: str, segment: int, ordinal: int) -> None:  # noqa: A002
        """Record a document's new place after compaction."""
        self._db.execute("UPDATE documents SET segment = ?, ordinal = ? WHERE id = ?", (segment, ordinal, id))

    def delete(self, id: str) -> bool:  # noqa: A002
        """Remove a document; False if there was none."""
        found = self._bury(id)
        self._db.execute("DELETE FROM documents WHERE id = ?", (id,))
        return found

    def drop_segment(self, segment: int) -> None:
        """Forget a segment that no document lives in any more."""
        self._db.execute("DELETE FROM segments WHERE segment = ?", (segment,))

    def set(self, key: str, value: Any) -> None:
        """Store a setting."""
        self._db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (key, json.dumps(value)))

    def _bury(self, id: str) -> bool:  # noqa: A002
        return bool(
            self._db.execute(
                "INSERT INTO tombstones SELECT segment, ordinal FROM documents WHERE id = ?", (id,)
            ).rowcount
        )

    def integrity(self) -> list[str]:
        """Return what SQLite's own checks complain of, nothing if all is well."""
        try:
            found = [row[0] for row in self._db.execute("PRAGMA integrity_check")]
            found += [f"foreign key of {row[0]} row {row[1]}" for row in self._db.execute("PRAGMA foreign_key_check")]
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
            return [] if _primary_code(error) in _UNAVAILABLE else [str(error)]
        return []


def _connect(folder: Path) -> sqlite3.Connection:
    # Transactions are ours to begin and end (isolation_level None). One connection may serve several threads, one at a
    # time; Index sees to that.
    db = sqlite3.connect(folder / FILE, isolation_level=None, check_same_thread=False, timeout=30)
    try:
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
    except sqlite3.DatabaseError:
        db.close()
        raise
    return db


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


# The disk is full, fails or may not be written; or another process holds the database beyond all patience.
_UNAVAILABLE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY}
_STORAGE = _UNAVAILABLE | {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # errors of the sqlite3 module itself have no code


@contextmanager
def faults_named(folder: Path) -> Iterator[None]:
    """Turn what SQLite and the system say of a full, failing or damaged disk into errors of ours."""
    try:
        yield
    except WeftError:
        raise
    except (sqlite3.OperationalError, OSError) as error:
        if isinstance(error, sqlite3.OperationalError) and _primary_code(error) not in _STORAGE:
            raise
        raise StorageError(
            f"the index at {folder} cannot be read or written now: {error}; all that was committed before is unharmed"
        ) from error
    except (sqlite3.ProgrammingError, sqlite3.IntegrityError):
        raise  # ours: a closed database, a broken rule
    except sqlite3.DatabaseError as error:
        raise CorruptIndexError(f"{folder / FILE}: damaged: {error}") from None


def _statements(script: str) -> Iterator[str]:
    """Split a script where SQLite says a statement is complete (a trigger's body has semicolons too)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _column(rows: list[Any]) -> NDArray[np.int64]:
    return np.array([row[0] for row in rows], dtype=np.int64)
