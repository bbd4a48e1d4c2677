"""Documents from files, folders and stdin, each with a hash of its content, so that unchanged ones need no work."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from weft.errors import DataError, MissingExtraError
from weft.sources.beir import read_corpus
from weft.sources.extract import Extracted, extract
from weft.sources.find import BEIR, STDIN, Found, Report, Skipped
from weft.sources.records import Fields, Record, Row, read_rows, read_stream, record
from weft.types import Document

LARGEST = 64 * 2**20
"""Bytes of a single text at the most; files of rows may be of any size."""
_VERSION = b"1"  # of the readers: raised when the same bytes are to give another text


@dataclass(frozen=True)
class Source:
    """A document that can be read. Whether it has changed is known before that, by its hash.

    `origin` is the file it is in, as the user named it; `size` how many bytes of that file it fills; `whole` that it is
    never to be split (test collections are judged by document).
    """

    id: str
    origin: str
    hash: str
    size: int
    read: Callable[[], Document]
    whole: bool = False
    page_starts: Callable[[], tuple[int, ...]] = tuple


def read_sources(
    found: Iterable[Found], fields: Fields, report: Report, *, stdin: IO[bytes] | None = None, largest: int = LARGEST
) -> Iterator[Source]:
    """Read the files that `find` found; what cannot be read is reported and left out."""
    for file in found:
        try:
            if file.kind == STDIN:
                if stdin is None:
                    raise DataError("there is no stdin to read")
                yield from _records(read_stream(stdin), file, fields, report)
            elif file.kind == BEIR:
                yield from _beir(file)
            elif file.kind in ("jsonl", "csv", "tsv", "parquet"):
                yield from _records(read_rows(file.path, file.kind, fields), file, fields, report)
            else:
                yield _single(file, largest)
        except (DataError, MissingExtraError, OSError) as error:
            reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            report(Skipped(file.name, reason, lost=True))


def page_of(start: int, page_starts: tuple[int, ...]) -> int | None:
    """Return the page, from 1 on, that a character is on."""
    return bisect_right(page_starts, start) if page_starts else None


def content_hash(*parts: bytes) -> str:
    """Return 128 bits that name a content.

    Examples
    --------
    >>> content_hash(b"ab", b"c") == content_hash(b"a", b"bc")
    False
    """
    digest = hashlib.blake2b(_VERSION, digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _single(file: Found, largest: int) -> Source:
    if file.size > largest:
        raise DataError(f"larger than {largest / 2**20:.0f} MB ({file.size / 2**20:.0f})")
    data = file.path.read_bytes()
    extracted: list[Extracted] = []  # filled by `read`

    def read() -> Document:
        found = extract(data, file.kind)
        extracted[:] = [found]
        title = {"title": found.title} if found.title else {}
        return Document(file.name, found.text, {"path": file.name, **title})

    def page_starts() -> tuple[int, ...]:
        return extracted[0].page_starts if extracted else ()

    return Source(file.name, file.name, content_hash(file.kind.encode(), data), file.size, read, False, page_starts)


def _records(rows: Iterable[Row], file: Found, fields: Fields, report: Report) -> Iterator[Source]:
    packed = file.path.suffix == ".gz"
    for row in rows:
        try:
            if isinstance(row.fields, DataError):
                raise row.fields
            made = record(row.fields, fields)
        except DataError as error:
            report(Skipped(file.name, str(error), True, row.number))
            continue
        content = json.dumps([made.id, made.title, made.text, made.metadata], sort_keys=True).encode()
        digest = content_hash(content)
        if not made.text.strip() and not made.title:
            report(Skipped(file.name, "no text in it", line=row.number))
            continue
        name = made.id or (f"stdin:{digest[:16]}" if file.kind == STDIN else f"{file.name}:{row.number}")
        yield Source(name, file.name, digest, 0 if packed else row.size, partial(_document, name, made, file))


def _document(name: str, made: Record, file: Found) -> Document:
    metadata: dict[str, Any] = {} if file.kind == STDIN else {"path": file.name}
    if made.title:
        metadata["title"] = made.title
    return Document(name, f"{made.title}\n{made.text}".strip("\n"), {**metadata, **made.metadata})


def _beir(file: Found) -> Iterator[Source]:
    for document in read_corpus(file.path.parent):
        content = json.dumps([document.title, document.text, document.metadata], sort_keys=True).encode()
        title = {"title": document.title} if document.title else {}
        made = Document(document.id, document.full_text, {"path": file.name, **title, **document.metadata})
        size = len(document.text) + len(document.title)
        yield Source(document.id, file.name, content_hash(content), size, partial(_same, made), whole=True)


def _same(document: Document) -> Document:
    return document
