"""Texts that come from no file, as sources; and weft's notes about documents."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from weft.errors import DataError, invalid
from weft.sources.files import Source, content_hash
from weft.storage.documents import checked
from weft.storage.families import NOTES as MARK
from weft.storage.families import is_passage_id
from weft.types import Document


def text_source(given: Document | str) -> Source:
    """Return a text as a source without a file, so that ``weft index --sync`` leaves it alone."""
    named = given if isinstance(given, Document) else None
    text = named.text if named else given
    if not isinstance(text, str):
        raise invalid("documents", "add", "texts or Documents", given)
    if not text.strip():
        raise DataError(f"nothing to add: the text{f' of {named.id!r}' if named and named.id else ''} is empty")
    if named and isinstance(named.id, str) and is_passage_id(named.id):
        raise invalid(
            "id", "Document", "an id that does not end in ## and a number, which is how passages are named", named.id
        )
    document = checked(named if named and named.id else Document("text", text, named.metadata if named else {}))
    metadata = json.loads(json.dumps(dict(document.metadata)))  # whose names can be sorted
    digest = content_hash(text.encode(), json.dumps(metadata, sort_keys=True).encode())
    document = Document(named.id if named and named.id else f"text:{digest[:16]}", text, metadata)
    return Source(document.id, "", digest, 0, partial(_same, document))


def _same(document: Document) -> Document:
    return document


def note_of(document: Document, key: str) -> Any:
    """Return one of weft's notes about a document, or None."""
    notes = document.metadata.get(MARK)
    return notes.get(key) if isinstance(notes, dict) else None


def own_metadata(document: Document) -> dict[str, Any]:
    """Return a document's metadata without weft's notes.

    Examples
    --------
    >>> own_metadata(Document("a", "", {"year": 2024, "weft": {"source": "a.txt"}}))
    {'year': 2024}
    """
    return {key: value for key, value in document.metadata.items() if key != MARK}
