"""PDF, Word and Excel files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any
from zipfile import ZipFile

from weft.errors import DataError
from weft.sources.extracted import Builder, Extracted, one_line, tidy, unix_lines

UNPACKED = 256 * 2**20
"""The maximum size in bytes of a packed file (Word, Excel, EPUB) when it is unpacked."""
_HYPHEN = re.compile("[\x02\u00ad\ufffe]\r?\n")  # how PDFium writes the end of a line inside a word


def refuse_bombs(data: bytes) -> None:
    """Refuse a ZIP file that is small only because it is packed."""
    with ZipFile(BytesIO(data)) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > UNPACKED:
        raise DataError(f"larger than {UNPACKED // 2**20} MB when unpacked ({unpacked / 2**20:,.0f})")


def pdf(data: bytes) -> Extracted:
    """Read the pages of a PDF; its bookmarks are headings."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise DataError("encrypted") from None
        raise
    try:
        pages = [tidy(_HYPHEN.sub("", page.get_textpage().get_text_range())) for page in document]
        title = document.get_metadata_dict(skip_empty=True).get("Title")
        marks = [(mark.get_dest().get_index(), mark.get_title()) for mark in document.get_toc() if mark.get_dest()]
    finally:
        document.close()
    starts, at = [], 0
    for page in pages:
        starts.append(at)
        at += len(page) + 2
    headings = sorted((starts[i], one_line(name)) for i, name in marks if i is not None and 0 <= i < len(starts))
    return Extracted("\n\n".join(pages), one_line(title), tuple(starts), tuple(headings))


def docx(data: bytes) -> Extracted:
    """Read a Word file: paragraphs and tables in their order, then what its page headers and footers say."""
    refuse_bombs(data)
    from docx import Document as WordDocument

    document = WordDocument(BytesIO(data))
    made = Builder()
    for part, heading in _parts(document):
        made.add(part.strip(), heading)
    margins = [margin for section in document.sections for margin in (section.header, section.footer)]
    for text in dict.fromkeys(
        "\n".join(part for part, _ in _parts(m)).strip() for m in margins if not m.is_linked_to_previous
    ):
        made.add(text)
    known = document.core_properties
    metadata = {"author": one_line(known.author)} if known.author and known.author != "python-docx" else {}
    return Extracted(unix_lines(made.text), one_line(known.title), headings=tuple(made.headings), metadata=metadata)


def _parts(container: Any) -> Iterator[tuple[str, bool]]:
    """Yield each paragraph or table, and whether it is a heading."""
    from docx.table import Table

    for item in container.iter_inner_content():
        if isinstance(item, Table):
            # A merged cell is listed once for each place that it fills.
            rows = [list({id(c._tc): c for c in row.cells}.values()) for row in item.rows]
            cells = ([" ".join(part for part, _ in _parts(cell)).strip() for cell in row] for row in rows)
            yield "\n".join(" | ".join(row) for row in cells), False
        else:
            style = item.style.name if item.style is not None else ""
            yield item.text, bool(style and style.startswith(("Heading", "Title")))


def xlsx(data: bytes) -> Extracted:
    """Read a workbook: its sheets one after another, a line for each row, the name of a sheet as heading."""
    refuse_bombs(data)
    from openpyxl import load_workbook

    book = load_workbook(BytesIO(data), read_only=True, data_only=True)
    made, total = Builder(), 0
    try:
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # what it says about its size need not be true
            rows = []
            for row in sheet.iter_rows(values_only=True):
                cells = [one_line(_cell(value), 10_000) for value in row if value is not None]
                if any(cells):
                    rows.append(" | ".join(cells))
                    total += len(rows[-1])
                if total > UNPACKED:
                    raise DataError(f"larger than {UNPACKED // 2**20} MB when unpacked")
            if rows:
                made.add(sheet.title, heading=True)
                made.add("\n".join(rows))
        title = one_line(book.properties.title)
    finally:
        book.close()
    return Extracted(made.text, title, headings=tuple(made.headings))


def _cell(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value.isoformat() if hasattr(value, "isoformat") else value)
