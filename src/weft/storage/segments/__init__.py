"""Segments, which search themselves: flat and coded."""

from __future__ import annotations

from pathlib import Path

from weft.storage.arrays import Arrays
from weft.storage.codecs import codec_of
from weft.storage.segments.base import Segment, StoredTokens, in_parts
from weft.storage.segments.coded import CodedSegment
from weft.storage.segments.flat import FlatSegment
from weft.storage.segments.plan import Allowed, Bar, Effort, Found, Plan, Sample, Terms
from weft.storage.validation import check_kinds

__all__ = [
    "Allowed",
    "Bar",
    "Effort",
    "Found",
    "Plan",
    "Sample",
    "Segment",
    "StoredTokens",
    "Terms",
    "in_parts",
    "open_segment",
]


def open_segment(path: Path, first: int = 0, *, trusted: bool = False, copied: bool = False) -> Segment:
    """Open a segment of any kind.

    `first` is the number of its first document, unless it lists their numbers; `trusted` says that this process has
    just written it; `copied` reads it into memory instead of mapping it.
    """
    stored = Arrays(path, trusted=trusted, copied=copied)
    check_kinds(stored)
    codec = codec_of(stored)
    return FlatSegment(stored, first) if codec is None else CodedSegment(stored, codec, first)
