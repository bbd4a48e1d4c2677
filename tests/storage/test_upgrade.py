"""An index of an older format becomes one of today's with the first write, under the eyes of its readers."""

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from weft import Document, Index, TokenVectors, WeftError
from weft.search.lexical import search_lexical
from weft.storage import schema

GOLDEN = Path(__file__).parent / "golden"
OLDER = sorted(path.stem for path in GOLDEN.glob("v[12]-*.json"))


@pytest.fixture(params=OLDER)
def first(request, tmp_path):
    """A copy of a golden index, and the query that comes with it."""
    path = tmp_path / "index.weft"
    shutil.copytree(GOLDEN / f"{request.param}.weft", path)
    query = json.loads((GOLDEN / f"{request.param}.json").read_text())["query"]
    return path, np.array(query, dtype=np.float32)


def version(path):
    with sqlite3.connect(path / "catalogue.sqlite") as db:
        found = schema.version(db)
    db.close()
    return found


def everything(index):
    """All documents by id: what users gave, and the vectors that are stored."""
    ids = index.matching("n >= 0 or n missing")
    assert len(set(ids)) == len(ids) == len(index)
    return {id: (index.get(id), index.vectors(id).values.tolist()) for id in sorted(ids)}  # noqa: A001


def answers(index, query):
    """What searches of several kinds say: ids and scores, and the ranking of words."""
    found = {}
    for options in ({}, {"exact": True}, {"alignment": "top-k:2"}, {"alignment": "xtr:50"}, {"filter": "n > 100"}):
        (ranking,) = index.search(query, k=9, **options)
        found[str(options)] = [(r.id, r.score) for r in ranking]
    for words in ("passage 7", "number 31 or 32", "nothing"):
        found[words] = [(r.id, r.score) for r in search_lexical(index, words, 200)]
    return found


def same(before, after):
    assert before.keys() == after.keys()
    for asked, expected in before.items():
        assert [id for id, _ in after[asked]] == [id for id, _ in expected], asked  # noqa: A001
        assert [s for _, s in after[asked]] == pytest.approx([s for _, s in expected], rel=1e-5), asked


def write_and_undo(index):
    index.add([Document("passing", "nothing of note", {"n": -5})], TokenVectors.from_list([np.ones((2, 8))]))
    index.delete("passing")


def test_reading_leaves_it_as_it_is(first):
    path, query = first
    before = version(path)
    assert before < schema.FORMAT_VERSION
    with Index.open(path) as index:
        answers(index, query)
        assert index.check().sound
    assert version(path) == before


def test_a_reader_sees_what_a_writer_upgrades(first):
    path, query = first
    with Index.open(path) as reader, Index.open(path, merge="off") as writer:
        documents, before = everything(reader), answers(reader, query)
        assert reader.check().sound
        with reader.view():  # and one that holds a state meanwhile
            held = answers(reader, query)
            loud = Document("loud", "nothing but this", {"n": 200})
            writer.add([loud], TokenVectors.from_list([50 * query]))
            assert version(path) == schema.FORMAT_VERSION
            assert answers(reader, query) == held == before
            assert "loud" not in [r.id for r in reader.search(query, 5)[0]]
        assert [r.id for r in reader.search(query, 1)[0]] == ["loud"]
        assert reader.get("loud") == loud
        assert [r.id for r in search_lexical(reader, "nothing", 5)] == ["loud"]
        writer.delete("loud")
        for index in (reader, writer):
            assert everything(index) == documents
            same(before, answers(index, query))
            assert index.check().sound
    with Index.open(path) as again:
        assert everything(again) == documents
        same(before, answers(again, query))
        assert again.check().sound


def test_what_was_deleted_stays_deleted(first):
    path, query = first
    with Index.open(path) as index:
        gone = {"d5", "d149"}
        for step in (lambda: None, lambda: write_and_undo(index), index.compact):
            step()
            assert not gone & set(index.matching("n >= 0 or n missing"))
            assert [index.get(id) for id in gone] == [index.vectors(id) for id in gone] == [None, None]  # noqa: A001
            (ranking,) = index.search(query, k=200)
            assert len(ranking) == len(set(ranking.ids))
            assert not gone & set(ranking.ids)
            assert len(index) == 149
        assert index.info()["deleted"] == 0
        index.add([Document("d5", "again")], TokenVectors.from_list([query]))
        assert index.get("d5").text == "again"
        assert index.vectors("d5").values.tolist() == query.tolist()


@pytest.mark.parametrize("gone", [["flat"], ["flat", "d3"], ["d148"]])
def test_new_documents_get_numbers_that_were_never_used(first, gone):
    # The first format deletes: a row goes, a place is buried. The last places of segments may be among them.
    path, query = first
    if version(path) != schema.FIRST_VERSION:
        pytest.skip("numbers are those of today")
    with sqlite3.connect(path / "catalogue.sqlite") as db:
        for id in gone:  # noqa: A001
            db.execute("INSERT INTO tombstones SELECT segment, ordinal FROM documents WHERE id = ?", (id,))
            db.execute("DELETE FROM documents WHERE id = ?", (id,))
    db.close()
    with Index.open(path, merge="off") as index:
        assert index.check().sound
        before = everything(index)
        for i in range(3):
            index.add([Document(f"new{i}", "fresh")], TokenVectors.from_list([(i + 2) * query]))
        assert len(index) == len(before) + 3
        assert [index.vectors(f"new{i}").values.tolist() for i in range(3)] == [
            ((i + 2) * query).tolist() for i in range(3)
        ]
        found = [r.id for r in index.search(query, 3, filter="n missing and id != 'flat'")[0]]
        assert found == ["new2", "new1", "new0"]
        assert index.check().sound
        assert {id: value for id, value in everything(index).items() if id in before} == before  # noqa: A001


def test_an_upgrade_that_fails_leaves_the_older_format(first, monkeypatch):
    path, query = first
    older = version(path)
    with Index.open(path, merge="off") as index:
        before, documents = answers(index, query), everything(index)
        for name in ("_FIRST_UPGRADE_END", "_SECOND_UPGRADE_END"):
            monkeypatch.setattr(schema, name, getattr(schema, name) + "SELECT no_such_function();\n")
        with pytest.raises(WeftError, match="no_such_function"):
            index.delete("d7")
        assert version(path) == older
        assert answers(index, query) == before
        monkeypatch.undo()
        write_and_undo(index)
        assert version(path) == schema.FORMAT_VERSION
        same(before, answers(index, query))
        assert everything(index) == documents


def test_upgraded_rows_are_summed(first):
    path, _ = first
    with Index.open(path, merge="off") as index:
        write_and_undo(index)
    with sqlite3.connect(path / "catalogue.sqlite") as db:
        db.execute("UPDATE documents SET metadata = replace(metadata, '7', '8') WHERE id = 'd7'")
    db.close()
    with Index.open(path) as index, pytest.raises(WeftError, match="checksum of document 'd7'"):
        index.get("d7")
