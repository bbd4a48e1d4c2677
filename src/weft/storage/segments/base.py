"""A segment: the token vectors of some documents, in one immutable file, with what searching them takes.

Small segments are flat (`flat.py`): the vectors as they came. Large ones are coded (`coded.py`): codes, and centroids
to find documents by. Documents are known here by their ordinal, 0 … N−1, and by the catalogue's numbers. Which of them
no longer count, only the catalogue knows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.errors import CorruptIndexError
from weft.storage.arrays import Arrays
from weft.storage.codecs.clustering import Floats
from weft.storage.segments.plan import Allowed, Bar, Found, Plan, Sample
from weft.storage.segments.reading import Places, Spans, unpack_salience
from weft.types import TokenVectors

if TYPE_CHECKING:
    from weft.storage.codecs.base import Codec
    from weft.storage.segments.coded import CodedSegment

COLUMNS = ("token_ids", "salience", "span_steps", "span_lengths", "shades", "finds")
"""Arrays with an entry for each token that any segment may have: ids, weights; for reading, spans and saliences; and
whether documents are found by it."""
CHUNK_TOKENS = 20_000


class StoredTokens(NamedTuple):
    """A document's tokens, with what reading a result needs: no vectors."""

    n_tokens: int
    token_ids: NDArray[np.int32] | None
    spans: NDArray[np.int32] | None
    """(n_tokens, 2)"""
    salience: NDArray[np.float32] | None


