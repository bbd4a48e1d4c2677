"""The tables of an index, and those of the first format: read as they are, brought up to date by the next writer.

`documents.doc` is a number of our own for one version of a document, never used twice: an update gets a new one, and
the old number becomes a tombstone until a merge drops what it stands for. Segment files know the numbers of their
documents (one without a list of them holds `first`, `first` + 1, …), so a merge changes no row of `documents`.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from typing import Any

from weft.errors import CorruptIndexError
from weft.storage.database import statements
from weft.storage.sums import row_sum, segment_sum, settings_sum

FORMAT_VERSION = 3
SECOND_VERSION = 2
"""The same without checksums."""
FIRST_VERSION = 1
VERSIONS = (FIRST_VERSION, SECOND_VERSION, FORMAT_VERSION)

_SETTINGS = "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;\n"
_SEGMENTS = """\
CREATE TABLE segments (
    segment INTEGER PRIMARY KEY AUTOINCREMENT,
    file TEXT NOT NULL UNIQUE,
    documents INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    first INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
"""
_DOCUMENTS = """\
CREATE TABLE documents (
    doc INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    checksum INTEGER NOT NULL,
    text TEXT NOT NULL,
    metadata TEXT NOT NULL
);
"""
_TOMBSTONES = """\
CREATE TABLE tombstones (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    doc INTEGER NOT NULL UNIQUE
);
CREATE VIRTUAL TABLE lexical USING fts5(text, content='documents', content_rowid='doc', tokenize='porter unicode61');
"""
_TRIGGERS = """\
CREATE TRIGGER lexical_insert AFTER INSERT ON documents BEGIN
    INSERT INTO lexical(rowid, text) VALUES (new.doc, new.text);
END;
CREATE TRIGGER lexical_delete AFTER DELETE ON documents BEGIN
    INSERT INTO lexical(lexical, rowid, text) VALUES ('delete', old.doc, old.text);
END;
"""

# In the first format a document had a place, (segment, ordinal), and kept its `doc` for ever. Seen through these views
# the place is its number, and tombstones are places too.
_FIRST_VIEWS = """\
CREATE TEMP VIEW segments AS
    SELECT segment, file, documents, tokens, segment << 32 AS first FROM main.segments;
CREATE TEMP VIEW documents AS
    SELECT (segment << 32) + ordinal AS doc, id, text, metadata, doc AS lexical_row FROM main.documents;
CREATE TEMP VIEW tombstones AS
    SELECT (segment << 32) + ordinal AS seq, (segment << 32) + ordinal AS doc FROM main.tombstones;
"""
_FIRST_VIEW_NAMES = ("segments", "documents", "tombstones")
_FIRST_UPGRADE_BEGIN = """\
DROP TABLE lexical;
DROP TRIGGER lexical_insert;
DROP TRIGGER lexical_delete;
DROP TRIGGER lexical_update;
ALTER TABLE documents RENAME TO first_documents;
ALTER TABLE tombstones RENAME TO first_tombstones;
ALTER TABLE segments RENAME TO first_segments;
"""
# Numbers go on after all that a place could have become: the last places may be buried, and must not be given again.
_FIRST_UPGRADE_END = """\
INSERT INTO segments SELECT segment, file, documents, tokens, segment << 32,
    segment_sum(file, documents, tokens, segment << 32) FROM first_segments;
INSERT INTO documents SELECT (segment << 32) + ordinal, id, row_sum(id, text, metadata), text, metadata
    FROM first_documents ORDER BY 1;
INSERT INTO tombstones (doc) SELECT (segment << 32) + ordinal FROM first_tombstones ORDER BY 1;
INSERT OR REPLACE INTO settings VALUES ('format_version', '3');
DELETE FROM sqlite_sequence WHERE name IN ('segments', 'documents');
INSERT INTO sqlite_sequence SELECT 'segments', seq FROM sqlite_sequence WHERE name = 'first_segments';
INSERT INTO sqlite_sequence SELECT 'documents', (seq + 1) << 32 FROM sqlite_sequence WHERE name = 'first_segments';
DROP TABLE first_documents;
DROP TABLE first_tombstones;
DROP TABLE first_segments;
"""


_SECOND_UPGRADE_BEGIN = """\
DROP TRIGGER lexical_insert;
DROP TRIGGER lexical_delete;
ALTER TABLE documents RENAME TO second_documents;
ALTER TABLE segments RENAME TO second_segments;
"""
_SECOND_UPGRADE_END = """\
INSERT INTO segments SELECT segment, file, documents, tokens, first, segment_sum(file, documents, tokens, first)
    FROM second_segments;
INSERT INTO documents SELECT doc, id, row_sum(id, text, metadata), text, metadata FROM second_documents ORDER BY 1;
INSERT OR REPLACE INTO settings VALUES ('format_version', '3');
DELETE FROM sqlite_sequence WHERE name IN ('segments', 'documents');
INSERT INTO sqlite_sequence SELECT 'segments', seq FROM sqlite_sequence WHERE name = 'second_segments';
INSERT INTO sqlite_sequence SELECT 'documents', seq FROM sqlite_sequence WHERE name = 'second_documents';
DROP TABLE second_documents;
DROP TABLE second_segments;
"""
_OLDER = """\
CREATE TABLE segments (
    segment INTEGER PRIMARY KEY AUTOINCREMENT,
    file TEXT NOT NULL UNIQUE,
    documents INTEGER NOT NULL,
    tokens INTEGER NOT NULL
);
CREATE TABLE segments (
    segment INTEGER PRIMARY KEY AUTOINCREMENT,
    file TEXT NOT NULL UNIQUE,
    documents INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    first INTEGER NOT NULL
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
CREATE TABLE documents (
    doc INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    text TEXT NOT NULL,
    metadata TEXT NOT NULL
);
CREATE TABLE tombstones (
    segment INTEGER NOT NULL REFERENCES segments(segment) ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    PRIMARY KEY (segment, ordinal)
) WITHOUT ROWID;
CREATE TRIGGER lexical_update AFTER UPDATE OF text ON documents BEGIN
    INSERT INTO lexical(lexical, rowid, text) VALUES ('delete', old.doc, old.text);
    INSERT INTO lexical(rowid, text) VALUES (new.doc, new.text);
END;
"""
"""What older formats have and the current one lacks, to recognise them by."""
_TODAY = _SETTINGS + _SEGMENTS + _DOCUMENTS + _TOMBSTONES + _TRIGGERS


def _plain(statement: str) -> str:
    return " ".join(statement.replace('"', "").rstrip().rstrip(";").split())


_KNOWN = {_plain(statement) for statement in statements(_TODAY + _OLDER)}
_SHADOWS = {"sqlite_sequence", "lexical_data", "lexical_idx", "lexical_docsize", "lexical_config"}
"""Tables that SQLite makes for ours, of columns only: one that is computed may take any memory."""
_COLUMNS_ONLY = re.compile(r"CREATE TABLE '?\w+'?\((?:[\w ,]|PRIMARY KEY\([\w, ]+\))+\)( WITHOUT ROWID)?")


def create(db: sqlite3.Connection, settings: Mapping[str, Any]) -> None:
    """Make the tables of a new index, inside a transaction."""
    for statement in statements(_TODAY):
        db.execute(statement)
    stored = {**settings, "format_version": FORMAT_VERSION}
    db.executemany("INSERT INTO settings VALUES (?, ?)", [(key, json.dumps(value)) for key, value in stored.items()])
    sum_settings(db)
    _set_version(db)


def version(db: sqlite3.Connection) -> int:
    """Return the format's version; 0 where an index was never finished."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def check_tables(db: sqlite3.Connection) -> None:
    """Refuse tables, views and triggers that weft did not make: a view may never end, a trigger do anything."""
    for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_schema"):
        shadow = kind == "table" and name in _SHADOWS and _COLUMNS_ONLY.fullmatch(str(sql))
        if not (sql is None if kind == "index" else shadow or _plain(str(sql)) in _KNOWN):
            raise CorruptIndexError(f"the catalogue has a {kind} {name!r} that weft did not make")


def sum_settings(db: sqlite3.Connection) -> None:
    """Store the checksum of the settings, after a change."""
    stored = dict(db.execute("SELECT key, value FROM settings").fetchall())
    db.execute("INSERT OR REPLACE INTO settings VALUES ('checksum', ?)", (str(settings_sum(stored)),))


def look_through(db: sqlite3.Connection) -> None:
    """Let a connection see tables of the first format as those of the current one."""
    for statement in statements(_FIRST_VIEWS):
        db.execute(statement)


def look_directly(db: sqlite3.Connection) -> None:
    """Undo `look_through`, once a writer has brought the tables up to date."""
    for name in _FIRST_VIEW_NAMES:
        db.execute(f"DROP VIEW IF EXISTS temp.{name}")


def upgrade(db: sqlite3.Connection) -> None:
    """Bring tables of an older format up to date, inside a transaction."""
    look_directly(db)
    db.create_function("row_sum", 3, row_sum, deterministic=True)
    db.create_function("segment_sum", 4, segment_sum, deterministic=True)
    if version(db) == FIRST_VERSION:
        new = _FIRST_UPGRADE_BEGIN + _SEGMENTS + _DOCUMENTS + _TOMBSTONES + _TRIGGERS + _FIRST_UPGRADE_END
    else:
        new = _SECOND_UPGRADE_BEGIN + _SEGMENTS + _DOCUMENTS + _SECOND_UPGRADE_END + _TRIGGERS
    for statement in statements(new):
        db.execute(statement)
    sum_settings(db)
    _set_version(db)


def create_triggers(db: sqlite3.Connection) -> None:
    """Make the triggers that are missing."""
    for statement in statements(_TRIGGERS):
        db.execute(statement.replace("CREATE TRIGGER", "CREATE TRIGGER IF NOT EXISTS"))


def _set_version(db: sqlite3.Connection) -> None:
    db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
