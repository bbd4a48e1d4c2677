"""The tables of an index, and those of the first format: read as they are, brought up to date by the next writer.

`documents.doc` is a number of our own for one version of a document, never used twice: an update gets a new one, and
the old number becomes a tombstone until a merge drops what it stands for. Segment files know the numbers of their
documents (one without a list of them holds `first`, `first` + 1, …), so a merge changes no row of `documents`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from weft.storage.database import statements

FORMAT_VERSION = 2
FIRST_VERSION = 1

_SETTINGS = "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;\n"
_SEGMENTS = """\
CREATE TABLE segments (
    segment INTEGER PRIMARY KEY AUTOINCREMENT,
    file TEXT NOT NULL UNIQUE,
    documents INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    first INTEGER NOT NULL
);
"""
_DOCUMENTS = """\
CREATE TABLE documents (
    doc INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    text TEXT NOT NULL,
    metadata TEXT NOT NULL
);
CREATE TABLE tombstones (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    doc INTEGER NOT NULL UNIQUE
);
CREATE VIRTUAL TABLE lexical USING fts5(text, content='documents', content_rowid='doc', tokenize='porter unicode61');
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
_UPGRADE_BEGIN = """\
DROP TABLE lexical;
DROP TRIGGER lexical_insert;
DROP TRIGGER lexical_delete;
DROP TRIGGER lexical_update;
ALTER TABLE documents RENAME TO first_documents;
ALTER TABLE tombstones RENAME TO first_tombstones;
ALTER TABLE segments RENAME TO first_segments;
"""
# Numbers go on after all that a place could have become: the last places may be buried, and must not be given again.
_UPGRADE_END = """\
INSERT INTO segments SELECT segment, file, documents, tokens, segment << 32 FROM first_segments;
INSERT INTO documents SELECT (segment << 32) + ordinal, id, text, metadata FROM first_documents ORDER BY 1;
INSERT INTO tombstones (doc) SELECT (segment << 32) + ordinal FROM first_tombstones ORDER BY 1;
INSERT OR REPLACE INTO settings VALUES ('format_version', '2');
DELETE FROM sqlite_sequence WHERE name IN ('segments', 'documents');
INSERT INTO sqlite_sequence SELECT 'segments', seq FROM sqlite_sequence WHERE name = 'first_segments';
INSERT INTO sqlite_sequence SELECT 'documents', (seq + 1) << 32 FROM sqlite_sequence WHERE name = 'first_segments';
DROP TABLE first_documents;
DROP TABLE first_tombstones;
DROP TABLE first_segments;
"""


def create(db: sqlite3.Connection, settings: Mapping[str, Any]) -> None:
    """Make the tables of a new index, inside a transaction."""
    for statement in statements(_SETTINGS + _SEGMENTS + _DOCUMENTS):
        db.execute(statement)
    stored = {**settings, "format_version": FORMAT_VERSION}
    db.executemany("INSERT INTO settings VALUES (?, ?)", [(key, json.dumps(value)) for key, value in stored.items()])
    _set_version(db)


def version(db: sqlite3.Connection) -> int:
    """Return the format's version; 0 where an index was never finished."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def look_through(db: sqlite3.Connection) -> None:
    """Let a connection see tables of the first format as those of today."""
    for statement in statements(_FIRST_VIEWS):
        db.execute(statement)


def look_directly(db: sqlite3.Connection) -> None:
    """Undo `look_through`, once a writer has brought the tables up to date."""
    for name in _FIRST_VIEW_NAMES:
        db.execute(f"DROP VIEW IF EXISTS temp.{name}")


def upgrade(db: sqlite3.Connection) -> None:
    """Bring tables of the first format up to date, inside a transaction."""
    look_directly(db)
    for statement in statements(_UPGRADE_BEGIN + _SEGMENTS + _DOCUMENTS + _UPGRADE_END):
        db.execute(statement)
    _set_version(db)


def _set_version(db: sqlite3.Connection) -> None:
    db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
