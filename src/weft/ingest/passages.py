"""Split a document into passages that know their page, line and heading."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from weft.encoders import Encoder, Passage, split_text
from weft.encoders.splitter import as_documents
from weft.sources.extracted import Extracted
from weft.types import Document

SECTION = 2**20
"""Characters that are split into passages at once: a tokenizer needs hundreds of bytes for each token of them."""
_OF_PASSAGES = ("parent", "start", "stop", "page", "line", "heading")
SMALL = 200
"""Functions and classes of fewer characters share a passage with the next."""


def passages_of(document: Document, layout: Extracted, encoder: Encoder, length: int | None) -> list[Document]:
    """Split a document that is longer than `length` tokens, or than the encoder reads, where its layout suggests."""
    longest, text = length or encoder.document_length, document.text
    if len(text) <= SECTION and encoder.count_tokens(text)[0] <= longest:
        return [document]
    parts = [
        Passage(start + passage.start, start + passage.stop)
        for first, last in pairwise(_joints(layout.cuts, len(text)))
        for start, stop in _sections(text, first, last)
        for passage in split_text(text[start:stop], encoder, length=length)
    ]
    return as_documents(document, [part for part in parts if text[part.start : part.stop].strip()])


def place_of(passage: Document, layout: Extracted, split: bool) -> dict[str, Any]:
    """Return what is known about the place of a passage: page, and if it is one of many, line and heading."""
    text, start = passage.text, int(passage.metadata.get("start", 0))
    if split:
        start += len(text) - len(text.lstrip())  # what is read begins here
    found: dict[str, Any] = {}
    if layout.page_starts:
        found["page"] = bisect_right(layout.page_starts, start)
    if split and layout.first_line is not None:
        found["line"] = layout.first_line + layout.text.count("\n", 0, start)
    if split and layout.headings:
        before = bisect_right(layout.headings, start, key=lambda heading: heading[0])
        if before and layout.headings[before - 1][1] != layout.title:
            found["heading"] = layout.headings[before - 1][1]
    return found


def whole(id: str, passages: Sequence[Document]) -> Document | None:  # noqa: A002
    """Put a document together from its passages, in order; None if there are none.

    Examples
    --------
    >>> parts = as_documents(Document("a", "one two three"), [Passage(0, 7), Passage(4, 13)])
    >>> whole("a", parts)
    Document(id='a', text='one two three', metadata={})
    """
    if not passages:
        return None
    text = ""
    for passage in passages:
        start = int(passage.metadata.get("start", len(text)))
        text += "\n" * max(start - len(text), 0)  # blank, and so of no passage
        text += passage.text[len(text) - start :]
    kept = {key: value for key, value in passages[0].metadata.items() if key not in _OF_PASSAGES}
    return Document(id, text, kept)


def _joints(cuts: Sequence[int], stop: int) -> list[int]:
    """Return where the parts of a text begin and end: at the cuts that leave enough between them.

    Examples
    --------
    >>> _joints([10, 300, 310, 900], 1000)
    [0, 300, 900, 1000]
    """
    joints = [0]
    for cut in cuts:
        if cut - joints[-1] >= SMALL:
            joints.append(cut)
    return [*joints, stop]


def _sections(text: str, start: int, last: int) -> Iterator[tuple[int, int]]:
    """Cut a very long part into sections of at most `SECTION` characters, after a paragraph, a line or a word."""
    while last - start > SECTION:
        most = start + SECTION
        ends = (text.rfind(mark, start + SECTION // 2, most) + len(mark) for mark in ("\n\n", "\n", " "))
        stop = next((end for end in ends if end > start + SECTION // 2), most)
        yield start, stop
        start = stop
    yield start, last
