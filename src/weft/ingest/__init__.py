"""Documents into an index: split, encoded, and only where something changed."""

from weft.ingest.texts import own_metadata, text_source
from weft.ingest.updating import Summary, update

__all__ = ["Summary", "own_metadata", "text_source", "update"]
