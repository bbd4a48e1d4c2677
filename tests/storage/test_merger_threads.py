"""When merges are done, by whom, and beside whom."""

import threading

import numpy as np
import pytest

from storage.merged_documents import DIM, committed_files, contents, documents_of, files, kinds_of, made, named
from storage.merged_documents import coded_from as coded_from
from weft import Index, WeftError
from weft.errors import IndexStateError
from weft.storage import merger


class TestModes:
    def test_inline(self, tmp_path):
        with Index.create(tmp_path / "i", DIM, merge="inline") as index:
            for i in range(60):
                index.add(named(i, i + 1), made(i, 1))
                assert len(kinds_of(index)) <= 12 + np.log2(i + 2)
                assert files(index) == committed_files(index)
            assert index.merging.merges > 0
            assert index.merging.added_bytes < index.merging.written_bytes < 8 * index.merging.added_bytes

    def test_off(self, tmp_path):
        with Index.create(tmp_path / "i", DIM, merge="off") as index:
            for i in range(30):
                index.add(named(i, i + 1), made(i, 1))
            index.wait()
            assert len(kinds_of(index)) == 30
            index.settle()
            assert len(kinds_of(index)) == 1

    def test_a_merge_that_a_group_commit_starts_outlives_the_main_thread(self, tmp_path, monkeypatch):
        daemons, work = [], merger.Merger._work

        def noting(self, group):
            daemons.append(threading.current_thread().daemon)
            work(self, group)

        monkeypatch.setattr(merger.Merger, "_work", noting)
        with Index.create(tmp_path / "i", DIM) as index:
            with index.writer() as writer:
                for i in range(30):
                    writer.add(named(i, i + 1), made(i, 1), durable=True)
            index.wait()
        assert daemons
        assert not any(daemons)  # a daemon would be killed in native code, and the process with it

    def test_background(self, tmp_path):
        with Index.create(tmp_path / "i", DIM) as index:
            for i in range(100):
                index.add(named(i, i + 1), made(i, 1))
            index.wait()
            assert len(kinds_of(index)) <= 4 + np.log2(100)
            assert index.merging.merges > 0
            assert index.merging.error is None
            assert files(index) == committed_files(index)
            assert len(contents(index)) == 100

    def test_unknown(self, tmp_path):
        with pytest.raises(WeftError, match="merge"):
            Index.create(tmp_path / "i", DIM, merge="sometimes")
        with Index.create(tmp_path / "i", DIM), pytest.raises(WeftError, match="merge"):
            Index.open(tmp_path / "i", merge="no")

    def test_paused_begins_no_merge(self, tmp_path):
        with Index.create(tmp_path / "i", DIM, merge="inline") as index:
            with index.merging.paused():
                for i in range(40):
                    index.add(named(i, i + 1), made(i, 1))
                assert len(kinds_of(index)) == 40
            index.settle()
            assert len(kinds_of(index)) == 1

    def test_settle_merges_what_is_due_and_leaves_large_ones(self, tmp_path, coded_from):
        coded_from(200)
        with Index.create(tmp_path / "i", DIM, merge="off") as index:
            index.add(named(0, 400), made(0, 400))
            for i in range(3):
                index.add(named(400 + i, 401 + i), made(i, 1))
            index.settle()
            assert len(kinds_of(index)) == 4  # few, and little of it new
            assert index.merging.merges == 0

    def test_a_closed_index_takes_no_lock(self, tmp_path):
        index = Index.create(tmp_path / "i", DIM)
        index.add(named(0, 1), made(0, 1))
        index.close()
        for late in (lambda: index.add(named(1, 2), made(1, 1)), lambda: index.delete("d0"), index.compact, index.lock):
            with pytest.raises(IndexStateError, match="closed"):
                late()
        with Index.open(tmp_path / "i") as other:
            other.add(named(1, 2), made(1, 1))
            assert len(other) == 2

    def test_only_the_writer_merges(self, tmp_path):
        with Index.create(tmp_path / "i", DIM, merge="off") as first:
            for i in range(30):
                first.add(named(i, i + 1), made(i, 1))
            with Index.open(tmp_path / "i") as second:
                second.wait()  # what is due is due to another process, which may be about to merge it
                assert len(kinds_of(second)) == 30
                for merging in (second.settle, second.compact):
                    with pytest.raises(WeftError, match="another writer"):
                        merging()
                first.close()
                second.settle()
                assert len(kinds_of(second)) == 1
                assert len(contents(second)) == 30

    def test_what_another_merged_is_not_put_in_twice(self, tmp_path, monkeypatch):
        with Index.create(tmp_path / "i", DIM, merge="off") as first:
            for i in range(30):
                first.add(named(i, i + 1), made(i, 1))
            before = contents(first)
            real = merger.write_segment
            with Index.open(tmp_path / "i", merge="off") as second:

                def disturbed(*arguments, **options):
                    monkeypatch.setattr(merger, "write_segment", real)
                    first.compact()
                    first.close()
                    real(*arguments, **options)

                monkeypatch.setattr(merger, "write_segment", disturbed)
                with pytest.raises(IndexStateError, match="merged in the meantime"):
                    second.merging.compact()  # without the writer's lock
                assert contents(second) == before
                second.compact()  # removes what the failed commit left, too
                assert files(second) == committed_files(second)
                assert contents(second) == before

    @pytest.mark.parametrize("mode", ["background", "inline"])
    def test_writing_while_holding_an_older_state(self, tmp_path, mode):
        with Index.create(tmp_path / "i", DIM, merge="off") as index:
            for i in range(40):
                index.add(named(i, i + 1), made(i, 1))
        with Index.open(tmp_path / "i", merge=mode) as index:
            with index.view():
                for i in range(40, 43):
                    index.add(named(i, i + 1), made(i, 1))
            index.add(named(43, 44), made(43, 1))
            index.wait()
            assert len(kinds_of(index)) < 15
            assert len(contents(index)) == len(index) == 44
            assert index.check().sound


