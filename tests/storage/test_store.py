"""The index on disk: what is committed stays, what is not never shows, and mistakes have clear words."""

import multiprocessing
import sqlite3

import numpy as np
import pytest

from weft import Document, TokenVectors, WeftError
from weft.errors import (
    CorruptIndexError,
    IndexExistsError,
    IndexFormatError,
    IndexLockedError,
    NotAnIndexError,
)
from weft.storage.check import check
from weft.storage.folder import SEGMENTS
from weft.storage.store import Store

DIM = 3


def texts(*lengths, value=1.0, **extra):
    return TokenVectors.from_list([np.full((m, DIM), value, np.float32) for m in lengths], **extra, dim=DIM)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "notes.weft"


@pytest.fixture
def store(path):
    with Store.create(path, DIM, encoder_fingerprint="test-encoder") as made:
        yield made


def sound(store):
    report = check(store)
    return report.sound and not report.leftovers


class TestDocuments:
    def test_come_back_as_they_went_in(self, store, path):
        documents = [
            Document("a", "Ärger 🎈\0 mit Text", {"year": 2020, "tags": ["x"], "in": {"er": None}}),
            Document("b"),
        ]
        vectors = TokenVectors.from_list(
            [np.arange(6).reshape(2, DIM), np.zeros((0, DIM))], token_ids=[[5, 6], []], salience=[[0.5, 0.0], []]
        )
        store.add(documents, vectors)
        for reader in (store, Store.open(path)):
            assert len(reader) == 2
            assert reader.get("a") == documents[0]
            assert reader.get("nobody") is None
            stored = reader.vectors("a")
            assert stored.values.tolist() == [[0, 1, 2], [3, 4, 5]]
            assert stored.token_ids.tolist() == [5, 6]
            assert stored.salience.tolist() == [0.5, 0.0]
            assert reader.vectors("b").lengths.tolist() == [0]
            assert reader.vectors("nobody") is None
            assert sound(reader)
            reader.close()

    def test_are_replaced_by_a_second_add(self, store):
        store.add([Document("a", "old", {"v": 1}), "b"], texts(2, 2, value=1))
        store.add([Document("a", "new", {"v": 2})], texts(3, value=9))
        assert len(store) == 2
        assert store.get("a") == Document("a", "new", {"v": 2})
        assert store.vectors("a").values.tolist() == [[9.0] * DIM] * 3
        assert store.info()["deleted"] == 1
        assert sound(store)

    def test_of_one_id_in_one_call_the_last_counts(self, store):
        store.add([Document("a", "first"), Document("a", "last")], texts(1, 2))
        assert store.get("a").text == "last"
        assert store.vectors("a").lengths.tolist() == [2]
        assert sound(store)

    def test_can_be_deleted_and_come_back(self, store):
        store.add(["a", "b", "c"], texts(1, 1, 1))
        assert store.delete("b") == 1
        assert store.delete(["b", "c", "nobody"]) == 1
        assert len(store) == 1
        assert store.get("b") is None
        assert store.vectors("b") is None
        store.add(["b"], texts(4))
        assert store.vectors("b").lengths.tolist() == [4]
        assert sound(store)

    def test_half_precision_stays_half_precision(self, store):
        store.add(["a"], texts(2).astype(np.float16))
        assert store.vectors("a").values.dtype == np.float16


class TestCompaction:
    def test_keeps_documents_and_drops_the_rest(self, store, path):
        for i in range(6):
            store.add([Document(f"d{i}", f"text {i}", {"i": i}), "again"], texts(i, 1, value=i))
        store.delete(["d1", "d4"])
        before = {id: store.vectors(id).values.tolist() for id in ("d0", "d2", "d3", "d5", "again")}  # noqa: A001
        store.compact()
        assert store.info()["segments"] == 1
        assert store.info()["deleted"] == 0
        assert {id: store.vectors(id).values.tolist() for id in before} == before  # noqa: A001
        assert store.get("d5") == Document("d5", "text 5", {"i": 5})
        assert sound(store)
        assert len(list((path / SEGMENTS).iterdir())) == 1

    def test_of_nothing_left_leaves_an_empty_index(self, store, path):
        store.add(["a"], texts(2))
        store.delete("a")
        store.compact()
        assert store.info()["segments"] == 0
        assert sound(store)
        assert list((path / SEGMENTS).iterdir()) == []
        store.compact()

    def test_readers_go_on_with_what_they_have(self, store, path):
        store.add(["a", "b"], texts(2, 3, value=7))
        with Store.open(path) as reader, reader.view() as view:
            store.delete("a")
            store.compact()
            assert view.segments[0].segment.vectors().values.tolist() == [[7.0] * DIM] * 5
            assert reader.get("a") is not None  # the same committed state, for as long as it is held
        with Store.open(path) as reader:
            assert reader.get("a") is None


