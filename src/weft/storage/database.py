"""SQLite as we use it: connections, transactions, and its complaints as errors of ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.errors import CorruptIndexError, StorageError, WeftError
from weft.storage.folder import CATALOGUE

FILE = CATALOGUE

# The disk is full, fails or may not be written; or another process holds the database beyond all patience.
UNAVAILABLE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY}
_STORAGE = UNAVAILABLE | {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}


def connect(folder: Path) -> sqlite3.Connection:
    """Open the database of an index. One connection may serve several threads, one at a time."""
    # Transactions are ours to begin and end (isolation_level None).
    db = sqlite3.connect(folder / FILE, isolation_level=None, check_same_thread=False, timeout=30)
    try:
        db.execute("PRAGMA synchronous = FULL")
    except sqlite3.DatabaseError:
        db.close()
        raise
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Write: all of it or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def statements(script: str) -> Iterator[str]:
    """Split a script where SQLite says a statement is complete (a trigger's body has semicolons too)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code of an error; errors of the sqlite3 module itself have none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextmanager
def faults_named(folder: Path) -> Iterator[None]:
    """Turn what SQLite and the system say of a full, failing or damaged disk into errors of ours."""
    try:
        yield
    except WeftError:
        raise
    except (sqlite3.OperationalError, OSError) as error:
        if isinstance(error, sqlite3.OperationalError) and primary_code(error) not in _STORAGE:
            raise
        raise StorageError(
            f"the index at {folder} cannot be read or written now: {error}; all that was committed before is unharmed"
        ) from error
    except (sqlite3.ProgrammingError, sqlite3.IntegrityError):
        raise  # ours: a closed database, a broken rule
    except sqlite3.DatabaseError as error:
        raise CorruptIndexError(f"{folder / FILE}: damaged: {error}") from None
