"""From the bytes of a file to its text and title.

Parsers of HTML, PDF and Word files are loaded when first needed: ``pip install 'weft-search[files]'``.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from weft.errors import DataError, WeftError, missing_extra

_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True)
class Extracted:
    """The text of a file. `page_starts` are the characters at which its pages begin, where it has pages."""

    text: str
    title: str = ""
    page_starts: tuple[int, ...] = ()


def extract(data: bytes, kind: str) -> Extracted:
    r"""Read a file of a kind (see `weft.sources.find.KINDS`); `DataError` says why it cannot be.

    Examples
    --------
    >>> extract(b"# Title\n\nSome text.", "markdown").title
    'Title'
    >>> extract(b"MZ\x00\x01", "text")
    Traceback (most recent call last):
    ...
    weft.errors.DataError: binary, not text
    """
    try:
        found = _EXTRACTORS[kind](data)
    except WeftError:
        raise
    except Exception as error:  # damaged files make parsers raise anything at all
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"not readable as {kind}: {reason}") from None
    if not found.text.strip():
        raise DataError("no text in it" + (" (a scan?)" if kind == "pdf" else ""))
    return found


def decode(data: bytes) -> str:
    """Decode text: by its byte order mark, else UTF-8, else Windows-1252; `DataError` if it is not text.

    Examples
    --------
    >>> decode("café".encode()), decode("café".encode("cp1252")), decode("café".encode("utf-16"))
    ('café', 'café', 'café')
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            try:
                return data.decode(encoding)
            except UnicodeDecodeError as error:
                raise DataError(f"not the {encoding.upper()} that it says it is: {error.reason}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")
    if "\x00" in text or len(_CONTROLS.findall(text[:65536])) > len(text[:65536]) / 100:
        raise DataError("binary, not text")
    return text


def _text(data: bytes) -> Extracted:
    return Extracted(_lines(decode(data)))


def _markdown(data: bytes) -> Extracted:
    text = _lines(decode(data))
    front = re.match(r"---\n(.*?\n)---\n", text, re.DOTALL)
    title = re.search(r"^title:[ \t]*[\"']?(.+?)[\"']?[ \t]*$", front[1], re.MULTILINE) if front else None
    title = title or re.search(r"^#[ \t]+(.+?)[ \t#]*$|^(\S.*)\n=+[ \t]*$", text, re.MULTILINE)
    return Extracted(text, next(group for group in title.groups() if group) if title else "")


def _html(data: bytes) -> Extracted:
    with _needed("beautifulsoup4", "HTML"):
        from bs4 import BeautifulSoup
        from bs4.element import PreformattedString
    with _quiet("bs4"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # XHTML looks like XML to it
        soup = BeautifulSoup(data, "html.parser")
    title = " ".join(soup.title.get_text().split()) if soup.title else ""
    for tag in soup(["script", "style", "template", "noscript", "svg", "title"]):
        tag.decompose()
    for string in list(soup.find_all(string=True)):
        if isinstance(string, PreformattedString):  # comments, doctypes
            string.extract()
        elif string.find_parent("pre") is None:
            string.replace_with(re.sub(r"\s+", " ", string))
    for tag in soup(_BLOCKS):
        tag.insert_before("\n\n")
        tag.insert_after("\n\n")
    for tag in soup(["br", "tr", "li", "dt", "dd", "option"]):
        tag.insert_before("\n")
    for tag in soup(["td", "th"]):
        tag.insert_after(" ")
    return Extracted(_tidy(soup.get_text()), title)


_BLOCKS = re.findall(
    r"\w+",
    "address article aside blockquote body caption div dl fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 "
    "header hr main nav ol p pre section table ul",
)


def _pdf(data: bytes) -> Extracted:
    with _needed("pypdf", "PDF"):
        from pypdf import PdfReader
    with _quiet("pypdf"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = PdfReader(BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise DataError("encrypted")
        pages = [_tidy(page.extract_text()) for page in reader.pages]
        title = reader.metadata.title if reader.metadata else None
    starts, at = [], 0
    for page in pages:
        starts.append(at)
        at += len(page) + 2
    return Extracted("\n\n".join(pages), _clean(title), tuple(starts))


def _docx(data: bytes) -> Extracted:
    with _needed("python-docx", "Word"):
        from docx import Document as WordDocument
        from docx.table import Table
    document = WordDocument(BytesIO(data))

    def parts(container: Any) -> Iterator[str]:
        for item in container.iter_inner_content():
            if isinstance(item, Table):
                # A merged cell is listed once for each place that it fills.
                rows = [list({id(c._tc): c for c in row.cells}.values()) for row in item.rows]
                yield "\n".join(" | ".join(" ".join(parts(cell)).strip() for cell in row) for row in rows)
            else:
                yield item.text

    text = "\n\n".join(part.strip() for part in parts(document) if part.strip())
    return Extracted(_lines(text), _clean(document.core_properties.title))


_EXTRACTORS: dict[str, Callable[[bytes], Extracted]] = {
    "text": _text,
    "markdown": _markdown,
    "html": _html,
    "pdf": _pdf,
    "docx": _docx,
}


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _tidy(text: str) -> str:
    text = re.sub(r"[ \t\xa0]*\n[ \t\xa0]*", "\n", _lines(text))
    return clean_text(re.sub(r"\n{3,}", "\n\n", text)).strip()


def clean_text(text: str) -> str:
    """Replace lone surrogates, which some parsers let through and no file can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _clean(title: Any) -> str:
    return clean_text(" ".join(str(title or "").split()))


@contextmanager
def _needed(package: str, purpose: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise missing_extra(package, "files", f"reading {purpose} files") from None


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keep a parser's own complaints about a file to itself: we say in one line what became of it."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