class TestThreads:
    def test_compact_while_another_adds_and_deletes(self, tmp_path, coded_from):
        coded_from(150)
        with Index.create(tmp_path / "i", DIM) as index:
            index.add(named(0, 60), made(0, 60))
            done = threading.Event()
            errors = []

            def compacting():
                try:
                    while not done.is_set():
                        index.compact()
                        ids = index.search(np.ones((2, DIM)), 200)[0].ids
                        assert len(set(ids)) == len(ids) > 0
                except BaseException as error:
                    errors.append(error)

            thread = threading.Thread(target=compacting)
            thread.start()
            try:
                for i in range(60, 120):
                    index.add(named(i, i + 1), made(i, 1))
                    index.delete(f"d{i - 60}") if i % 2 else index.add(named(i - 60, i - 59, "new"), made(i, 1))
            finally:
                done.set()
                thread.join(60)
            assert errors == []
            index.wait()
            found = contents(index)
            assert set(found) == {f"d{i}" for i in range(120) if i >= 60 or not i % 2}
            assert all(found[f"d{i}"][0].metadata["v"] == "new" for i in range(0, 60, 2))
            assert index.check().sound
            index.compact()
            assert documents_of(contents(index)) == documents_of(found)
            assert files(index) == committed_files(index)

    def test_readers_in_a_crowd_of_commits(self, tmp_path):
        with Index.create(tmp_path / "i", DIM) as index:
            index.add(named(0, 20), made(0, 20))
            done = threading.Event()
            errors = []

            def reading():
                try:
                    while not done.is_set():
                        assert len(index) == 20
                except BaseException as error:
                    errors.append(error)

            threads = [threading.Thread(target=reading) for _ in range(4)]
            for thread in threads:
                thread.start()
            try:
                for i in range(60):
                    index.add(named(i % 20, i % 20 + 1, i), made(i, 1))
            finally:
                done.set()
                for thread in threads:
                    thread.join(60)
            assert errors == []

    def test_a_reader_tries_as_often_as_others_are_ahead_of_it(self, tmp_path, monkeypatch):
        with Index.create(tmp_path / "i", DIM) as index:
            index.add(named(0, 3), made(0, 3))
            real, times = index._views._state, iter(range(50))
            monkeypatch.setattr(
                index._views, "_state", lambda *args, **kwargs: None if next(times) < 20 else real(*args, **kwargs)
            )
            assert len(index) == 3
