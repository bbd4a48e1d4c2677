"""`QueryCache`: an encoder of queries that remembers the last ones."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from weft.encoders import Encoder
from weft.types import TokenVectors

ENTRIES = 2048
"""Encoded queries that are kept: some megabytes, for people who page, filter and switch alignments."""


class QueryCache:
    """Encode queries with one thread each, and each of the last ones only once.

    Parameters
    ----------
    encoder : Encoder
    entries : int
        How many queries to remember.
    """

    def __init__(self, encoder: Encoder, entries: int = ENTRIES) -> None:
        self.encoder = encoder
        self.has_salience = encoder.has_salience
        self.hits = self.misses = 0
        self._entries = entries
        self._known: OrderedDict[tuple[str, bool | None], TokenVectors] = OrderedDict()
        self._guard = threading.Lock()

    def encode_query(self, texts: Sequence[str], *, salience: bool | None = None) -> TokenVectors:
        """Return the token vectors of each query, as `Encoder.encode_query` does; longer ones are cut."""
        parts = [self._one(text, salience) for text in texts]
        return parts[0] if len(parts) == 1 else TokenVectors.concatenate(parts)

    def _one(self, text: str, salience: bool | None) -> TokenVectors:
        key = (text, salience)  # with saliences that do not weigh, or without, are two things to score with
        with self._guard:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                self.hits += 1
                return found
            self.misses += 1
        # Threads of the server run beside each other: one processor for each query is what there is.
        made = self.encoder.encode_query([text], threads=1, progress=False, truncation="ignore", salience=salience)
        with self._guard:
            self._known[key] = made
            while len(self._known) > self._entries:
                self._known.popitem(last=False)
        return made
