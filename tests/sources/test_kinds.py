"""A folder with a file of every kind, made here, and what is read from each."""

import json
import mailbox
import zipfile
from email.message import EmailMessage

import pytest

from sources.made_files import docx, pdf
from sources.test_files import Reading

FILES = "needs the files extra: pip install 'weft-search[files]'"
JAPANESE = "これは日本語の文章です。赤い惑星は火星と呼ばれています。空はなぜ青いのでしょうか。"
RUSSIAN = "Марс называют красной планетой из-за ржавчины. Почему небо голубое?"
TEXTS = {
    "shift_jis": JAPANESE,
    "euc_jp": JAPANESE * 4,
    "koi8_r": RUSSIAN,
    "cp1251": RUSSIAN,
    "gb18030": "火星因其红色而被称为红色星球。天空为什么是蓝色的？这是一个常见的问题。",
    "cp1250": "Dlaczego niebo jest błękitne? Żółte źdźbło trawy, ścieżka przez łąkę i kość słoniowa.",
    "latin_1": "Über den Wolken muß die Freiheit wohl grenzenlos sein. Fuß, Öl, Ärger.",
    "cp1253": "Ο Άρης ονομάζεται κόκκινος πλανήτης. Γιατί ο ουρανός είναι μπλε;",
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_encodings(tmp_path, encoding):
    (tmp_path / "a.txt").write_bytes(TEXTS[encoding].encode(encoding))
    (tmp_path / "b.csv").write_bytes(f"id,text\n1,{TEXTS[encoding].replace(',', '')}\n".encode(encoding))
    assert set(Reading(tmp_path).texts().values()) == {TEXTS[encoding], TEXTS[encoding].replace(",", "")}


def only(reading):
    ((name, document),) = reading.documents.items()
    return document, reading.sources[name].layout()


class TestFrontMatter:
    def test_tags_and_dates_become_metadata(self, tmp_path):
        text = "---\ntitle: Foxes\ndate: 2024-05-01\ntags: [red, quick]\nweft: mine\n---\n# Heading\n\nText.\n"
        (tmp_path / "a.md").write_text(text)
        document, layout = only(Reading(tmp_path))
        assert document.text == "# Heading\n\nText.\n"
        assert layout.first_line == 7
        path = str(tmp_path / "a.md")
        assert document.metadata == {"path": path, "title": "Foxes", "date": "2024-05-01", "tags": ["red", "quick"]}

    def test_toml(self, tmp_path):
        (tmp_path / "a.md").write_text('+++\ntitle = "Foxes"\ndraft = true\n+++\nText.\n')
        document, _ = only(Reading(tmp_path))
        assert (document.text, document.metadata["draft"]) == ("Text.\n", True)

    @pytest.mark.parametrize(
        "text",
        [
            "---\n- a list\n---\nText.",
            "---\nnever: closed\n\nText.",
            "---\na: &a [x, x]\nb: [*a, *a]\n---\nText.",
            "---\na: [unbalanced\n---\nText.",
            "---\n" + "[" * 3000 + "\n---\nText.",
            "---\na: !!python/object/apply:os.getcwd []\n---\nText.",
        ],
    )
    def test_what_is_no_front_matter_stays(self, tmp_path, text):
        (tmp_path / "a.md").write_text(text)
        document, _ = only(Reading(tmp_path))
        assert document.text == text


def test_headings_of_markdown(tmp_path):
    (tmp_path / "a.md").write_text(
        "# One\n\ntext\n\n```\n# not this\n```\n\nTwo\n===\n\n## Three ##\n\n#not\n- a\n---\n"
    )
    document, layout = only(Reading(tmp_path))
    assert [title for _, title in layout.headings] == ["One", "Two", "Three"]
    assert all(document.text[start:].lstrip("# ").startswith(title) for start, title in layout.headings)


def test_word_headers_tables_and_headings(tmp_path):
    word = pytest.importorskip("docx", reason=FILES)
    docx(tmp_path / "a.docx", "The fox jumps.", table=[["a", "b"], ["c", "d"]])
    made = word.Document(str(tmp_path / "a.docx"))
    made.add_heading("On dogs", 1)
    made.add_paragraph("The dog sleeps.")
    made.sections[0].header.paragraphs[0].text = "Confidential"
    made.sections[0].footer.paragraphs[0].text = "Page of the zoo"
    made.save(str(tmp_path / "a.docx"))
    document, layout = only(Reading(tmp_path))
    body = "The fox jumps.\n\na | b\nc | d\n\nOn dogs\n\nThe dog sleeps."
    assert document.text == f"{body}\n\nConfidential\n\nPage of the zoo"
    assert layout.headings == ((body.index("On dogs"), "On dogs"),)


def test_spreadsheets(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason=FILES)
    book = openpyxl.Workbook()
    book.active.title = "Animals"
    for row in (["name", "legs"], ["fox", 4], ["bird", 2.5]):
        book.active.append(row)
    book.create_sheet("Empty")
    book.save(tmp_path / "a.xlsx")
    document, layout = only(Reading(tmp_path))
    assert document.text == "Animals\n\nname | legs\nfox | 4\nbird | 2.5"
    assert layout.headings == ((0, "Animals"),)


def message(subject, text, html=None):
    made = EmailMessage()
    made["Subject"], made["From"], made["To"] = subject, "Ada <ada@example.org>", "bob@example.org"
    made["Date"], made["Message-ID"] = "Fri, 01 May 2020 10:00:00 +0000", f"<{len(text)}@example.org>"
    if html is None:
        made.set_content(text)
    else:
        made.set_content(html, subtype="html")
    made.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="report.pdf")
    return made


