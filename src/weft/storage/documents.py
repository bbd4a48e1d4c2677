"""Documents on their way in: what an index can keep, and what it refuses."""

from __future__ import annotations

import json

from weft.errors import invalid
from weft.types import Document


def checked(given: Document | str) -> Document:
    """Return a document that can be stored as it is, or say in one line why it cannot."""
    document = Document(given) if isinstance(given, str) else given
    if not isinstance(document.id, str) or not document.id:
        raise invalid("id", "Document", "a string with at least one character", document.id)
    for name in ("id", "text"):
        try:
            getattr(document, name).encode()
        except (UnicodeEncodeError, AttributeError):
            raise invalid(name, "Document", "valid Unicode text", getattr(document, name)) from None
    try:
        if not isinstance(json.loads(json.dumps(dict(document.metadata), allow_nan=False)), dict):
            raise TypeError
    except (TypeError, ValueError) as error:
        raise invalid("metadata", "Document", f"a JSON object ({error})", document.metadata) from None
    return document
