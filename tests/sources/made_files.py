"""Real small files of each kind."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path


def pdf(*pages: str, title: str = "", password: str = "") -> bytes:
    """Lines of text in Helvetica; the content streams are written by hand, the file by pypdf."""
    from pypdf import PdfWriter
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = PdfWriter()
    font = DictionaryObject()
    for key, value in (("/Type", "/Font"), ("/Subtype", "/Type1"), ("/BaseFont", "/Helvetica")):
        font[NameObject(key)] = NameObject(value)
    for text in pages:
        page = writer.add_blank_page(300, 300)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        stream = DecodedStreamObject()
        lines = " ".join(f"({line}) Tj 0 -14 Td" for line in text.split("\n"))
        stream.set_data(f"BT /F1 12 Tf 20 250 Td {lines} ET".encode())
        page[NameObject("/Contents")] = writer._add_object(stream)
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password)
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


def docx(path: Path, *paragraphs: str, title: str = "", table: list[list[str]] | None = None) -> None:
    from docx import Document

    document = Document()
    document.core_properties.title = title
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    if table:
        made = document.add_table(len(table), len(table[0]))
        for row, cells in zip(made.rows, table, strict=True):
            for cell, text in zip(row.cells, cells, strict=True):
                cell.text = text
    document.save(str(path))


HTML = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>The  fox
</title><style>p { color: red }</style><body><script>var hidden = 1;</script>
<h1>Foxes</h1><p>The <b>quick</b>er fox<br>jumps.</p><!-- never seen --><ul><li>one</li><li>two</li></ul>
<table><tr><td>a</td><td>b</td></tr></table><pre>x  =  1</pre></html>"""
