"""Documents into an index: split, encoded, and only where something changed."""

from weft.ingest.updating import Summary, update

__all__ = ["Summary", "update"]