def test_mail(tmp_path):
    (tmp_path / "a.eml").write_bytes(message("Füchse", "The quick fox.\n").as_bytes())
    document, _ = only(Reading(tmp_path))
    assert document.text == "Füchse\n\nThe quick fox."
    assert document.metadata["from"] == "Ada <ada@example.org>"
    assert document.metadata["date"] == "2020-05-01T10:00:00+00:00"
    assert document.metadata["attachments"] == ["report.pdf"]


def test_mail_in_html(tmp_path):
    pytest.importorskip("lxml", reason=FILES)
    (tmp_path / "a.eml").write_bytes(message("Foxes", "", "<p>The <b>quick</b> fox.</p><script>x</script>").as_bytes())
    document, _ = only(Reading(tmp_path))
    assert document.text == "Foxes\n\nThe quick fox."


def test_mailboxes(tmp_path):
    box = mailbox.mbox(tmp_path / "a.mbox")
    for number in range(3):
        box.add(message(f"Number {number}", "text " * number))
    box.close()
    reading = Reading(tmp_path)
    assert sorted(document.metadata["title"] for document in reading.documents.values()) == [
        f"Number {number}" for number in range(3)
    ]
    assert all(name.startswith(f"{tmp_path}/a.mbox:") for name in reading.documents)
    again = Reading(tmp_path)
    assert {n: s.hash for n, s in again.sources.items()} == {n: s.hash for n, s in reading.sources.items()}


def test_books(tmp_path):
    pytest.importorskip("lxml", reason=FILES)
    container = '<container xmlns="urn:x"><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
        "<dc:title>The Fox</dc:title><dc:creator>Ada</dc:creator></metadata><manifest>"
        '<item id="two" href="b%20b.xhtml"/><item id="one" href="a.xhtml"/></manifest>'
        '<spine><itemref idref="one"/><itemref idref="two"/><itemref idref="gone"/></spine></package>'
    )
    with zipfile.ZipFile(tmp_path / "a.epub", "w") as book:
        book.writestr("META-INF/container.xml", container)
        book.writestr("OEBPS/book.opf", package)
        book.writestr("OEBPS/a.xhtml", "<html><body><h1>First</h1><p>one</p></body></html>")
        book.writestr("OEBPS/b b.xhtml", "<html><body><h1>Second</h1><p>two</p></body></html>")
    document, layout = only(Reading(tmp_path))
    assert document.text == "First\n\none\n\nSecond\n\ntwo"
    assert [title for _, title in layout.headings] == ["First", "Second"]
    assert (document.metadata["title"], document.metadata["author"]) == ("The Fox", "Ada")


