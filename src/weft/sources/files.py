"""Documents from files, folders and stdin, each with a hash of its content, so that unchanged ones need no work."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from weft.errors import DataError, MissingExtraError
from weft.sources.beir import read_corpus
from weft.sources.code import is_costly
from weft.sources.extract import PARSERS, extract
from weft.sources.extracted import Extracted, clean_text
from weft.sources.find import BEIR, STDIN, Found, Report, Skipped
from weft.sources.isolation import shared
from weft.sources.kinds import CODE, ROWS
from weft.sources.records import GLOBAL, Fields, Record, Row, json_rows, plain, read_rows, read_stream, record
from weft.types import Document

RESERVED = frozenset(("path", "title", "parent", "start", "stop", "page", "line", "heading", "weft"))
"""Keys of a passage's metadata that weft sets, whatever a file says about itself."""
LARGEST = 64 * 2**20
"""The maximum size of a single text, in bytes; files of rows may be of any size."""
NO_LAYOUT = partial(Extracted, "")
_VERSION = b"1"  # of the readers: raised when the same bytes are to give another text
_VERSIONS = {"markdown": "2", "html": "2", "pdf": "2", "docx": "2"}  # the same for one kind alone


@dataclass(frozen=True)
class Source:
    """A document that can be read. Its hash tells beforehand whether it has changed.

    `origin` is the file it is in, as the user named it; `size` how many bytes of that file it fills; `whole` means that
    it is never split (test collections are judged by document); `line` is its row, if the file has many; `former` an id
    that weft would have given it under other settings; `file` the file's real path.
    """

    id: str
    origin: str
    hash: str
    size: int
    read: Callable[[], Document]
    whole: bool = False
    layout: Callable[[], Extracted] = NO_LAYOUT
    """Where pages, sections and lines begin in what `read` has returned."""
    line: int | None = None
    former: str = ""
    file: Path | None = None

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return f"{self.origin}{'' if self.line is None else f', line {self.line}'}"


def read_sources(
    found: Iterable[Found], fields: Fields, report: Report, *, stdin: IO[bytes] | None = None, largest: int = LARGEST
) -> Iterator[Source]:
    """Read the files that `find` found; what cannot be read is reported and left out."""
    try:
        for file in found:
            try:
                for source in _sources(file, fields, report, stdin, largest):
                    yield source if file.kind == STDIN else replace(source, file=file.path)
            except (DataError, MissingExtraError, OSError) as error:
                reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
                report(Skipped(file.name, reason, lost=True))
    finally:
        shared.close()


def _sources(file: Found, fields: Fields, report: Report, stdin: IO[bytes] | None, largest: int) -> Iterator[Source]:
    if file.kind == STDIN:
        if stdin is None:
            raise DataError("there is no stdin to read")
        yield from _records(read_stream(stdin), file, fields, report)
    elif file.kind == BEIR:
        yield from _beir(file)
    elif file.kind in ROWS:
        yield from _records(read_rows(file.path, file.kind, fields), file, fields, report)
    elif file.kind == "mbox":
        yield from _messages(file, largest, report)
    elif file.kind == "json" and (rows := json_rows(_bytes(file, largest))) is not None:
        yield from _records(rows, file, fields, report)
    else:
        yield _single(file, largest)


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


def _bytes(file: Found, largest: int) -> bytes:
    if file.size > largest:
        raise DataError(f"larger than {largest / 2**20:.0f} MB ({file.size / 2**20:.0f})")
    return file.path.read_bytes()


def _single(file: Found, largest: int) -> Source:
    data = _bytes(file, largest)
    kind = "text" if file.kind == "json" else file.kind
    version = (kind + _VERSIONS.get(kind, "")).encode()
    return _whole_file(file.name, file, data, kind, content_hash(version, data), None)


def _whole_file(name: str, file: Found, data: bytes, kind: str, digest: str, line: int | None) -> Source:
    extracted: list[Extracted] = []  # filled by `read`

    def read() -> Document:
        found = _extract(data, kind)
        extracted[:] = [found]
        own = {key: value for key, value in plain(dict(found.metadata)).items() if key not in RESERVED}
        title = {"title": found.title} if found.title else {}
        return Document(name, found.text, {"path": file.name, **title, **own})

    def layout() -> Extracted:
        return extracted[0] if extracted else Extracted("")

    return Source(name, file.name, digest, len(data), read, False, layout, line)


def _extract(data: bytes, kind: str) -> Extracted:
    if kind in PARSERS:
        return shared.read(data, kind)
    if kind.startswith(CODE) and is_costly(len(data)):
        try:
            return shared.read(data, kind)
        except DataError:  # it needs too much: it is text all the same
            return extract(data, "text")
    return extract(data, kind)


def _messages(file: Found, largest: int, report: Report) -> Iterator[Source]:
    """Yield the messages of an mbox file, each named by its content: numbers change, their ids may occur twice."""
    from weft.sources.mail import messages  # the library of e-mail is slow to import

    for number, data in enumerate(messages(file.path), 1):
        if len(data) > largest:
            report(Skipped(file.name, f"message {number} is larger than {largest / 2**20:.0f} MB", lost=True))
            continue
        digest = content_hash(b"mail", data)
        yield _whole_file(f"{file.name}:{digest[:16]}", file, data, "mail", digest, number)


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
        scoped = f"{file.name}:{made.id or row.number}"
        if file.kind == STDIN:
            name, former = made.id or f"stdin:{digest[:16]}", ""
        else:
            name, former = (made.id, scoped) if made.id and fields.scope == GLOBAL else (scoped, made.id)
        read = partial(_document, name, made, file)
        yield Source(name, file.name, digest, 0 if packed else row.size, read, line=row.number, former=former)


def _document(name: str, made: Record, file: Found) -> Document:
    metadata: dict[str, Any] = {} if file.kind == STDIN else {"path": file.name}
    if made.title:
        metadata["title"] = made.title
    return Document(name, f"{made.title}\n{made.text}".strip("\n"), {**metadata, **made.metadata})


def _beir(file: Found) -> Iterator[Source]:
    for document in read_corpus(file.path.parent):
        content = json.dumps([document.title, document.text, document.metadata], sort_keys=True).encode()
        title = {"title": document.title} if document.title else {}
        metadata = plain({"path": file.name, **title, **document.metadata})
        made = Document(clean_text(document.id), clean_text(document.full_text), metadata)
        size = len(document.text) + len(document.title)
        yield Source(made.id, file.name, content_hash(content), size, partial(_same, made), whole=True)


def _same(document: Document) -> Document:
    return document
