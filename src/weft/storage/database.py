"""SQLite as weft uses it: connections, transactions, and its errors as errors of weft."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from weft.errors import CorruptIndexError, StorageError, WeftError, invalid
from weft.stopping import check_stop, is_stopped
from weft.storage.folder import CATALOGUE, has_second_name

FILE = CATALOGUE
PATIENCE = 30
"""Seconds that SQLite waits for a lock of another connection."""
LONG_LOG = 16 << 20
"""SQLite restarts its log when nobody reads. If somebody always reads, the log is written back at this many bytes."""
_FOLDING_PATIENCE = 1
"""Seconds that a writer waits for readers who are still in the log."""
STEPS = 20_000
"""Instructions of SQLite's machine between two checks whether anybody still waits: about a millisecond."""

# The disk is full, failing or not writable; or another process holds the database for too long.
UNAVAILABLE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY}
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""What a damaged database raises: SQLite's complaint may quote bytes of it, which Python cannot decode."""
_TOO_MUCH = ("too large", "too many", "stack overflow", "too complex", "LIKE or GLOB pattern")
_NO_TEXT = "Could not decode to UTF-8"
_STORAGE = UNAVAILABLE | {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}


def connect(folder: Path) -> sqlite3.Connection:
    """Open the database of an index. One connection may serve several threads, one at a time.

    A folder that cannot be written, for lack of permission or on a read-only file system, is only read; so is a
    database that has a second name, as that may be somebody's file.
    """
    # Transactions are ours to begin and end (isolation_level None).
    options: dict[str, Any] = {"isolation_level": None, "check_same_thread": False, "timeout": PATIENCE}
    if _writable(folder):
        db: sqlite3.Connection = sqlite3.connect(folder / FILE, **options)
    else:
        db = sqlite3.connect(f"{(folder / FILE).absolute().as_uri()}?{_as_it_lies(folder)}", uri=True, **options)
    try:
        if _alone(folder):
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
        # Nothing that a catalogue of someone else brings along may run, and its pages are looked at twice.
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cell_size_check = ON")
        db.execute("PRAGMA synchronous = FULL")
        db.set_progress_handler(is_stopped, STEPS)  # a query that nobody waits for any more is interrupted
    except BaseException:
        db.close()
        raise
    return db


def write_ahead(folder: Path) -> None:
    """Let a database keep its changes in a log, as that of every new index does: readers then never meet a writer."""
    with closing(connect(folder)) as db:
        db.execute("PRAGMA journal_mode = WAL")


def _writable(folder: Path) -> bool:
    there = (folder / FILE).exists()
    ours = not there or (os.access(folder / FILE, os.W_OK) and not has_second_name(folder / FILE))
    return ours and os.access(folder, os.W_OK)


def fold_log(db: sqlite3.Connection, folder: Path, tried: int) -> int:
    """After a commit, write a log that has grown long back into the database, and empty it.

    New readers then find all they need in the database, so only readers at work are waited for, and only for a while.
    `tried` is how long the log was when one of them stayed longer; pass the result to the next call.
    """
    size = log_size(folder)
    if size < tried + LONG_LOG:
        return tried if size >= tried else 0
    with suppress(sqlite3.Error):  # what was committed is safe in the log
        db.execute(f"PRAGMA busy_timeout = {_FOLDING_PATIENCE * 1000}")
        try:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            db.execute(f"PRAGMA busy_timeout = {PATIENCE * 1000}")
    return log_size(folder)


def log_size(folder: Path) -> int:
    """Return how long SQLite's log is, in bytes."""
    try:
        return (folder / f"{FILE}-wal").stat().st_size
    except OSError:
        return 0


def _as_it_lies(folder: Path) -> str:
    """How SQLite is to open a folder that cannot be written."""
    if (folder / f"{FILE}-shm").exists() and (folder / f"{FILE}-wal").exists():
        return "mode=ro"  # somebody writes it: their shared memory will do
    if log_size(folder):
        return "mode=ro&vfs=unix-none"  # they crashed, and the log holds commits: it is read without shared memory
    return "immutable=1"  # closed in good order


def _alone(folder: Path) -> bool:
    return not _writable(folder) and "unix-none" in _as_it_lies(folder)


def stamp(folder: Path) -> tuple[int, ...] | None:
    """Return what changes when a folder that we may not write is written by another; None if we may write it."""
    if _writable(folder):
        return None
    found = [0, 0, 0]
    with suppress(OSError):
        status = (folder / FILE).stat()
        found = [status.st_ino, status.st_mtime_ns, status.st_size]
    return (*found, int((folder / f"{FILE}-wal").exists()), int((folder / f"{FILE}-shm").exists()))


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Write: all of it or nothing."""
    # Our triggers write the lexical index; that the triggers are ours was seen when the catalogue was opened.
    db.execute("PRAGMA trusted_schema = ON")
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    finally:
        db.execute("PRAGMA trusted_schema = OFF")


def statements(script: str) -> Iterator[str]:
    """Split a script where SQLite says a statement is complete (a trigger's body has semicolons too)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def primary_code(error: Exception) -> int:
    """Return SQLite's primary result code of an error; errors of the sqlite3 module itself have none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextmanager
def faults_named(folder: Path) -> Iterator[None]:
    """Turn errors of SQLite and the system about a full, failing or damaged disk into errors of weft."""
    try:
        yield
    except WeftError:
        raise
    except (sqlite3.ProgrammingError, sqlite3.NotSupportedError):
        raise  # ours: a closed database
    except UnicodeEncodeError as error:
        raise invalid("text", "an id, a filter or a query", "valid Unicode text", error.object) from None
    except OverflowError:
        raise invalid("number", "a filter", "an integer of 64 bits", "a larger one") from None
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        if isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_INTERRUPT:
            check_stop()
        if isinstance(error, sqlite3.OperationalError) and any(word in str(error) for word in _TOO_MUCH):
            raise invalid("filter", "search", f"simpler: SQLite refuses it ({error})", "a large one") from None
        if isinstance(error, OSError) or primary_code(error) in _STORAGE:
            raise StorageError(
                f"the index at {folder} cannot be read or written now: {error}; "
                "all that was committed before is unharmed"
            ) from error
        # SQLite, and its lexical index above all, take what could not be read for damage: look again. Bytes that are no
        # text are damage that SQLite does not look for.
        unreadable = _unreadable(folder)
        if unreadable is not None or (_NO_TEXT not in str(error) and _sound(folder)):
            raise StorageError(
                f"the index at {folder} could not be read: {unreadable or error}; there is no sign that it is damaged"
            ) from error
        raise CorruptIndexError(f"{folder / FILE}: damaged: {error}; `weft repair` keeps what can be read") from None


def _unreadable(folder: Path) -> OSError | None:
    """Return the disk's error if the whole catalogue cannot be read."""
    for path in (folder / FILE, folder / f"{FILE}-wal"):
        try:
            handle = os.open(path, os.O_RDONLY)
            try:
                at = 0
                while part := os.pread(handle, 1 << 20, at):
                    at += len(part)
            finally:
                os.close(handle)
        except FileNotFoundError:
            continue
        except OSError as error:
            return error
    return None


def _sound(folder: Path) -> bool:
    """Tell whether SQLite finds nothing wrong with the catalogue now, its lexical index included."""
    try:
        db = connect(folder)
        try:
            if db.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
                return False
            with transaction(db):
                db.execute("INSERT INTO lexical(lexical, rank) VALUES ('integrity-check', 1)")
            return True
        finally:
            db.close()
    except (*UNREADABLE, OSError):
        return False
