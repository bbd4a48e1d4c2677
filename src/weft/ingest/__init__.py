"""Documents into an index: split, encoded, and only where something changed."""

from weft.ingest.origins import as_known
from weft.ingest.passages import whole
from weft.ingest.texts import own_metadata, text_source
from weft.ingest.updating import Summary, update

__all__ = ["Summary", "as_known", "own_metadata", "text_source", "update", "whole"]
