"""HTML and EPUB, in one pass over the parsed tree."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile

from weft.errors import DataError
from weft.sources.decoding import decode
from weft.sources.extracted import Builder, Extracted, one_line, tidy

_HIDDEN = {"script", "style", "template", "noscript", "svg", "title", "head"}
_BLOCKS = {
    *("address", "article", "aside", "blockquote", "body", "caption", "div", "dl", "fieldset", "figcaption", "figure"),
    *("footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "nav", "ol", "p", "pre", "section"),
    *("table", "ul"),
}
_LINES = {"br", "tr", "li", "dt", "dd", "option"}
_CELLS = {"td", "th"}
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_DECLARED = re.compile(rb"<(?:meta|\?xml)[^>]{0,200}?(?:charset|encoding)\s{0,8}=\s{0,8}[\"']?([\w.:-]{1,40})", re.I)


def html(data: bytes) -> Extracted:
    """Read a page: its text as a browser breaks the lines, its headings, its title."""
    from lxml import etree

    options = {"remove_comments": True, "remove_pis": True, "no_network": True, "huge_tree": True}
    parser = etree.HTMLParser(encoding="utf-8", recover=True, **options)
    text = _utf8(data)
    root = etree.fromstring(text, parser) if text.strip() else None
    if any("depth" in entry.message for entry in parser.error_log):  # the rest of the page was not read
        raise DataError("nested too deeply")
    return Extracted("") if root is None else _read(root)


def _utf8(data: bytes) -> bytes:
    """Return a page as UTF-8: by its mark or its own word, else as any other text."""
    found = _DECLARED.search(data, 0, 4096)
    if found and not data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        name = found[1].decode().lower()
        try:
            # Browsers read what calls itself Latin-1 as Windows-1252.
            return data.decode("cp1252" if name in ("iso-8859-1", "latin1", "ascii", "us-ascii") else name).encode()
        except (LookupError, UnicodeError):  # it says what it is not
            pass
    return decode(data).encode("utf-8", "replace")


def _read(root: Any) -> Extracted:
    from lxml import etree

    parts: list[str] = []
    headings: list[tuple[int, int]] = []  # parts from, to
    title = ""
    hidden = verbatim = 0
    for event, element in etree.iterwalk(root, events=("start", "end")):
        tag = element.tag if isinstance(element.tag, str) else ""
        if event == "start":
            if tag == "title" and not title:
                title = one_line("".join(element.itertext()))
            hidden += tag in _HIDDEN
            verbatim += tag == "pre"
            if tag in _BLOCKS:
                parts.append("\n\n")
            elif tag in _LINES:
                parts.append("\n")
            if tag in _HEADINGS:
                headings.append((len(parts), len(parts)))
            text = element.text
        else:
            hidden -= tag in _HIDDEN
            verbatim -= tag == "pre"
            if tag in _HEADINGS and headings:
                headings[-1] = (headings[-1][0], len(parts))
            if tag in _BLOCKS:
                parts.append("\n\n")
            elif tag in _CELLS:
                parts.append(" ")
            text = element.tail
        if text and not hidden:
            parts.append(text if verbatim else re.sub(r"\s+", " ", text))
    return _assembled(parts, headings, title)


def _assembled(parts: list[str], headings: list[tuple[int, int]], title: str) -> Extracted:
    """Tidy the text, and find its headings again in the tidied one: they are lines of it, in order."""
    text = tidy("".join(parts))
    places, at = [], 0
    for start, stop in headings:
        named = one_line("".join(parts[start:stop]))
        first = tidy("".join(parts[start:stop])).partition("\n")[0]
        found = text.find(first, at) if first else -1
        if found >= 0:
            places.append((found, named))
            at = found + len(first)
    return Extracted(text, title, headings=tuple(places))


def epub(data: bytes) -> Extracted:
    """Read a book: the pages of its spine, in order."""
    from lxml import etree

    strict = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    with ZipFile(BytesIO(data)) as book:
        container = etree.fromstring(book.read("META-INF/container.xml"), strict)
        (rootfile, *_) = container.iter("{*}rootfile")
        place = rootfile.get("full-path", "")
        package = etree.fromstring(book.read(place), strict)
        items = {item.get("id"): item.get("href", "") for item in package.iter("{*}item")}
        made, headings = Builder(), list[tuple[int, str]]()
        for page in _spine(package):
            name = posixpath.normpath(posixpath.join(posixpath.dirname(place), unquote(items.get(page, ""))))
            if name not in book.namelist():
                continue
            found = html(book.read(name))
            start = made.add(found.text)
            headings += [(start + at, heading) for at, heading in found.headings]
        if not headings and not made.text:
            raise DataError("no text in it")
        known = {key: _first(package, key) for key in ("title", "creator", "language", "date")}
    metadata = {{"creator": "author"}.get(key, key): value for key, value in known.items() if value and key != "title"}
    return Extracted(made.text, known["title"], headings=tuple(headings), metadata=metadata)


def _spine(package: Any) -> Iterator[str]:
    return (item.get("idref", "") for item in package.iter("{*}itemref"))


def _first(package: Any, name: str) -> str:
    return next((one_line(element.text) for element in package.iter(f"{{*}}{name}") if element.text), "")