def test_notebooks(tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# Foxes\n", "text"]},
        {"cell_type": "code", "source": "print(1)", "outputs": [{"text": "never seen"}]},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    document, _ = only(Reading(tmp_path))
    assert (document.text, document.metadata["title"]) == ("# Foxes\ntext\n\nprint(1)", "Foxes")


def test_json_is_rows_or_text(tmp_path):
    (tmp_path / "rows.json").write_text('[{"id": 1, "text": "one"}, {"id": 2, "text": "two"}]')
    (tmp_path / "other.json").write_text('{"colour": "red"}')
    (tmp_path / "a.yaml").write_text("colour: blue\n")
    assert Reading(tmp_path).texts() == {
        "rows.json:1": "one",
        "rows.json:2": "two",
        "other.json": '{"colour": "red"}',
        "a.yaml": "colour: blue\n",
    }


def test_pdfs_keep_their_spaces_and_bookmarks(tmp_path):
    pytest.importorskip("pypdfium2", reason=FILES)
    pypdf = pytest.importorskip("pypdf", reason="writes the file")
    (tmp_path / "plain.pdf").write_bytes(pdf("The quick", "the lazy dog"))
    writer = pypdf.PdfWriter(clone_from=tmp_path / "plain.pdf")
    writer.add_outline_item(title="On dogs", page_number=1)
    writer.write(tmp_path / "a.pdf")
    (tmp_path / "plain.pdf").unlink()
    document, layout = only(Reading(tmp_path))
    assert document.text == "The quick\n\nthe lazy dog"
    assert layout.headings == ((document.text.index("the lazy"), "On dogs"),)


PYTHON = '''import os

# About f.
@decorated
def f(x):
    return "ö"

class A:
    """A class."""

    def g(self):
        return 1
'''


def test_code_is_cut_at_functions_and_classes(tmp_path):
    pytest.importorskip("tree_sitter", reason="needs the code extra: pip install 'weft-search[code]'")
    (tmp_path / "a.py").write_text(PYTHON)
    document, layout = only(Reading(tmp_path))
    assert document.text == PYTHON
    assert layout.headings == tuple(
        (PYTHON.index(text), name) for text, name in (("# About f", "f"), ("class A", "A"), ("    def g", "A.g"))
    )
    assert layout.cuts == tuple(start for start, _ in layout.headings)


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("a.go", "package a\n\n// doc\nfunc F() {}\n\nfunc (t T) M() {}\n", ["F", "M"]),
        ("a.rs", "impl A {\n    fn f() {}\n}\n\nfn g() {}\n", ["A", "A.f", "g"]),
        ("a.cpp", "namespace n {\nint f() { return 1; }\n}\ntemplate<class T>\nT h() {}\n", ["n", "n.f", "h"]),
        ("a.ts", "export function f(): number { return 1 }\nclass A {\n  m() {}\n}\n", ["f", "A", "A.m"]),
        ("a.js", "const g = () => 1;\nfunction f() {}\n", ["g", "f"]),
        ("a.java", "class A {\n  void m() {}\n}\n", ["A", "A.m"]),
        ("a.rb", "class A\n  def m\n  end\nend\n", ["A", "A.m"]),
        ("a.sh", "f() {\n  echo\n}\n", ["f"]),
        ("a.cs", "namespace N {\n  class A {\n    void M() {}\n  }\n}\n", ["N", "N.A", "N.A.M"]),
        ("a.php", "<?php\nclass A {\n  function m() {}\n}\n", ["A", "A.m"]),
        ("a.c", "int f(void) { return 1; }\n", ["f"]),
        ("a.kt", "fun f() {}\n", []),
    ],
)
def test_languages(tmp_path, name, text, names):
    pytest.importorskip("tree_sitter", reason="needs the code extra: pip install 'weft-search[code]'")
    (tmp_path / name).write_text(text)
    document, layout = only(Reading(tmp_path))
    assert document.text == text
    assert [heading for _, heading in layout.headings] == names
