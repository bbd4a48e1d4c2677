"""Broken trees of the catalogue, and coded segments that cannot be probed: what is still there is found again."""

import json
import random
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from faults.machine import require_strace
from storage import crafted
from weft import Document, Index, TokenVectors
from weft.cli.main import main
from weft.errors import CorruptIndexError, IndexLockedError, WeftError
from weft.search.lexical import search_lexical
from weft.storage import merger
from weft.storage.arrays import Arrays
from weft.storage.check import check
from weft.storage.lock import WriterLock
from weft.storage.pages import Pages
from weft.storage.repair import repair

PAGE = 4096
DELETED = [f"d{n}" for n in range(5, 80, 10)]
CHANGED = [f"d{n}" for n in range(3, 80, 10)]


def text(n):
    return f"text number {n} " * (400 if n % 7 == 0 else 20)  # some run over to other pages


def documents(start, stop):
    return [Document(f"d{n}", text(n), {"n": n}) for n in range(start, stop)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An index of three segments, with deleted and replaced documents, closed; and what is in it."""
    path = tmp_path_factory.mktemp("made") / "i.weft"
    vectors = crafted.corpus()
    with Index.create(path, crafted.DIM, merge="off") as index:
        index.add(documents(0, 40), vectors[0:40])
        index.add(documents(40, 80), vectors[40:80])
        index.delete(DELETED)
        index.add([Document(name, "changed", {"n": -1}) for name in CHANGED], vectors[: len(CHANGED)])
        index.remember_alignment("top-k:2")
        contents = {f"d{n}": index.get(f"d{n}") for n in range(80)}
    return path, {name: document for name, document in contents.items() if document is not None}


@pytest.fixture
def path(made, tmp_path):
    return shutil.copytree(made[0], tmp_path / "i.weft")


def damage(path, number, how=b"\xff" * 64):
    """Write over the beginning of a page of the catalogue, by default so that it is no page of a tree any more."""
    with open(path / "catalogue.sqlite", "r+b") as file:
        file.seek((number - 1) * PAGE + (100 if number == 1 else 0))
        file.write(how)


def root_of(path, name):
    with sqlite3.connect(path / "catalogue.sqlite") as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
    db.close()
    return page


def look(path, right):
    """Return the ids of an index that was repaired; all that it holds must be as it was."""
    with Index.open(path) as index:
        assert check(index).problems == ()
        there = index.matching('@id != ""')
        for name in there:
            assert index.get(name) == right[name], name
            assert index.vectors(name) is not None
        assert {r.id for r in index.search(crafted.query(), 100, exact=True)[0]} == set(there)
        assert set(search_lexical(index, "text changed", 100).ids) == set(there)
        index.add(["after"], crafted.query())
        index.compact()
        assert check(index).problems == ()
        assert len(index) == len(there) + 1
        assert index.bits == 8
        return set(there), index.alignment


class TestTrees:
    @pytest.mark.parametrize("name", ["documents", "sqlite_autoindex_documents_1", "lexical_data", "segments", None])
    def test_a_root_that_is_gone(self, made, path, name):
        """Nothing is lost that did not stand on these pages; of segments it follows from other pages where they are."""
        damage(path, 1 if name is None else root_of(path, name))
        assert main(["check", str(path)]) == 1
        done = repair(path)
        assert done.lost == ()
        assert "the catalogue was rebuilt" in done.notes[0]
        there, alignment = look(path, made[1])
        assert there == set(made[1])
        assert alignment == "top-k:2"
        assert not repair(path)
        assert list((path / "quarantine").glob("damaged-*/catalogue.sqlite"))

    def test_any_page(self, made, path, tmp_path):
        """Whatever page is damaged, only what stands on it is lost, by name; what is left is as it was."""
        number = (path / "catalogue.sqlite").stat().st_size // PAGE
        standing = {page: set() for page in range(1, number + 1)}
        for row in Pages(path / "catalogue.sqlite").rows():
            if row.rowid is not None and len(row.values) == 5 and row.values[0] is None:
                standing[row.page].add(row.values[1])
        tombstones, segments = root_of(path, "tombstones"), root_of(path, "segments")
        some_lost = 0
        for page in sorted({*range(2, number + 1)} - {tombstones, segments}):
            copy = shutil.copytree(made[0], tmp_path / f"page-{page}.weft")
            damage(copy, page)
            done = repair(copy)
            there, _ = look(copy, made[1])
            assert set(made[1]) - there == set(done.lost), page
            overflown = {name for name in made[1] if len(made[1][name].text) > 3000}
            assert set(done.lost) <= standing[page] | overflown, page
            some_lost += bool(done.lost)
        assert some_lost > 3

    def test_the_tombstones(self, made, path):
        damage(path, root_of(path, "tombstones"))
        assert repair(path).lost == ()
        there, _ = look(path, made[1])
        assert there == set(made[1])

    def test_flipped_bytes(self, made, path, tmp_path):
        """Repair ends in a sound index of which every document is as it was, or in one of our errors."""
        rng = random.Random(5)
        data = (path / "catalogue.sqlite").read_bytes()
        kept = 0
        for _ in range(40):
            copy = shutil.copytree(made[0], tmp_path / "copy.weft")
            changed = bytearray(data)
            for _ in range(rng.choice((1, 3, 30))):
                changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            (copy / "catalogue.sqlite").write_bytes(changed)
            try:
                repair(copy)
            except WeftError:
                pass
            else:
                there, _ = look(copy, made[1])
                kept += len(there)
            shutil.rmtree(copy)
        assert kept > 20 * len(made[1])

    def test_settings(self, made, path):
        damage(path, root_of(path, "settings"))
        notes = " ".join(repair(path).notes)
        assert "the settings were lost, and the model with them" in notes
        there, alignment = look(path, made[1])
        assert (there, alignment) == (set(made[1]), "sum-of-max")

    def test_the_command_names_what_is_gone(self, made, path, capsys):
        leaf = next(
            row.page
            for row in Pages(path / "catalogue.sqlite").rows()
            if len(row.values) == 5 and row.values[1] == "d60"
        )
        damage(path, leaf)
        assert main(["check", str(path)]) == 1
        capsys.readouterr()
        assert main(["repair", str(path)]) == 0
        printed = capsys.readouterr()
        assert "d60" in printed.out.split()
        assert main(["check", str(path)]) == 0

    def test_an_id_that_sqlite_does_not_find_any_more(self, made, path):
        """A byte of SQLite's list of ids: not found, put in a second time, and put right by repair, the newer kept."""
        data = bytearray((path / "catalogue.sqlite").read_bytes())
        root = root_of(path, "sqlite_autoindex_documents_1")
        start = (root - 1) * PAGE
        at = data.index(b"d60", start, start + PAGE)
        data[at : at + 3] = b"d6/"
        (path / "catalogue.sqlite").write_bytes(data)
        with Index.open(path, merge="off") as index:
            assert index.get("d60") is None
            assert "d60" in index.search(crafted.query(), 100, exact=True)[0].ids
            assert not check(index).sound
            index.add([Document("d60", "text and changed")], crafted.query())
        assert repair(path).lost == ()
        right = {**made[1], "d60": Document("d60", "text and changed")}
        assert look(path, right)[0] == set(right)

    def test_beside_a_writer_it_is_refused(self, path):
        lock = WriterLock(path)
        try:
            damage(path, root_of(path, "documents"))
            before = (path / "catalogue.sqlite").read_bytes()
            with pytest.raises(IndexLockedError):
                repair(path)
            assert (path / "catalogue.sqlite").read_bytes() == before
        finally:
            lock.release()

    def test_nothing_left(self, path):
        (path / "catalogue.sqlite").write_bytes(b"\xff" * 40_000)
        before = sorted(file.name for file in (path / "segments").iterdir())
        with pytest.raises(CorruptIndexError, match="damaged beyond repair"):
            repair(path)
        assert sorted(file.name for file in (path / "segments").iterdir()) == before


REPAIR = """
import sys
from weft.storage.repair import repair
repair(sys.argv[1])
"""
PLACES = [("rename", 1), ("rename", 2), ("fsync", 2), ("fsync", 4), ("unlink", 4), ("pwrite64", 12)]


@pytest.mark.parametrize(("call", "nth"), PLACES)
def test_a_repair_that_is_killed_can_be_done_again(made, path, call, nth):
    require_strace()
    damage(path, root_of(path, "documents"))
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    command += ["-e", f"inject={call}:signal=KILL:when={nth}", sys.executable, "-B", "-c", REPAIR, path]
    subprocess.run(command, capture_output=True, check=False)  # killed, or done before that
    assert repair(path).lost == ()
    assert look(path, made[1])[0] == set(made[1])


class TestCodes:
    @pytest.mark.parametrize("bits", [8, 4, 2])
    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("cell_starts", lambda array: array[::-1].copy()),
            ("list_starts", lambda array: array + 1),
            ("lists", lambda array: array[:-1]),
            ("spread", lambda array: array * np.nan),
            ("cell_codes", lambda array: array[:-1]),
        ],
    )
    def test_of_a_segment_that_cannot_be_probed(self, tmp_path, monkeypatch, bits, name, change):
        """Codes are enough: the documents are coded anew, and none is lost."""
        file = crafted.make(tmp_path / "i.weft", monkeypatch, bits)
        with Index.open(tmp_path / "i.weft") as index:
            index.delete("d9")
            before = {f"d{n}": index.vectors(f"d{n}").values for n in range(80) if n != 9}
            (best,) = index.search(crafted.query(), 1)
        crafted.rewrite(file, lambda arrays, _: arrays.update({name: change(arrays[name])}))
        with Index.open(tmp_path / "i.weft") as index, pytest.raises(CorruptIndexError):
            index.search(crafted.query(), 1)
        done = repair(tmp_path / "i.weft")
        assert (done.lost, done.segments) == ((), (file.name,))
        with Index.open(tmp_path / "i.weft") as index:
            assert check(index).problems == ()
            assert len(index) == 79
            for id, values in before.items():  # noqa: A001
                assert np.abs(index.vectors(id).values - values).max() < {8: 0.02, 4: 0.3, 2: 0.6}[bits]
                assert index.reading(id).token_ids is not None
            assert index.search(crafted.query(), 1)[0].ids == best.ids

    @pytest.mark.parametrize(("bits", "count"), [(8, 800), (4, 2400)])
    def test_of_a_flipped_bit_in_the_lists(self, tmp_path, monkeypatch, bits, count):
        """64 KB are summed together: in a segment so large, lists have blocks of their own."""
        monkeypatch.setattr(merger, "CODED_TOKENS", 1000)
        values = np.random.default_rng(0).standard_normal((count, 40, 64)).astype(np.float32)
        with Index.create(tmp_path / "i.weft", 64, bits=bits, merge="off") as index:
            index.add([f"d{n}" for n in range(count)], TokenVectors.from_list(list(values)))
        (file,) = (tmp_path / "i.weft" / "segments").iterdir()
        with Arrays(file) as stored:
            _, _, start, nbytes = stored._places["lists"]
        data = bytearray(file.read_bytes())
        data[start + nbytes // 2] ^= 16
        file.write_bytes(data)
        assert repair(tmp_path / "i.weft").lost == ()
        with Index.open(tmp_path / "i.weft") as index:
            assert check(index).problems == ()
            assert index.search(values[7], 1)[0].ids == ("d7",)

    def test_without_the_rotation_all_is_lost(self, tmp_path, monkeypatch):
        file = crafted.make(tmp_path / "i.weft", monkeypatch)
        with Arrays(file) as stored:
            _, _, start, _ = stored._places["rotation"]
        data = bytearray(file.read_bytes())
        data[start] ^= 1
        file.write_bytes(data)
        assert len(repair(tmp_path / "i.weft").lost) == crafted.DOCUMENTS
        lines = (tmp_path / "i.weft" / "quarantine" / "lost.jsonl").read_text().splitlines()
        assert json.loads(lines[7])["id"] == "d7"
