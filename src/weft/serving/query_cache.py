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
    """Encode queries on one thread, those that come together in one run, and each of the last ones only once.

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
        keys = [(text, salience) for text in texts]  # with and without saliences they score differently
        found = {}
        with self._guard:
            for key in dict.fromkeys(keys):
                known = self._known.get(key)
                if known is not None:
                    self._known.move_to_end(key)
                    found[key] = known
            missing = [key for key in dict.fromkeys(keys) if key not in found]
            self.hits, self.misses = self.hits + len(found), self.misses + len(missing)
        if missing:
            # Threads of the server run beside each other: one processor for each call is what there is.
            made = self.encoder.encode_query(
                [text for text, _ in missing], threads=1, progress=False, truncation="ignore", salience=salience
            )
            found.update((key, made[at : at + 1]) for at, key in enumerate(missing))
            with self._guard:
                self._known.update((key, found[key]) for key in missing)
                while len(self._known) > self._entries:
                    self._known.popitem(last=False)
        parts = [found[key] for key in keys]
        return parts[0] if len(parts) == 1 else TokenVectors.concatenate(parts)