class TestMistakes:
    def test_creating_over_something(self, store, path):
        with pytest.raises(IndexExistsError, match="not empty"):
            Store.create(path, DIM)

    def test_opening_nothing(self, tmp_path):
        with pytest.raises(NotAnIndexError, match=r"no index at .*nowhere"):
            Store.open(tmp_path / "nowhere")
        assert not (tmp_path / "nowhere").exists()

    def test_opening_a_file_that_is_no_database(self, path):
        path.mkdir()
        (path / "catalogue.sqlite").write_bytes(b"not a database at all, " * 100)
        with pytest.raises(CorruptIndexError, match=r"catalogue\.sqlite"):
            Store.open(path)

    def test_other_format_version(self, store, path):
        store.close()
        with sqlite3.connect(path / "catalogue.sqlite") as db:
            db.execute("PRAGMA user_version = 99")
        db.close()
        with pytest.raises(IndexFormatError, match="version 99"):
            Store.open(path)

    def test_other_encoder_or_dimension(self, store, path):
        Store.open(path, encoder_fingerprint="test-encoder", dim=DIM).close()
        with pytest.raises(IndexFormatError, match="'test-encoder', not 'other'"):
            Store.open(path, encoder_fingerprint="other")
        with pytest.raises(IndexFormatError, match="dim 3, not 4"):
            Store.open(path, dim=4)

    @pytest.mark.parametrize(
        ("documents", "vectors", "words"),
        [
            (["a", "b"], texts(1), "one text for each of the 2 documents"),
            (["a"], TokenVectors.from_list([np.ones((1, 4))]), "dimension, 3"),
            ([""], texts(1), "'id'.*at least one character"),
            ([Document(7)], texts(1), "'id'"),
            (["\ud800"], texts(1), "'id'.*Unicode"),
            ([Document("a", "\ud800")], texts(1), "'text'.*Unicode"),
            ([Document("a", "", {"x": float("nan")})], texts(1), "'metadata'.*JSON"),
            ([Document("a", "", {"x": {1, 2}})], texts(1), "'metadata'.*JSON"),
            ([Document("a", "", [1])], texts(1), "'metadata'.*JSON"),
        ],
    )
    def test_bad_documents_change_nothing(self, store, documents, vectors, words):
        store.add(["kept"], texts(1))
        with pytest.raises(WeftError, match=words):
            store.add(documents, vectors)
        assert len(store) == 1
        assert sound(store)

    def test_bad_dimension(self, path):
        with pytest.raises(WeftError, match="'dim'"):
            Store.create(path, 0)


def _add_in_a_process(path, queue):
    try:
        with Store.open(path) as store:
            store.add(["intruder"], texts(1))
        queue.put("added")
    except IndexLockedError as error:
        queue.put(str(error))


class TestWriters:
    def test_one_at_a_time(self, store, path):
        store.add(["a"], texts(1))  # takes the lock until closed
        with Store.open(path) as second:
            with pytest.raises(IndexLockedError, match="being written by another writer"):
                second.add(["b"], texts(1))
            assert len(second) == 1  # reading is fine
        store.close()
        with Store.open(path) as second:
            second.add(["b"], texts(1))

    def test_other_processes_too(self, store, path):
        store.add(["a"], texts(1))
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        process = context.Process(target=_add_in_a_process, args=(path, queue))
        process.start()
        assert "being written" in queue.get(timeout=60)
        process.join()

    def test_collect_what_a_crash_left(self, store, path):
        store.add(["a"], texts(1))
        store.close()
        (path / SEGMENTS / "deadbeefdeadbeef.seg").write_bytes(b"half a segment")
        with Store.open(path) as store:
            assert check(store).leftovers == ("deadbeefdeadbeef.seg",)
            store.add(["b"], texts(1))
            assert sound(store)

    def test_failed_segment_write_leaves_the_index_as_it_was(self, store, monkeypatch):
        store.add(["a"], texts(1))

        def full(*args):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            store.add(["b"], texts(1))
        monkeypatch.undo()
        assert len(store) == 1
        assert sound(store)
        store.add(["b"], texts(1))
        assert sound(store)


class TestReaders:
    def test_see_each_commit_at_once(self, store, path):
        with Store.open(path) as reader:
            assert len(reader) == 0
            store.add(["a"], texts(1))
            assert len(reader) == 1
            store.delete("a")
            assert len(reader) == 0

    def test_in_a_view_see_one_state(self, store, path):
        store.add(["a"], texts(1))
        with Store.open(path) as reader, reader.view():
            store.add(["b"], texts(1))
            store.delete("a")
            assert len(reader) == 1
            assert reader.get("a") is not None
            assert reader.get("b") is None


class TestCheck:
    def damage(self, path, change):
        (file,) = (path / SEGMENTS).iterdir()
        data = bytearray(file.read_bytes())
        change(data)
        file.write_bytes(data)
        return file.name

    def test_names_a_damaged_segment(self, store, path):
        store.add(["a"], texts(400))
        store.close()
        name = self.damage(path, lambda data: data.__setitem__(1000, data[1000] ^ 1))
        with Store.open(path) as store:
            (problem,) = check(store).problems
            assert name in problem
            with pytest.raises(CorruptIndexError, match=name):
                store.vectors("a")

    def test_names_a_missing_segment(self, store, path):
        store.add(["a"], texts(1))
        store.close()
        (file,) = (path / SEGMENTS).iterdir()
        file.unlink()
        with Store.open(path) as store:
            assert "the file is missing" in check(store).problems[0]
            with pytest.raises(CorruptIndexError, match="the file is missing"):
                store.vectors("a")

    def test_names_a_place_used_twice_or_never(self, store, path):
        store.add(["a", "b"], texts(1, 1))
        store.close()
        with sqlite3.connect(path / "catalogue.sqlite") as db:
            db.execute("INSERT INTO tombstones (doc) SELECT doc FROM documents WHERE id = 'a'")
            db.execute("DELETE FROM documents WHERE id = 'b'")
        db.close()
        with Store.open(path) as store:
            problems = check(store).problems
        assert any("document 1 is there and deleted" in p for p in problems)
        assert any("document 2 of a segment is not in the catalogue" in p for p in problems)