class Segment(ABC):
    """An open segment. Its arrays stay on disk until read."""

    def __init__(self, stored: Arrays, first: int = 0) -> None:
        self._arrays = stored
        try:
            stored.verify("offsets")
            self.offsets: NDArray[np.int64] = stored["offsets"]
            self.dim = int(stored.info["dim"])
            self.dtype = np.dtype(stored.info["dtype"])
            self.first = first
            sound = self._sound()
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorruptIndexError(f"{stored.path}: damaged: it is not a segment ({error})") from None
        if not sound:
            raise CorruptIndexError(f"{stored.path}: damaged: its arrays do not fit together")

    def _sound(self) -> bool:
        # Native code will trust these numbers: nothing may point outside the arrays.
        offsets, stored = self.offsets, self._arrays
        return (
            offsets.ndim == 1
            and offsets.dtype == np.int64
            and len(offsets) >= 1
            and offsets[0] == 0
            and bool((offsets[1:] >= offsets[:-1]).all())
            and self.dtype in (np.float16, np.float32)
            and 1 <= self.dim <= 65536
            and all(stored[name].shape == (self.n_tokens,) for name in self.columns)
            and all(stored[name].shape == (len(self),) for name in ("documents", "full_lengths") if name in stored)
        )

    # -- what it holds -------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """The file."""
        return self._arrays.path

    @property
    def nbytes(self) -> int:
        """Size of the file."""
        return self._arrays.nbytes

    @property
    @abstractmethod
    def coded(self) -> bool:
        """True if tokens are stored as codes."""

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return int(self.offsets[-1])

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The arrays of `COLUMNS` that it has."""
        return tuple(name for name in COLUMNS if name in self._arrays)

    @property
    def salient(self) -> bool:
        """True if tokens carry saliences that weigh."""
        return "salience" in self.columns

    @property
    def kind(self) -> tuple[Any, ...]:
        """What segments must share to be merged: precision, and what tokens have beside their vectors."""
        return self.dtype.str, self.columns

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """(N,) the catalogue's numbers of the documents."""
        if "documents" not in self._arrays:
            return self.first + np.arange(len(self))
        self._arrays.verify("documents")
        return self._arrays["documents"]

    @cached_property
    def _by_number(self) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        numbers = self.numbers
        if bool((numbers[1:] > numbers[:-1]).all()):
            return numbers, None
        order = np.argsort(numbers)
        return numbers[order], order

    def ordinals_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where documents with these numbers stand, those that are here at all, in no order."""
        known, order = self._by_number
        if not len(known) or not len(numbers):
            return np.zeros(0, np.int64)
        at = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
        found: NDArray[np.int64] = at[known[at] == numbers]
        return found if order is None else order[found]

    def with_tokens(self, allowed: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """Return the allowed documents that have tokens: the others have no score."""
        filled = np.diff(self.offsets) > 0
        return np.flatnonzero(filled if allowed is None else filled & allowed)

    def token_rows(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of documents' tokens, one document after another."""
        return row_numbers(self.offsets[ordinals], self.offsets[ordinals + 1])

    def column(self, name: str, ordinals: NDArray[np.int64]) -> NDArray[Any]:
        """Return an array of `columns` for the tokens of some documents, checked."""
        self._arrays.verify_rows(name, self.offsets[ordinals], self.offsets[ordinals + 1])
        return self._arrays[name][self.token_rows(ordinals)]

    def full_lengths(self, ordinals: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return how many tokens documents had before they were pruned; None where that is not stored."""
        if "full_lengths" not in self._arrays:
            return None
        self._arrays.verify("full_lengths")
        return self._arrays["full_lengths"][ordinals].astype(np.int64)

    def apart(self, ordinals: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the spans that are listed apart, (E, 3), tokens counted among those of these documents."""
        if "span_listed" not in self._arrays or not self._arrays.kind("span_listed")[1][0]:
            return np.zeros((0, 3), np.int32)
        self._arrays.verify("span_listed")
        listed = self._arrays["span_listed"]
        rows = self.token_rows(ordinals)
        order = np.argsort(rows, kind="stable")
        at = np.minimum(np.searchsorted(rows[order], listed[:, 0]), max(len(rows) - 1, 0))
        mine = rows[order[at]] == listed[:, 0] if len(rows) else np.zeros(len(listed), bool)
        found: NDArray[np.int32] = listed[mine].copy()
        found[:, 0] = order[at[mine]]
        return found

    def places(self, ordinal: int) -> Places | None:
        """Return where a document's tokens stand, as they are stored, checked; None where that is not kept."""
        if "span_steps" not in self.columns:
            return None
        first, stop = int(self.offsets[ordinal]), int(self.offsets[ordinal + 1])
        for name in ("span_steps", "span_lengths"):
            self._arrays.verify(name, first, stop)
        return Places(*self._packed, first, stop)

    @cached_property
    def _packed(self) -> Spans:
        """The spans of all tokens; those that are listed apart are checked."""
        listed = np.zeros((0, 3), np.int32)
        if "span_listed" in self._arrays:
            self._arrays.verify("span_listed")
            listed = self._arrays["span_listed"]
            if bool((listed[1:, 0] < listed[:-1, 0]).any()):
                listed = listed[np.argsort(listed[:, 0], kind="stable")]
        return Spans(self._arrays["span_steps"], self._arrays["span_lengths"], listed)

    def reading(self, ordinal: int) -> StoredTokens:
        """Return a document's tokens without their vectors."""
        one = np.array([ordinal])
        taken = {name: self.column(name, one) for name in self.columns if not name.startswith("span_")}
        count = int(self.offsets[ordinal + 1] - self.offsets[ordinal])
        places = self.places(ordinal)
        spans = None if places is None else places.unpacked()
        salience = taken.get("salience")
        if salience is None and "shades" in taken:
            salience = unpack_salience(taken["shades"])
        return StoredTokens(count, taken.get("token_ids"), spans, salience)

    # -- vectors -------------------------------------------------------------------------------------

    def vectors(self, start: int = 0, stop: int | None = None) -> TokenVectors:
        """Return the vectors of documents start:stop, checked."""
        return self.select(np.arange(start, len(self) if stop is None else stop))

    @abstractmethod
    def select(self, ordinals: NDArray[np.int64]) -> TokenVectors:
        """Return the vectors of some documents, checked, copied together, with token ids and saliences that weigh."""

    @abstractmethod
    def rotated(self, ordinals: NDArray[np.int64], matrix: Floats) -> Floats:
        """Return the vectors of some documents in the space of codes with this rotation."""

    @abstractmethod
    def byte_codes(self, ordinals: NDArray[np.int64], matrix: Floats, scale: float) -> NDArray[np.uint8]:
        """Return the byte codes of some documents' tokens at a scale: the stored ones, if they are of this scale."""

    def _beside(self, values: Any, ordinals: NDArray[np.int64]) -> TokenVectors:
        """Join vectors of documents with their token ids and saliences."""
        lengths = self.offsets[ordinals + 1] - self.offsets[ordinals]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        more = {name: self.column(name, ordinals) for name in ("token_ids", "salience") if name in self.columns}
        return TokenVectors.trusted(values, offsets, **more)

    # -- searching -----------------------------------------------------------------------------------

    @abstractmethod
    def search(self, query: TokenVectors, plan: Plan, allowed: Allowed, bar: Bar) -> Found:
        """Find the best documents for one query."""

    @abstractmethod
    def retrieve_tokens(
        self, query: TokenVectors, plan: Plan, allowed: Allowed, into: _native.TokenRetrieval, base: int
    ) -> None:
        """Add the tokens of allowed documents that can be among the best k′ of a query token (XTR eq. 3)."""

    @abstractmethod
    def sample_tokens(self, query: TokenVectors, into: _native.TokenRetrieval, sample: Sample, share: float) -> None:
        """Add the best `share` of some tokens, in the place of document 0: only their similarities are of interest."""

    def sample(self, allowed: Allowed, first: int, every: int) -> Sample:
        """Return one in `every` tokens of the allowed documents. The last sample is kept: queries share it."""
        known = self._last_sample
        if known is not None and known[0] is allowed.mask and known[1:3] == (first, every):
            return known[3]
        lengths = np.diff(self.offsets) if allowed.mask is None else np.where(allowed.mask, np.diff(self.offsets), 0)
        ends = np.cumsum(lengths)
        places = np.arange(first, ends[-1] if len(ends) else 0, every)
        documents = np.searchsorted(ends, places, side="right")
        rows = self.offsets[documents] + places - (ends[documents] - lengths[documents])
        made = Sample(rows.astype(np.int64), np.unique(documents).astype(np.int64))
        self._last_sample = (allowed.mask, first, every, made)
        return made

    _last_sample: tuple[NDArray[np.bool_] | None, int, int, Sample] | None = None

    @abstractmethod
    def comparable(self, query: TokenVectors, ordinals: NDArray[np.int64]) -> tuple[TokenVectors, TokenVectors]:
        """Return query and documents in a space where their inner products are the stored ones."""

    # -- merging -------------------------------------------------------------------------------------

    def donor(self, codec: Codec) -> CodedSegment | None:  # noqa: ARG002
        """Return the segment itself if others can be coded with its codebook, by this codec."""
        return None

    # -- looking after it ----------------------------------------------------------------------------

    @abstractmethod
    def warm(self) -> None:
        """Prepare what the first search would otherwise have to."""

    def release(self, ordinals: NDArray[np.int64]) -> None:
        """Give back the memory of everything from the first of these documents to the last.

        Only of these: what searches read elsewhere in the file meanwhile stays mapped.
        """
        first, last = int(self.offsets[ordinals[0]]), int(self.offsets[ordinals[-1] + 1])
        for name in self._arrays.names:
            if self._arrays.kind(name)[1][:1] == (self.n_tokens,):
                self._arrays.release_rows(name, first, last)

    def populate(self) -> None:
        """Map the whole file now, so that no search has to wait for its pages."""
        self._arrays.populate()

    def verify(self) -> None:
        """Check every byte."""
        self._arrays.verify()


def in_parts(segment: Segment, ordinals: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Cut documents of a segment into parts of a few thousand tokens."""
    tokens = np.cumsum(segment.offsets[ordinals + 1] - segment.offsets[ordinals])
    start = 0
    while start < len(ordinals):
        before = tokens[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(tokens, before + CHUNK_TOKENS, side="right")))
        yield ordinals[start:stop]
        start = stop


def row_numbers(starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows starts[0]:stops[0], starts[1]:stops[1], … as one array."""
    if len(starts) == 1:
        return np.arange(starts[0], stops[0])
    lengths = stops - starts
    rows: NDArray[np.int64] = np.arange(int(lengths.sum())) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    return rows
