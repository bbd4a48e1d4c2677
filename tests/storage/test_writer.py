"""Many small adds and deletes in few commits: when a group is committed, what is durable, and where errors go."""

import multiprocessing
import threading

import numpy as np
import pytest

from weft import Document, Index, TokenVectors, WeftError
from weft.errors import IndexStateError, StorageError

DIM = 4
NEVER = float("inf")


def tokens(value, count=2):
    return TokenVectors.from_list([np.full((count, DIM), value, dtype=np.float32)])


@pytest.fixture
def index(tmp_path):
    with Index.create(tmp_path / "i.weft", DIM, merge="off") as index:
        yield index


def generation(index):
    with index.view() as view:
        return view.generation


class Held:
    """Store.write, stopped before it begins until it is let go; says what each call was given."""

    def __init__(self, monkeypatch, index):
        self.entered, self.let_go = threading.Semaphore(0), threading.Semaphore(0)
        self.sizes = []
        self.error = None
        real = index.write

        def write(operations, **options):
            self.sizes.append(len(operations))
            self.entered.release()
            assert self.let_go.acquire(timeout=60)
            if self.error is not None:
                raise self.error
            return real(operations, **options)

        monkeypatch.setattr(index, "write", write)


def started(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


class TestGroups:
    def test_by_count(self, index):
        before = generation(index)
        with index.writer(documents=10, seconds=NEVER) as writer:
            for i in range(40):
                writer.add([f"d{i}"], tokens(i))
        # The writer may begin a group late, never early: at most ten documents, so at least four commits.
        assert generation(index) - before == 4
        assert [len(s.live) for s in index.view().__enter__().segments] == [10, 10, 10, 10]

    def test_by_bytes(self, index):
        one = tokens(0.0, 50).values.nbytes
        before = generation(index)
        with index.writer(megabytes=5 * one / 1e6, seconds=NEVER) as writer:
            for i in range(20):
                writer.add([f"d{i}"], tokens(i, 50))
        assert generation(index) - before == 4

    def test_by_time(self, index, monkeypatch):
        held = Held(monkeypatch, index)
        held.let_go.release(2)
        with index.writer(seconds=0.01) as writer:
            writer.add(["a"], tokens(1))
            assert held.entered.acquire(timeout=60)  # nobody asked for it
            writer.commit()
            assert "a" in index
            writer.add(["b"], tokens(1))
            assert held.entered.acquire(timeout=60)
        assert "b" in index

    def test_at_once_when_somebody_asks(self, index):
        with index.writer(seconds=NEVER) as writer:
            writer.add(["a"], tokens(1))
            writer.commit()
            assert "a" in index
            writer.delete("a")
            assert "a" in index
            writer.commit()
            assert "a" not in index
            writer.commit()  # nothing left to do

    def test_commit_waits_for_the_group_before(self, index, monkeypatch):
        held = Held(monkeypatch, index)
        with index.writer(documents=1, seconds=NEVER) as writer:
            writer.add(["a"], tokens(1))
            assert held.entered.acquire(timeout=60)  # it is being written, and no group is open
            found = []
            thread = started(lambda: (writer.commit(), found.append("a" in index)))
            thread.join(0.2)
            assert thread.is_alive()
            held.let_go.release()
            thread.join(60)
            assert found == [True]

    def test_no_faster_than_the_disk(self, index, monkeypatch):
        held = Held(monkeypatch, index)
        with index.writer(documents=2, seconds=NEVER) as writer:
            for i in range(4):
                writer.add([f"d{i}"], tokens(i))
                if i == 1:
                    assert held.entered.acquire(timeout=60)
            thread = started(lambda: writer.add(["d4"], tokens(4)))  # two are being written, two wait
            thread.join(0.2)
            assert thread.is_alive()
            held.let_go.release(3)
            thread.join(60)
            assert not thread.is_alive()
        assert held.sizes == [2, 2, 1]
        assert len(index) == 5


class TestOrder:
    @pytest.mark.parametrize(
        ("steps", "expected"),
        [
            ("a1 d", None),
            ("d a1", 1),
            ("a1 a2", 2),
            ("a1 d a2", 2),
            ("a1 a2 d", None),
            ("a1 d a2 d a3", 3),
            ("a1 d d", None),
        ],
    )
    @pytest.mark.parametrize("there", [False, True])
    def test_of_one_id_the_last_word_counts(self, index, steps, expected, there):
        if there:
            index.add([Document("x", "9")], tokens(9))
        before = generation(index)
        with index.writer(seconds=NEVER) as writer:
            writer.add(["beside"], tokens(0))
            for step in steps.split():
                if step == "d":
                    writer.delete("x")
                else:
                    writer.add([Document("x", step[1])], tokens(float(step[1])))
        assert generation(index) == before + 1
        assert len(index) == 1 + (expected is not None)
        if expected is None:
            assert index.get("x") is None
            assert index.vectors("x") is None
        else:
            assert index.get("x").text == str(expected)
            assert index.vectors("x").values.tolist() == [[expected] * DIM] * 2
        ranking = index.search(np.ones((1, DIM)), 5)[0]
        assert sorted(ranking.ids) == sorted({"beside"} | ({"x"} if expected is not None else set()))
        assert index.check().sound

    def test_documents_of_several_kinds_keep_their_order(self, index):
        with index.writer(seconds=NEVER) as writer:
            for i in range(12):
                more = {"token_ids": [[i, i]]} if i % 3 == 1 else {"spans": [[(0, 1), (1, 2)]]} if i % 3 else {}
                writer.add([Document(f"d{i % 5}", str(i))], TokenVectors.from_list([np.full((2, DIM), i)], **more))
        assert {id: index.get(id).text for id in index.matching("id != ''")} == {  # noqa: A001
            "d0": "10", "d1": "11", "d2": "7", "d3": "8", "d4": "9",
        }  # fmt: skip
        for i, word in ((0, 10), (1, 11), (2, 7), (3, 8), (4, 9)):
            assert (index.vectors(f"d{i}").values == word).all()
            read = index.reading(f"d{i}")
            assert (read.token_ids is not None, read.spans is not None) == (word % 3 == 1, word % 3 == 2)
        assert index.check().sound


def _seen(path, asked, answers):
    with Index.open(path) as index:
        while (id := asked.get()) is not None:  # noqa: A001
            answers.put(index.get(id) is not None)


class TestDurable:
    def test_is_seen_by_another_process_when_it_returns(self, index):
        context = multiprocessing.get_context("spawn")
        asked, answers = context.Queue(), context.Queue()
        reader = context.Process(target=_seen, args=(index.folder, asked, answers))
        reader.start()
        try:
            with index.writer(seconds=NEVER) as writer:
                for i in range(5):
                    writer.add([f"d{i}"], tokens(i), durable=True)
                    asked.put(f"d{i}")
                    assert answers.get(timeout=60)
                writer.delete("d3", durable=True)
                asked.put("d3")
                assert not answers.get(timeout=60)
                writer.add(["later"], tokens(1))
                asked.put("later")
                assert not answers.get(timeout=60)
        finally:
            asked.put(None)
            reader.join()

    def test_threads_share_commits(self, index, monkeypatch):
        held = Held(monkeypatch, index)
        with index.writer(seconds=NEVER) as writer:
            first = started(lambda: writer.add(["first"], tokens(0), durable=True))
            assert held.entered.acquire(timeout=60)
            returned = []

            def add(i):
                writer.add([f"d{i}"], tokens(i), durable=True)
                returned.append(f"d{i}" in index)

            threads = [started(lambda i=i: add(i)) for i in range(8)]
            while writer._open is None or len(writer._open.operations) < 8:
                threading.Event().wait(0.001)  # until all have handed theirs in
            before = generation(index)
            held.let_go.release(2)
            for thread in (first, *threads):
                thread.join(60)
            assert returned == [True] * 8
            assert generation(index) == before + 2
            assert held.sizes == [1, 8]

    def test_many_threads_lose_nothing(self, index):
        def work(worker):
            for i in range(30):
                writer.add([f"{worker}-{i}"], tokens(worker), durable=i % 3 == 0)
                if i % 10 == 9:
                    writer.delete(f"{worker}-{i - 1}")

        with index.writer(documents=7, seconds=0.001) as writer:
            threads = [started(lambda w=w: work(w)) for w in range(4)]
            for thread in threads:
                thread.join(60)
        assert len(index) == 4 * 27
        assert index.check().sound


class TestErrors:
    def test_reach_who_waits_and_who_comes_later(self, index, monkeypatch):
        held = Held(monkeypatch, index)
        held.error = StorageError("the disk is full")
        writer = index.writer(documents=1, seconds=NEVER)
        errors = []

        def durable(name):
            try:
                writer.add([name], tokens(1), durable=True)
            except WeftError as error:
                errors.append(str(error))

        threads = [started(lambda: durable("a"))]
        assert held.entered.acquire(timeout=60)
        threads += [started(lambda: durable("b"))]  # in the group after it
        while writer._open is None:
            threading.Event().wait(0.001)
        threads += [started(lambda: durable("c"))]  # and one that finds that group full
        held.let_go.release()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert errors == ["the disk is full"] * 3
        for later in (
            lambda: writer.add(["d"], tokens(1)),
            lambda: writer.delete("d"),
            writer.commit,
            writer.close,
        ):
            with pytest.raises(StorageError, match="the disk is full"):
                later()
        writer.close()  # a second time
        monkeypatch.undo()
        assert len(index) == 0
        index.add(["e"], tokens(1))
        assert index.check().sound

    def test_mistakes_are_refused_at_once_and_harm_nobody(self, index):
        with index.writer(seconds=NEVER) as writer:
            writer.add(["a"], tokens(1))
            with pytest.raises(WeftError, match="dimension"):
                writer.add(["b"], TokenVectors.from_list([np.ones((1, DIM + 1))]))
            with pytest.raises(WeftError, match="one text for each"):
                writer.add(["b", "c"], tokens(1))
            writer.add([], TokenVectors.from_list([], dim=DIM), durable=True)
        assert index.matching("id != ''") == ["a"]

    @pytest.mark.parametrize("bad", [{"documents": 0}, {"megabytes": -1}, {"seconds": True}, {"seconds": float("nan")}])
    def test_settings_make_sense(self, index, bad):
        with pytest.raises(WeftError, match=next(iter(bad))):
            index.writer(**bad)

    def test_it_needs_the_writers_lock(self, index):
        index.lock()
        with Index.open(index.folder) as other, pytest.raises(WeftError, match="another writer"):
            other.writer()


class TestClosing:
    def test_commits_what_is_left(self, index):
        writer = index.writer(seconds=NEVER)
        writer.add(["a"], tokens(1))
        writer.close()
        writer.close()
        assert "a" in index
        for late in (lambda: writer.add(["b"], tokens(1)), lambda: writer.delete("a")):
            with pytest.raises(IndexStateError, match="the writer is closed"):
                late()
        assert index.matching("id != ''") == ["a"]

    def test_the_end_of_a_block_commits_even_after_an_error(self, index):
        def interrupted():
            with index.writer(seconds=NEVER) as writer:
                writer.add(["a"], tokens(1))
                raise KeyError

        with pytest.raises(KeyError):
            interrupted()
        assert "a" in index

    def test_whoever_waits_for_room_hears_that_it_is_closed(self, index, monkeypatch):
        held = Held(monkeypatch, index)
        writer = index.writer(documents=1, seconds=NEVER)
        writer.add(["a"], tokens(1))
        assert held.entered.acquire(timeout=60)
        writer.add(["b"], tokens(1))
        outcomes = []

        def late():
            try:
                writer.add(["c"], tokens(1), durable=True)
            except IndexStateError:
                outcomes.append("refused")
            else:
                outcomes.append("kept" if "c" in index else "lost")

        thread = started(late)
        while not writer._changed._waiters:
            threading.Event().wait(0.001)
        closing = started(writer.close)
        while not writer._closed:
            threading.Event().wait(0.001)
        held.let_go.release(3)
        for one in (thread, closing):
            one.join(60)
            assert not one.is_alive()
        assert outcomes in (["refused"], ["kept"])
        assert {"a", "b"} <= set(index.matching("id != ''"))
