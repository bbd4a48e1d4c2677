"""Reading segments before anyone asks for them, as far as the machine's memory goes.

A page of a mapped file costs its first reader a fault, and a block of it the check of its sum. A server pays for both
before it is ready, and a merge before its segment is searched, so that searches need not.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from weft.errors import CorruptIndexError
from weft.storage.segments import Segment

SHARE = 1 / 2
"""An index larger than this part of the memory is read as it is asked for."""
OF_ONE = 1 / 8
"""So is a single new segment larger than this."""


def memory() -> int:
    """Return the bytes of memory that this machine has; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


def map_ahead(segment: Segment) -> None:
    """Map all pages of a segment that was written a moment ago, if it is a small part of the memory."""
    if segment.nbytes <= OF_ONE * memory():
        segment.populate()


def read_ahead(segments: Sequence[Segment]) -> bool:
    """Read, check and map all segments of a state; return False, and do nothing, if they are too large for that.

    A damaged segment is left to the search that meets it, which says what is to be done.
    """
    if sum(segment.nbytes for segment in segments) > SHARE * memory():
        return False
    for segment in segments:
        try:
            segment.warm()
            segment.verify()
        except CorruptIndexError:
            continue
        segment.populate()
    return True
