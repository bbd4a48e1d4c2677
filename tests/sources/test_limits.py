"""Files made to be slow or large are read in linear time, or skipped with a reason: none takes the program with it."""

import gzip
import io
import tomllib
import zipfile
from contextlib import contextmanager

import pytest
import yaml

from sources.test_files import Reading
from weft.errors import DataError
from weft.sources import beir, code, files, records
from weft.sources.beir import objects
from weft.sources.extract import extract
from weft.sources.isolation import Reader
from weft.sources.records import Fields, read_rows

FILES = "needs the files extra: pip install 'weft-search[files]'"
MUCH = 300_000


@pytest.fixture(scope="module")
def reader():
    made = Reader(seconds=20)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("markdown", "# a" + " " * MUCH + "b"),
        ("markdown", "---\n" + "title: " + " " * MUCH + "\n"),
        ("markdown", "---\n" * MUCH),
        ("markdown", ("#" * 50 + "\n") * 20_000),
        ("markdown", "a\n" + "=" * MUCH + "b"),
        ("text", "\r" * MUCH + " x"),
        ("mail", "Subject: " + "=?utf-8?q?a?= " * MUCH + "\n\nx"),
        ("mail", "To: " + "a@b," * MUCH + "\n\nx"),
    ],
)
def test_readers_are_linear(kind, text, reader):
    """A quadratic reader takes minutes for these."""
    assert reader.read(text.encode() + b" x", kind).text


DEEP = [
    "---\na: " + "[" * 60_000 + "\n---\n",
    "---\n" + "- " * 30_000 + "\n---\n",
    "+++\n" + ".".join(["a"] * 30_000) + " = 1\n+++\n",
    "+++\n" + ".".join(['"="'] * 16_000) + " = 1\n+++\n",
]


@pytest.mark.parametrize("text", DEEP, ids=["flow", "block", "dotted", "quoted"])
def test_deep_front_matter_is_left_to_no_parser(text, monkeypatch):
    """A parser takes quadratic time for it, seconds for the 64 kB in which front matter is looked for."""
    seen, parse = [], yaml.parse

    def watched(*arguments, **options):
        for event in parse(*arguments, **options):
            seen.append(event)
            yield event

    monkeypatch.setattr(yaml, "parse", watched)
    for module, name in ((yaml, "load"), (tomllib, "loads")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("it was parsed"))
    assert extract(text.encode() + b"text", "markdown").text == text + "text"
    assert len(seen) < 1000


@pytest.mark.parametrize(
    ("front", "reason"),
    [
        ("---\na: 1" + ":1" * 5000 + "\n---\n", "an integer of thousands of digits"),
        ("+++\na = 0x1" + "0" * 5000 + "\n+++\n", "an integer of thousands of digits"),
        ("+++\na = " + "[" * 150 + "]" * 150 + "\n+++\n", "nested too deeply"),
    ],
    ids=["sexagesimal", "hexadecimal", "deep"],
)
def test_front_matter_that_no_index_can_hold_skips_its_file_alone(tmp_path, front, reason):
    (tmp_path / "a.md").write_text(front + "The fox.")
    (tmp_path / "b.md").write_text("---\nn: 7\n---\nThe dog.")
    reading = Reading(tmp_path)
    (fine,) = reading.documents.values()
    assert (fine.text, fine.metadata["n"]) == ("The dog.", 7)
    assert reading.reasons == {"a.md": reason}


