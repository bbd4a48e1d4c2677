"""Every kind of file in, and every way in which a file can be bad."""

import datetime
import gzip
import io
import json
import os
import shutil
import sys

import pytest

from sources.made_files import HTML, docx, pdf
from weft.errors import DataError, MissingExtraError
from weft.ingest.passages import place_of
from weft.sources.files import read_sources
from weft.sources.find import Selection, Skipped, find, is_under
from weft.sources.records import Fields
from weft.types import Document


class Reading:
    """What came of some paths: documents by id, and what was left out."""

    def __init__(self, *paths, fields=None, stdin=None, largest=2**20, **selection):
        self.skipped = []
        found = find(paths, Selection(**selection), self.skipped.append)
        self.sources, self.documents = {}, {}
        for source in read_sources(
            found,
            fields or Fields(),
            self.skipped.append,
            stdin=None if stdin is None else io.BytesIO(stdin),
            largest=largest,
        ):
            self.sources[source.id] = source
            try:
                self.documents[source.id] = source.read()
            except (DataError, MissingExtraError) as error:
                self.skipped.append(Skipped(source.origin, str(error), True))

    @property
    def reasons(self):
        return {os.path.basename(path): reason for path, reason, *_ in self.skipped}

    def texts(self):
        return {os.path.basename(name): document.text for name, document in self.documents.items()}


class TestTexts:
    def test_encodings(self, tmp_path):
        for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
            (tmp_path / f"{encoding}.txt").write_bytes("naïve “café”\r\nnext".encode(encoding))
        assert set(Reading(tmp_path).texts().values()) == {"naïve “café”\nnext"}

    @pytest.mark.parametrize(
        ("text", "title"),
        [
            ("Some words.\n\n# The fox #\n\n## Not this", "The fox"),
            ("---\ndate: 2020\ntitle: 'A fox'\n---\n# Other", "A fox"),
            ("The fox\n=======\n\nwords", "The fox"),
            ("no heading", None),
        ],
    )
    def test_markdown_titles(self, tmp_path, text, title):
        (tmp_path / "a.md").write_text(text)
        (document,) = Reading(tmp_path).documents.values()
        assert document.metadata.get("title") == title
        assert document.text == text.removeprefix("---\ndate: 2020\ntitle: 'A fox'\n---\n")

    def test_html(self, tmp_path):
        pytest.importorskip("lxml", reason="needs the files extra: pip install 'weft-search[files]'")
        (tmp_path / "a.html").write_text(HTML)
        (document,) = Reading(tmp_path).documents.values()
        assert document.metadata["title"] == "The fox"
        assert document.text == "Foxes\n\nThe quicker fox\njumps.\n\none\ntwo\n\na b\n\nx  =  1"

    def test_pdf(self, tmp_path):
        pytest.importorskip("pypdf", reason="writes the file")
        pytest.importorskip("pypdfium2", reason="needs the files extra: pip install 'weft-search[files]'")
        (tmp_path / "a.pdf").write_bytes(pdf("The quick fox\njumps over", "the lazy dog", title="Foxes"))
        reading = Reading(tmp_path)
        ((name, document),) = reading.documents.items()
        assert document.text == "The quick fox\njumps over\n\nthe lazy dog"
        assert document.metadata["title"] == "Foxes"
        layout = reading.sources[name].layout()
        places = [document.text.index(word) for word in ("quick", "over", "lazy")]
        assert [place_of(Document("", "", {"start": start}), layout, True)["page"] for start in places] == [1, 1, 2]

    def test_bad_pdfs(self, tmp_path):
        pytest.importorskip("pypdf", reason="writes the file")
        pytest.importorskip("pypdfium2", reason="needs the files extra: pip install 'weft-search[files]'")
        (tmp_path / "secret.pdf").write_bytes(pdf("hidden", password="x"))
        (tmp_path / "scan.pdf").write_bytes(pdf(""))
        (tmp_path / "torn.pdf").write_bytes(pdf("The quick fox")[:200])
        reading = Reading(tmp_path)
        assert not reading.documents
        assert reading.reasons["scan.pdf"] == "no text in it (a scan?)"
        assert reading.reasons["secret.pdf"] == "encrypted"
        assert reading.reasons["torn.pdf"].startswith("not readable as pdf: ")

    def test_docx(self, tmp_path):
        pytest.importorskip("docx", reason="needs the files extra: pip install 'weft-search[files]'")
        docx(tmp_path / "a.docx", "The fox", "jumps.", title="Foxes", table=[["a", "b"], ["c", "d"]])
        (tmp_path / "bad.docx").write_bytes(b"PK\x03\x04 not really")
        reading = Reading(tmp_path)
        (document,) = reading.documents.values()
        assert document.text == "The fox\n\njumps.\n\na | b\nc | d"
        assert document.metadata["title"] == "Foxes"
        assert reading.reasons["bad.docx"].startswith("not readable as docx: ")

    @pytest.mark.parametrize(
        ("name", "module", "package"),
        [
            ("a.pdf", "pypdfium2", "pypdfium2"),
            ("a.docx", "docx", "python-docx"),
            ("a.html", "lxml", "lxml"),
            ("a.parquet", "pyarrow.parquet", "pyarrow"),
        ],
    )
    def test_missing_parsers_name_the_extra(self, tmp_path, monkeypatch, name, module, package):
        monkeypatch.setitem(sys.modules, module, None)
        (tmp_path / name).write_bytes(b"x")
        (tmp_path / "b.txt").write_text("fine")
        reading = Reading(tmp_path)
        assert reading.reasons[name].endswith(
            f"needs {package}, which is not installed: pip install 'weft-search[files]'"
        )
        assert reading.texts() == {"b.txt": "fine"}


