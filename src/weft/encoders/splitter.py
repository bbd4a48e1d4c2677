"""Split long texts into passages that a model reads whole, with overlap, at paragraphs and sentences if possible.

Lengths are counted in tokens of the encoder's own tokenizer, on the whole text at once: a passage is a range of
characters, so nothing is rewritten, and joining the ranges gives the text back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from weft.checks import check_count
from weft.encoders.encoder import Encoder
from weft.errors import invalid
from weft.types import PASSAGE_SEPARATOR, Document

# Where a text may be cut, the best kinds first: each match ends where the next passage may begin.
_CUTS = (
    re.compile(r"\n[ \t]*\n\s*"),  # a paragraph ends
    re.compile(r"\n\s*|[.!?…]['\"”’)\]]*\s+|[。！？]"),  # a line or a sentence ends
    re.compile(r"\s+"),  # a word ends
)


@dataclass(frozen=True)
class Passage:
    """Characters ``start:stop`` of a text."""

    start: int
    stop: int


def split_text(text: str, encoder: Encoder, *, length: int | None = None, overlap: int | None = None) -> list[Passage]:
    """Split a text into passages of at most `length` tokens.

    Parameters
    ----------
    text : str
    encoder : Encoder
        Whose tokens are counted.
    length : int, optional
        Maximum tokens of a passage, special tokens and prefix included; by default what the encoder reads.
    overlap : int, optional
        Maximum tokens repeated from the passage before; by default an eighth of `length`. The repeated part
        begins at a sentence, or at a word, where there is one.

    Returns
    -------
    list of Passage
        In order. Each begins after the one before begins and no later than it ends; together they cover the text.
    """
    limit = encoder.document_length if length is None else check_count(length, "length", "split_text")
    extra = int(encoder.count_tokens("")[0])
    room = limit - extra
    if room < 1 or limit > encoder.document_length:
        expected = f"between {extra + 1} and {encoder.document_length}, the tokens that the encoder reads"
        raise invalid("length", "split_text", expected, limit)
    overlap = room // 8 if overlap is None else overlap
    if isinstance(overlap, bool) or not isinstance(overlap, int) or not 0 <= overlap < room:
        raise invalid("overlap", "split_text", f"an integer from 0 to {room - 1}, less than a passage", overlap)
    cutter = _Cutter(text, encoder)
    passages = [cutter.first(0, room, overlap)]
    while passages[-1].stop < len(text):
        passages.append(cutter.first(cutter.back(passages[-1], overlap), room, overlap))
    return passages


def split_document(
    document: Document, encoder: Encoder, *, length: int | None = None, overlap: int | None = None
) -> list[Document]:
    """Split a document into passages that know where they come from.

    Passage n of the document ``report`` is a `Document` with the id ``report##n``, the text of the passage, and the
    document's metadata with ``parent`` (the document's id), ``start`` and ``stop`` (characters of its text) added.
    """
    return as_documents(document, split_text(document.text, encoder, length=length, overlap=overlap))


def as_documents(document: Document, passages: Iterable[Passage]) -> list[Document]:
    """Return passages of a document as documents: see `split_document`."""
    return [
        Document(
            f"{document.id}{PASSAGE_SEPARATOR}{number}",
            document.text[passage.start : passage.stop],
            {**document.metadata, "parent": document.id, "start": passage.start, "stop": passage.stop},
        )
        for number, passage in enumerate(passages)
    ]


def split_passages(
    documents: Iterable[Document], encoder: Encoder, *, length: int | None = None, overlap: int | None = None
) -> Iterable[Document]:
    """Split documents one after the other; see `split_document`."""
    for document in documents:
        yield from split_document(document, encoder, length=length, overlap=overlap)


def parent_id(passage_id: str) -> str:
    """Return the id of the document that a passage is of.

    Examples
    --------
    >>> parent_id("report#2024##3"), parent_id("report#2024")
    ('report#2024', 'report#2024')
    """
    parent, separator, number = passage_id.rpartition(PASSAGE_SEPARATOR)
    return parent if separator and number.isdigit() else passage_id


class _Cutter:
    """Knows where the tokens of a text begin, and where it may be cut."""

    def __init__(self, text: str, encoder: Encoder) -> None:
        self._text = text
        self._encoder = encoder
        self._extra = int(encoder.count_tokens("")[0])
        self._starts = encoder.token_spans(text)[:, 0].astype(np.int64)
        self._places = [np.array([m.end() for m in pattern.finditer(text)], dtype=np.int64) for pattern in _CUTS]

    def first(self, start: int, room: int, overlap: int) -> Passage:
        """Return the passage that begins at `start`: as many tokens as there is room for, back to the best cut."""
        most = room
        while True:
            passage = Passage(start, self._stop(start, most, min(overlap, most - 1)))
            # A cut may change the tokens beside it: if a passage came out too long, aim lower.
            excess = int(self._encoder.count_tokens(self._text[passage.start : passage.stop])[0]) - self._extra - room
            if excess <= 0 or most == 1:
                return passage
            most = max(1, most - excess)

    def back(self, passage: Passage, overlap: int) -> int:
        """Go back from a passage's end by at most `overlap` tokens, to the first sentence or word that begins there."""
        index = int(np.searchsorted(self._starts, passage.stop)) - overlap
        earliest = max(int(self._starts[index]) if 0 <= index < len(self._starts) else 0, passage.start + 1)
        if overlap == 0 or earliest >= passage.stop:
            return passage.stop
        for places in self._places[1:]:
            found = places[(places >= earliest) & (places < passage.stop)]
            if len(found):
                return int(found[0])
        return earliest

    def _stop(self, start: int, room: int, overlap: int) -> int:
        first = int(np.searchsorted(self._starts, start))
        if len(self._starts) - first <= room:
            return len(self._text)
        # Not so early that the overlap would take back most of the passage.
        least = int(self._starts[first + overlap + (room - overlap + 1) // 2])
        most = int(self._starts[first + room])
        for places in self._places:
            index = int(np.searchsorted(places, most, side="right")) - 1
            if index >= 0 and places[index] >= max(least, start + 1):
                return int(places[index])
        return max(most, start + 1)