def test_rows_that_no_index_can_hold_are_skipped_one_by_one(tmp_path):
    rows = [
        '{"text": "one", "a": %s}' % ("[" * 150 + "]" * 150),
        '{"text": "two", "a": %s}' % ("[" * 99 + "]" * 99),
        '{"text": "three", "a": %s}' % ("9" * 5000),
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    reading = Reading(tmp_path)
    assert list(reading.texts().values()) == ["two"]
    assert [skipped.line for skipped in reading.skipped] == [1, 3]
    assert reading.skipped[0].reason == "nested too deeply"


def test_rows_of_a_test_collection_that_no_index_can_hold(tmp_path):
    collection = tmp_path / "beir"
    (collection / "qrels").mkdir(parents=True)
    (collection / "corpus.jsonl").write_text(
        '{"_id": "a\\ud800", "text": "fine \\ud800"}\n{"_id": "b", "text": "x", "metadata": {"a": %s}}'
        % ("[" * 150 + "]" * 150)
    )
    reading = Reading(collection)
    assert reading.texts() == {"a?": "fine ?"}
    assert reading.reasons == {"corpus.jsonl": "nested too deeply"}


@pytest.mark.parametrize(
    "data",
    [b"<div>" * 220_000, b"<!--" * 500_000, b"<pre>" * 200_000 + b"x", b"<" * 2_000_000, b"<p>" + b" " * 2_000_000],
    ids=["div", "comments", "pre", "angles", "spaces"],
)
def test_html_of_the_adversary(data, reader):
    pytest.importorskip("lxml", reason=FILES)
    try:
        assert reader.read(data, "html").text
    except DataError as error:
        reason = str(error)
        assert reason in ("no text in it", "nested too deeply")


def test_a_deep_page_is_not_cut_off_in_silence(reader):
    pytest.importorskip("lxml", reason=FILES)
    deep = b"<div>a" * 1500 + b"</div>" * 1500 + b"<p>end</p>"
    assert reader.read(deep, "html").text.endswith("end")
    with pytest.raises(DataError, match="nested too deeply"):
        reader.read(b"<div>a" * 5000, "html")


def bomb(name, size):
    """A ZIP file whose one member is almost all zeros."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, b"\x00" * size)
    return packed.getvalue()


@pytest.mark.parametrize(("kind", "module"), [("docx", "docx"), ("xlsx", "openpyxl")])
def test_packed_bombs(tmp_path, kind, module):
    pytest.importorskip(module, reason=FILES)
    (tmp_path / f"a.{kind}").write_bytes(bomb("word/document.xml", 300 * 2**20))
    (tmp_path / "b.txt").write_text("fine")
    reading = Reading(tmp_path)
    assert reading.reasons == {f"a.{kind}": "larger than 256 MB when unpacked (300)"}
    assert reading.texts() == {"b.txt": "fine"}


@contextmanager
def limited(**limits):
    reader = Reader(**limits)
    try:
        yield reader
    finally:
        reader.close()


def test_memory_is_limited():
    pytest.importorskip("lxml", reason=FILES)
    with limited(memory=2**26) as reader:
        with pytest.raises(DataError, match="not readable as html"):
            reader.read(b"<p>x" * 1_000_000, "html")
        assert reader.read(b"<p>fine", "html").text == "fine"


def test_code_that_a_grammar_finds_ambiguous_is_read_as_lines(tmp_path, monkeypatch):
    """Parsing ``a<b<a<b<…`` as C++ takes thousands of bytes a byte: 800 MB for these 240 kB."""
    pytest.importorskip("tree_sitter_cpp", reason="needs the code extra: pip install 'weft-search[code]'")
    monkeypatch.setattr(files, "shared", Reader(memory=300 * 2**20))
    monkeypatch.setattr(code, "_parser", lambda language: pytest.fail("parsed in this process"))
    ambiguous, usual = "a<b<" * 60_000, "int f() {\n  return 1;\n}\n\n" * 2000
    (tmp_path / "a.cpp").write_text(ambiguous)
    (tmp_path / "b.cpp").write_text(usual)
    reading = Reading(tmp_path)
    assert reading.texts() == {"a.cpp": ambiguous, "b.cpp": usual}
    cuts = [len(source.layout().cuts) for source in reading.sources.values()]
    assert cuts == [0, 2000]


def test_time_is_limited_and_the_next_file_is_read():
    pytest.importorskip("lxml", reason=FILES)
    with limited(seconds=1) as reader:
        with pytest.raises(DataError, match="not readable as html: it takes more than 1 s"):
            reader.read(b"<h1>a</h1>" * 2_000_000, "html")
        assert reader.read(b"<p>fine", "html").text == "fine"


def test_a_process_that_was_killed_is_started_again(reader):
    reader.read(b"Subject: a\n\nb", "mail")
    reader._process.kill()
    reader._process.wait()
    assert reader.read(b"Subject: a\n\nb", "mail").title == "a"


def test_gzip_bombs(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "LONGEST", 2**20)
    with gzip.open(tmp_path / "a.jsonl.gz", "wb") as file:
        for _ in range(300):
            file.write(b"\x20" * 2**20)
    assert Reading(tmp_path).reasons == {"a.jsonl.gz": "more than 200 times its size when unpacked"}


@pytest.mark.parametrize("text", ['{"a":' * 5000 + "1" + "}" * 5000, '{"_id": 1%s}' % ("0" * 5000), "{"])
def test_rows_of_a_test_collection_that_are_no_json(tmp_path, text):
    (tmp_path / "corpus.jsonl").write_text(text)
    with pytest.raises(DataError, match="line 1: not JSON"):
        list(objects(tmp_path / "corpus.jsonl"))


def test_a_line_of_a_test_collection_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(beir, "LONGEST", 1000)
    with gzip.open(tmp_path / "corpus.jsonl.gz", "wt") as file:
        file.write(" " * 1_000_000)
    with pytest.raises(DataError, match="a line is longer than"):
        list(objects(tmp_path / "corpus.jsonl"))


def test_rows_of_many_values(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x", "v": [' + "[]," * 1_000_001 + "[]]}\n" + '{"text": "fine"}\n')
    (tmp_path / "b.json").write_text("[" + "[]," * 1_000_001 + "[]]")
    reading = Reading(tmp_path, largest=2**24)
    assert list(reading.texts().values()) == ["fine"]
    assert reading.reasons["a.jsonl"] == "more than 1,000,000 values"
    assert reading.reasons["b.json"].startswith("more than 1,000,000 values")


def test_a_notebook_with_half_a_surrogate_pair():
    """Found by fuzzing: JSON can name it, and no database can hold it."""
    data = b'{"cells": [{"cell_type": "markdown", "source": "# A \\ud800\\nThe fox."}]}'
    found = extract(data, "notebook")
    assert found.text == "# A ?\nThe fox."
    assert found.headings == ((0, "A ?"),)
    assert found.title == "A ?"


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_a_table_that_ends_in_half_a_character(tmp_path, kind):
    """Found by fuzzing: a mark of UTF-16 and an odd number of bytes raised an error of Python's own."""
    path = tmp_path / f"rows.{kind}"
    path.write_bytes(b"\xff\xfei")
    with pytest.raises(DataError, match="not readable as utf-16"):
        list(read_rows(path, kind, Fields()))


def test_a_byte_that_an_encoding_does_not_have(tmp_path):
    """Found by fuzzing: the other characters of its cell were decoded twice."""
    path = tmp_path / "rows.tsv"
    path.write_bytes("id\ttext\na\tcafé € 3".encode("cp1252") + b"\x90" + "\nb\tnaïve\n".encode("cp1252"))
    assert [row.fields["text"] for row in read_rows(path, "tsv", Fields())] == ["café € 3\ufffd", "naïve"]
