"""The SQLite database of an index: its documents, tombstones, live segments and settings. The commit point.

Every state a reader can see is one committed transaction of this database. A segment file is written and fsynced before
the transaction that names it, and removed only after the transaction that forgets it, so a crash leaves at worst a file
that nobody names, which the next writer collects. The tables are in `schema.py`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from weft.errors import IndexFormatError, IndexStateError, NotAnIndexError
from weft.storage import schema
from weft.storage.catalogue_reading import CatalogueReading, SegmentRow
from weft.storage.database import (
    UNAVAILABLE,
    UNREADABLE,
    connect,
    faults_named,
    fold_log,
    primary_code,
    stamp,
    transaction,
)
from weft.storage.folder import check_folder
from weft.storage.sums import row_sum, segment_sum, tombstones_sum
from weft.types import Document

__all__ = ["Catalogue", "SegmentRow"]


class Catalogue(CatalogueReading):
    """One connection to an index's database."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, version: int = schema.FORMAT_VERSION) -> None:
        super().__init__(folder, connection, version)
        self._stamp = stamp(folder)
        self._unfolded = 0  # bytes of the log when it could not be folded back
        self._buried, self._unburied = list[int](), list[int]()  # in this transaction

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
        """Open an existing database; refuse what is not an index, and unknown formats."""
        with faults_named(folder):
            check_folder(folder)
            db = connect(folder)
            try:
                version = schema.version(db)
                if version == 0:  # written in the same transaction as everything else
                    raise NotAnIndexError(
                        f"no index at {folder}: its creation was interrupted; remove the folder and create it again"
                    )
                if version not in schema.VERSIONS:
                    raise IndexFormatError(
                        f"the index at {folder} has format version {version}; "
                        f"this weft reads versions {schema.FIRST_VERSION} to {schema.FORMAT_VERSION}"
                    )
                schema.check_tables(db)
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

    @property
    def read_only(self) -> bool:
        """Whether this folder cannot be written, only read."""
        return self._stamp is not None

    def _begin(self) -> None:
        if self._stamp is not None and (now := stamp(self.folder)) != self._stamp:
            # It was read without locks, as something that does not change, and somebody else has begun to write it.
            self._db.close()
            again = Catalogue.open(self.folder)
            self._db, self._version, self._stamp = again._db, again._version, now
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
        self._buried, self._unburied = [], []
        with faults_named(self.folder), transaction(self._db):
            before = self.generation()
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
            self._sum_tombstones(before)
        self._version = schema.FORMAT_VERSION

    def _sum_tombstones(self, before: int) -> None:
        """Store the number of tombstones and their sum, counted from those of the commit `before` where possible."""
        known = self._tombstones_known(before)
        if known is None:
            buried, _ = self.tombstones(verify=False)
            count, total = len(buried), tombstones_sum(buried)
        else:
            count = known[0] + len(self._buried) - len(self._unburied)
            total = (known[1] + tombstones_sum(self._buried) - tombstones_sum(self._unburied)) % 2**64
        value = json.dumps([self.generation(), count, total])
        self._db.execute("INSERT OR REPLACE INTO settings VALUES ('tombstones', ?)", (value,))

    def fold_log(self) -> None:
        """Keep SQLite's log short where readers never leave it; after a transaction."""
        self._unfolded = fold_log(self._db, self.folder, self._unfolded)

    # -- writing, inside `transaction` -----------------------------------------------------------------

    def next_number(self) -> int:
        """Return the number that the next document gets; those after it follow."""
        rows = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'documents'").fetchall()
        return int(rows[0][0]) + 1 if rows else 1

    def add_segment(self, file: str, documents: int, tokens: int, first: int) -> int:
        """Name a segment file that is already safe on disk; return its number."""
        values = (file, documents, tokens, first)
        query = "INSERT INTO segments (file, documents, tokens, first, checksum) VALUES (?, ?, ?, ?, ?)"
        return int(self._db.execute(query, (*values, segment_sum(*values))).lastrowid or 0)

    def put(self, document: Document, number: int) -> None:
        """Insert a document under its number; another with its id is buried."""
        metadata = json.dumps(dict(document.metadata), ensure_ascii=False, separators=(",", ":"))
        self.delete(document.id)
        values = (number, document.id, row_sum(document.id, document.text, metadata), document.text, metadata)
        self._db.execute("INSERT INTO documents (doc, id, checksum, text, metadata) VALUES (?, ?, ?, ?, ?)", values)

    def delete(self, id: str) -> bool:  # noqa: A002
        """Remove a document; False if there was none."""
        number = self.number(id)
        if number is None:
            return False
        self._db.execute("INSERT INTO tombstones (doc) VALUES (?)", (number,))
        self._db.execute("DELETE FROM documents WHERE id = ?", (id,))
        self._buried.append(number)
        return True

    def drop_segment(self, segment: int) -> None:
        """Forget a segment; refuse if it is gone, so that no document is put in twice by two merges of it."""
        if not self._db.execute("DELETE FROM segments WHERE segment = ?", (segment,)).rowcount:
            raise IndexStateError(
                f"a segment of the index at {self.folder} was merged in the meantime, from a newer state"
            )

    def drop_tombstones(self, numbers: Iterable[int]) -> None:
        """Forget tombstones of documents that no segment holds any more."""
        for number in map(int, numbers):
            if self._db.execute("DELETE FROM tombstones WHERE doc = ?", (number,)).rowcount:
                self._unburied.append(number)

    def set(self, key: str, value: Any) -> None:
        """Store a setting."""
        self._db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (key, json.dumps(value)))
        schema.sum_settings(self._db)

    # -- repairing, inside `transaction` ---------------------------------------------------------------

    def forget(self, numbers: Iterable[int]) -> None:
        """Remove documents by their numbers, whatever their rows say."""
        # Not through the trigger: the lexical index is rebuilt, as it may not fit what the row says now.
        self._db.execute("DROP TRIGGER lexical_delete")
        self._db.executemany("DELETE FROM documents WHERE doc = ?", ((int(number),) for number in numbers))
        schema.create_triggers(self._db)

    def restore(
        self,
        segments: Iterable[SegmentRow],
        documents: Mapping[int, tuple[Any, ...]],
        tombstones: Iterable[int],
        last: int,
    ) -> None:
        """Fill a new catalogue with rows of an old one; the next document gets a number above `last`."""
        query = "INSERT INTO segments (segment, file, documents, tokens, first, checksum) VALUES (?, ?, ?, ?, ?, ?)"
        self._db.executemany(query, ((*row, segment_sum(*row[1:])) for row in segments))
        query = "INSERT INTO documents (doc, id, checksum, text, metadata) VALUES (?, ?, ?, ?, ?)"
        self._db.executemany(query, ((number, *row) for number, row in documents.items()))
        self.bury(sorted(tombstones))
        self._db.execute("DELETE FROM sqlite_sequence WHERE name = 'documents'")
        self._db.execute("INSERT INTO sqlite_sequence VALUES ('documents', ?)", (last,))

    def bury(self, numbers: Iterable[int]) -> None:
        """Add tombstones for numbers that no document has."""
        for number in map(int, numbers):
            if self._db.execute("INSERT OR IGNORE INTO tombstones (doc) VALUES (?)", (number,)).rowcount:
                self._buried.append(number)

    def sum_tombstones_anew(self) -> None:
        """Make the end of this transaction count all tombstones again."""
        self._db.execute("DELETE FROM settings WHERE key = 'tombstones'")

    def raise_generation(self, least: int) -> None:
        """Make the number of this commit greater than `least`."""
        if self.generation() < least:
            self._db.execute("UPDATE settings SET value = ? WHERE key = 'generation'", (str(least),))

    def rebuild_lexical(self) -> None:
        """Rebuild the lexical index from the documents."""
        self._db.execute("INSERT INTO lexical(lexical) VALUES ('rebuild')")

    # -- checking --------------------------------------------------------------------------------

    def integrity(self) -> list[str]:
        """Return what SQLite's own checks complain of, nothing if all is well."""
        try:
            found = [row[0] for row in self._db.execute("PRAGMA integrity_check")]
        except UNREADABLE as error:
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
        except UNREADABLE as error:
            return [] if primary_code(error) in UNAVAILABLE else [str(error)]
        return []