class TestFolders:
    def test_what_is_left_out_and_why(self, tmp_path):
        (tmp_path / "good.txt").write_text("fine")
        (tmp_path / "empty.txt").touch()
        (tmp_path / "blank.txt").write_text(" \n\t\n")
        (tmp_path / "binary.txt").write_bytes(bytes(range(256)))
        (tmp_path / "control.txt").write_bytes(b"\x01\x02\x03\x04 some")
        (tmp_path / "huge.txt").write_text("x" * 2000)
        (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8")
        (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
        (tmp_path / ".hidden.txt").write_text("hidden")
        os.mkfifo(tmp_path / "pipe.txt")
        (tmp_path / "loop").symlink_to(tmp_path)
        (tmp_path / "index.weft").mkdir()
        (tmp_path / "index.weft" / "catalogue.sqlite").touch()
        (tmp_path / "index.weft" / "a.txt").write_text("of an index")
        reading = Reading(tmp_path, largest=1000)
        assert reading.texts() == {"good.txt": "fine"}
        assert reading.reasons == {
            "empty.txt": "empty",
            "blank.txt": "no text in it",
            "binary.txt": "binary, not text",
            "control.txt": "binary, not text",
            "huge.txt": "larger than 0 MB (0)",
            "photo.jpg": "of no known kind (.jpg)",
            "gone.txt": "a link to nowhere",
            "pipe.txt": "not a regular file",
        }

    def test_names_that_are_not_unicode(self, tmp_path):
        with open(os.fsencode(tmp_path) + b"/bad\xff.txt", "wb") as file:
            file.write(b"text")
        (skipped,) = Reading(tmp_path).skipped
        assert skipped.reason == "its name is not valid Unicode"
        skipped.path.encode()

    def test_unreadable(self, tmp_path, monkeypatch):
        # Root may read everything, so the system's refusal is played.
        (tmp_path / "a.txt").write_text("secret")

        def refuse(self):
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
        assert Reading(tmp_path).skipped == [(str(tmp_path / "a.txt"), "Permission denied", True, None)]

    def test_a_folder_that_cannot_be_entered(self, tmp_path, monkeypatch):
        (tmp_path / "closed").mkdir()
        (tmp_path / "closed" / "a.txt").write_text("x")
        real = type(tmp_path).is_file

        def is_file(self):
            if self.parent.name == "closed":
                raise PermissionError(13, "Permission denied", str(self))
            return real(self)

        monkeypatch.setattr(type(tmp_path), "is_file", is_file)
        reading = Reading(tmp_path)
        assert reading.skipped == [(str(tmp_path / "closed"), "cannot be read: Permission denied", True, None)]

    def test_patterns(self, tmp_path):
        for name in ("a.md", "b.txt", "drafts/c.md", "sub/drafts.md", "sub/deep/d.md", "e.py"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(name)
        assert set(Reading(tmp_path, include=("*.md", "*.py")).texts()) == {"a.md", "c.md", "drafts.md", "d.md", "e.py"}
        assert set(Reading(tmp_path, exclude=("drafts", "*.txt")).texts()) == {"a.md", "drafts.md", "d.md", "e.py"}
        assert set(Reading(tmp_path, exclude=("sub/deep",)).texts()) == {"a.md", "b.txt", "c.md", "drafts.md", "e.py"}

    def test_ids_are_paths_as_given(self, tmp_path, monkeypatch):
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "a.txt").write_text("x")
        monkeypatch.chdir(tmp_path)
        assert list(Reading("docs/", "./docs/a.txt").documents) == ["docs/a.txt"]
        assert list(Reading(".").documents) == ["docs/a.txt"]
        assert is_under("docs/a.txt", ".")

    def test_nothing_there(self, tmp_path):
        with pytest.raises(DataError, match="no such file or folder"):
            Reading(tmp_path / "nothing")

    def test_hash_tells_changes(self, tmp_path):
        path = tmp_path / "a.txt"
        path.write_text("one")
        first = Reading(path).sources[str(path)].hash
        os.utime(path, (0, 0))
        assert Reading(path).sources[str(path)].hash == first
        path.write_text("two")
        assert Reading(path).sources[str(path)].hash != first


class TestRecords:
    def test_json_lines(self, tmp_path):
        rows = [
            b'\xef\xbb\xbf{"_id": 7, "text": "one", "title": "T", "year": 2020, "tags": ["a"]}',
            b"",
            b"not json",
            b"[1]",
            b'{"text": ""}',
            '{"text": "café"}'.encode("cp1252"),
            b'{"id": "x", "title": "alone", "text": null, "metadata": {"lang": "en"}}',
        ]
        path = tmp_path / "a.jsonl"
        path.write_bytes(b"\n".join(rows))
        reading = Reading(path)
        assert reading.documents[f"{path}:7"].text == "T\none"
        assert reading.documents[f"{path}:7"].metadata == {"path": str(path), "title": "T", "year": 2020, "tags": ["a"]}
        assert reading.documents[f"{path}:6"].text == "café"
        assert reading.documents[f"{path}:x"].metadata["lang"] == "en"
        assert [str(skipped) for skipped in reading.skipped] == [
            f"{path}, line 3: not JSON (Expecting value)",
            f"{path}, line 4: expected an object, got list",
            f"{path}, line 5: no text in it",
        ]

    def test_odd_values(self, tmp_path):
        rows = [
            '{"id": "\\ud800", "text": "lone \\ud800 and \\u0000", "k\\ud800": NaN, "big": 1e999}',
            '{"id": "deep", "text": "x", "inner": ' + "[" * 5000 + "]" * 5000 + "}",
            '{"id": "digits", "text": "x", "n": ' + "9" * 5000 + "}",
            '{"id": "list", "text": ["x"]}',
        ]
        (tmp_path / "a.jsonl").write_text("\n".join(rows))
        reading = Reading(tmp_path)
        (document,) = reading.documents.values()
        assert document.id == f"{tmp_path}/a.jsonl:?"
        assert document.text == "lone ? and \0"
        json.dumps(document.metadata, allow_nan=False).encode()
        assert [skipped.line for skipped in reading.skipped] == [2, 3, 4]
        assert "the field 'text' is not text" in reading.skipped[-1].reason

    def test_gzip(self, tmp_path):
        with gzip.open(tmp_path / "a.jsonl.gz", "wb") as file:
            file.write(b'{"id": "z", "text": "packed"}\n')
        (tmp_path / "b.jsonl.gz").write_bytes((tmp_path / "a.jsonl.gz").read_bytes()[:-9])
        reading = Reading(tmp_path)
        assert reading.documents[f"{tmp_path}/a.jsonl.gz:z"].text == "packed"
        assert "gzip" in reading.reasons["b.jsonl.gz"]

    def test_csv(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_bytes(
            'id,text,year,price,zip,note\n1,"a, b\nc",2020,1.5,007,caf\u00e9\n2,d,,,,\n3,e,1,2,3,4,5\n'.encode()
        )
        reading = Reading(path)
        assert reading.documents[f"{path}:1"].text == "a, b\nc"
        assert reading.documents[f"{path}:1"].metadata == {
            "path": str(path),
            "year": 2020,
            "price": 1.5,
            "zip": "007",
            "note": "café",
        }
        assert reading.skipped[0].reason == "7 cells under 6 names"

    def test_csv_of_spreadsheets(self, tmp_path):
        (tmp_path / "a.csv").write_bytes("id;text\n1;naïve, yes\n".encode("cp1252"))
        (tmp_path / "b.csv").write_bytes("id,text\n2,naïve\n".encode("utf-16"))
        documents = Reading(tmp_path).documents
        assert (documents[f"{tmp_path}/a.csv:1"].text, documents[f"{tmp_path}/b.csv:2"].text) == ("naïve, yes", "naïve")

    def test_tsv_without_header(self, tmp_path):
        (tmp_path / "a.tsv").write_text('d1\t"quoted or not\nd2\tplain\n')
        reading = Reading(tmp_path, fields=Fields(id="1", text="2"))
        assert {name: d.text for name, d in reading.documents.items()} == {
            f"{tmp_path}/a.tsv:d1": '"quoted or not',
            f"{tmp_path}/a.tsv:d2": "plain",
        }

    def test_parquet(self, tmp_path):
        pyarrow = pytest.importorskip("pyarrow", reason="needs the files extra: pip install 'weft-search[files]'")
        parquet = pytest.importorskip("pyarrow.parquet")
        day = datetime.date(2020, 5, 1)
        table = {"id": [1, 2], "content": ["one", "two"], "when": [day, None], "score": [float("nan"), 2.5]}
        parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
        (tmp_path / "b.parquet").write_bytes(b"PAR1 no")
        reading = Reading(tmp_path)
        assert reading.documents[f"{tmp_path}/a.parquet:1"].text == "one"
        assert reading.documents[f"{tmp_path}/a.parquet:1"].metadata["when"] == "2020-05-01"
        assert reading.documents[f"{tmp_path}/a.parquet:1"].metadata["score"] is None
        assert reading.reasons["b.parquet"].startswith("not readable as Parquet: ")
        json.dumps(reading.documents[f"{tmp_path}/a.parquet:2"].metadata, allow_nan=False)
        few = Reading(tmp_path / "a.parquet", fields=Fields(metadata=("score",))).documents[f"{tmp_path}/a.parquet:2"]
        assert set(few.metadata) == {"path", "score"}

    def test_fields(self, tmp_path):
        (tmp_path / "a.csv").write_text("key,words,head,year\nk,some,H,1\n")
        wanted = Fields(id="key", text="words", title="head", metadata=("year",))
        assert Reading(tmp_path, fields=wanted).documents[f"{tmp_path}/a.csv:k"].text == "H\nsome"
        line = "no text field among key, words, head, year: name it with --text-field"
        assert Reading(tmp_path).reasons == {"a.csv": line}
        (skipped,) = Reading(tmp_path, fields=Fields(text="nope")).skipped
        assert "no field 'nope', which --text-field names" in skipped.reason

    def test_beir(self, beir_folder, tmp_path):
        folder = tmp_path / "collection"
        shutil.copytree(beir_folder, folder)
        (folder / "SOURCE.txt").write_text("where it comes from, which is no document of it")
        reading = Reading(folder)
        assert reading.documents["d0"].text == "red the cat . red cat , stone"
        assert len(reading.documents) == 63
        assert not reading.skipped
        assert all(source.whole for source in reading.sources.values())

    def test_stdin(self):
        lines = Reading("-", stdin=b"one fox\n\ntwo dogs\none fox\n")
        assert [d.text for d in lines.documents.values()] == ["one fox", "two dogs"]
        rows = Reading("-", stdin=b'{"id": "a", "text": "one"}\n{"id": "b", "text": "two"}\nthree')
        assert {name: d.text for name, d in rows.documents.items()} == {"a": "one", "b": "two"}
        assert rows.skipped[0].reason.startswith("not JSON")
        assert not Reading("-", stdin=b"").documents
