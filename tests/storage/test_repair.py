"""Damage: the rest goes on when asked, and `repair` keeps all that can be read and says what is gone."""

import json
import sqlite3

import numpy as np
import pytest

from storage import crafted
from weft import Document, Index, TokenVectors
from weft.cli.main import main
from weft.errors import CorruptIndexError, InvalidParameterError
from weft.search.lexical import search_lexical
from weft.storage import merger
from weft.storage.arrays import Arrays
from weft.storage.check import check
from weft.storage.repair import repair

DIM = crafted.DIM


def part(start, stop):
    return crafted.corpus()[start:stop]


@pytest.fixture
def path(tmp_path):
    """Two segments: a few documents, and many."""
    path = tmp_path / "i.weft"
    with Index.create(path, DIM, merge="off") as index:
        index.add([Document(f"d{n}", f"text {n}", {"n": n}) for n in range(10)], part(0, 10))
        index.add([Document(f"d{n}", f"text {n}", {"n": n}) for n in range(10, 80)], part(10, 80))
    return path


def files(path):
    with Index.open(path) as index, index.view() as view:
        return [s.segment.path for s in view.segments]


def flip(file, at):
    data = bytearray(file.read_bytes())
    data[at] ^= 16
    file.write_bytes(data)


def place_of(file, name, row=0):
    with Arrays(file) as stored:
        _, shape, start, nbytes = stored._places[name]
    return start + row * (nbytes // shape[0])


class TestSkip:
    def test_a_search_goes_on_without_a_damaged_segment(self, path):
        small, _ = files(path)
        flip(small, place_of(small, "values", 3))
        with Index.open(path) as index, pytest.raises(CorruptIndexError):
            index.search(crafted.query(), 5)
        with Index.open(path, on_damage="skip") as index:
            (found,) = index.search(crafted.query(), 80, exact=True)
            assert set(found.ids) == {f"d{n}" for n in range(10, 80)}
            assert (found.missing, found.certified, found.margin) == (10, False, None)
            assert index.damaged == (small.name,)
            assert index.get("d3").text == "text 3"
            with pytest.raises(CorruptIndexError, match="document 'd3' is in no segment that can be read"):
                index.vectors("d3")
            index.add(["new"], part(0, 1))
            index.delete([f"d{n}" for n in range(10)])
            index.compact()  # of what can be read
            assert len(index.search(crafted.query(), 80)[0]) == 71

    def test_a_segment_that_is_gone(self, path):
        small, _ = files(path)
        small.unlink()
        with Index.open(path, on_damage="skip") as index:
            assert index.search(crafted.query(), 5)[0].missing == 10

    def test_a_sound_index_misses_nothing(self, path):
        with Index.open(path, on_damage="skip") as index:
            (found,) = index.search(crafted.query(), 80, exact=True)
            assert (found.missing, found.certified, len(found), index.damaged) == (0, True, 80, ())

    def test_other_words_are_refused(self, path):
        with pytest.raises(InvalidParameterError, match="on_damage"):
            Index.open(path, on_damage="ignore")


class TestSegments:
    def test_sound_ones_are_left_alone(self, path):
        before = {file: file.read_bytes() for file in files(path)}
        assert not repair(path)
        assert {file: file.read_bytes() for file in files(path)} == before
        assert not (path / "quarantine").exists()

    @pytest.mark.parametrize("coded", [False, True])
    @pytest.mark.parametrize("bits", [8, 4])
    def test_only_documents_whose_bytes_are_damaged_are_lost(self, tmp_path, monkeypatch, coded, bits):
        # Blocks of 64 KB are summed together: here one, of several, in a segment of a few hundred documents.
        monkeypatch.setattr(merger, "CODED_TOKENS", 1000 if coded else 1 << 40)
        path = tmp_path / "big.weft"
        rng = np.random.default_rng(0)
        values = rng.standard_normal((400, 40, 64)).astype(np.float32)
        with Index.create(path, 64, bits=bits, merge="off") as index:
            index.add([Document(f"d{n}", f"text {n}") for n in range(400)], TokenVectors.from_list(list(values)))
            index.delete(["d399", "d0"])
            before = {f"d{n}": index.vectors(f"d{n}").values for n in range(1, 399)}
        (file,) = files(path)
        flip(file, place_of(file, "codes" if coded else "values", 200 * 40))
        done = repair(path)
        assert (path / "quarantine" / file.name).exists()
        assert done.segments == (file.name,)
        assert "d200" in done.lost
        assert len(done.lost) < 150
        assert [
            json.loads(line)["id"] for line in (path / "quarantine" / "lost.jsonl").read_text().splitlines()
        ] == sorted(done.lost, key=lambda name: int(name[1:]))
        with Index.open(path) as index:
            assert check(index).problems == ()
            assert len(index) == 398 - len(done.lost)
            assert index.info()["deleted"] == 0
            for name in set(before) - set(done.lost):
                error = np.abs(index.vectors(name).values - before[name]).max()
                assert error <= (0 if not coded else 1.0 if bits == 4 else 0.1)
            index.add(["d200"], TokenVectors.from_list([values[200]]))
            assert index.search(values[200], 1, exact=True)[0].ids == ("d200",)
        assert not repair(path)

    @pytest.mark.parametrize("how", ["header", "offsets", "gone", "empty"])
    def test_of_a_segment_that_cannot_be_opened_all_is_lost(self, path, how):
        small, _ = files(path)
        if how == "header":
            flip(small, 30)
        elif how == "offsets":
            flip(small, place_of(small, "offsets", 2))
        elif how == "gone":
            small.unlink()
        else:
            small.write_bytes(b"")
        done = repair(path)
        assert done.lost == tuple(f"d{n}" for n in range(10))
        with Index.open(path) as index:
            assert check(index).sound
            assert len(index.search(crafted.query(), 80, exact=True)[0]) == 70
            assert search_lexical(index, "7").ids == ()
            index.add(["d3"], part(3, 4))
            index.compact()
            assert len(index) == 71

    def test_deleting_and_compacting_an_index_that_was_repaired(self, path):
        small, _ = files(path)
        flip(small, place_of(small, "values", 0))
        repair(path)
        with Index.open(path) as index:
            index.delete("d77")
            index.compact()
            assert check(index).sound


class TestCatalogue:
    def change(self, path, *statements):
        with sqlite3.connect(path / "catalogue.sqlite") as db:
            for statement in statements:
                db.execute(statement)
        db.close()

    def test_rows_that_are_not_as_written(self, path):
        self.change(path, "UPDATE documents SET metadata = '{\"n\":41}' WHERE id = 'd40'")
        with Index.open(path) as index:
            assert "checksum of document 'd40'" in check(index).problems[0]
        assert repair(path).lost == ("d40",)
        with Index.open(path) as index:
            assert check(index).sound
            assert len(index) == 79
            assert search_lexical(index, "text").ids.count("d40") == 0

    def test_documents_that_are_there_and_deleted(self, path):
        self.change(path, "INSERT INTO tombstones (doc) VALUES (5)")
        assert "1 documents were both there and deleted" in " ".join(repair(path).notes)
        with Index.open(path) as index:
            assert check(index).sound
            assert len(index) == 80

    def test_entries_of_no_document(self, path):
        with sqlite3.connect(path / "catalogue.sqlite") as db:
            (trigger,) = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'lexical_delete'").fetchone()
        db.close()
        self.change(path, "DROP TRIGGER lexical_delete", "DELETE FROM documents WHERE doc = 6", trigger)
        with Index.open(path) as index, pytest.raises(CorruptIndexError, match="is not in the catalogue"):
            index.search(crafted.query(), 80, exact=True)
        assert "1 entries of segments belonged to no document" in " ".join(repair(path).notes)
        with Index.open(path) as index:
            assert check(index).sound
            assert len(index.search(crafted.query(), 80, exact=True)[0]) == 79

    def test_a_lexical_index_that_does_not_fit(self, path):
        self.change(path, "DELETE FROM lexical_docsize WHERE id = 3")
        with Index.open(path) as index:
            assert not check(index).sound
        assert "lexical index was rebuilt" in " ".join(repair(path).notes)
        with Index.open(path) as index:
            assert check(index).sound
            assert len(search_lexical(index, "text", 100).ids) == 80


def test_the_command(path, capsys):
    assert main(["repair", str(path)]) == 0
    assert "nothing to repair" in capsys.readouterr().err
    small, _ = files(path)
    small.unlink()
    assert main(["check", str(path)]) == 1
    capsys.readouterr()
    assert main(["repair", str(path)]) == 0
    printed = capsys.readouterr()
    assert printed.out.split() == [f"d{n}" for n in range(10)]
    assert "10 passages lost" in printed.err
    assert main(["check", str(path)]) == 0
    small = files(path)[0]
    small.unlink()
    capsys.readouterr()
    assert main(["repair", str(path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["lost"]) == 70
