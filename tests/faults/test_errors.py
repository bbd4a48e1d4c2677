"""A full disk and a failing fsync: the call says so and did nothing, the state before stays, the next call works."""

import os
import random
from collections import Counter
from contextlib import suppress

import pytest

from faults.amounts import FAULT_SEEDS, note
from faults.machine import CALLS, Worker, counted, inject, make_image, mounted, scratch, traced
from faults.session import WHOLE
from faults.workload import DIM, IDS, Model, contents, same, verify
from weft import Document, TokenVectors
from weft.errors import StorageError
from weft.storage import merger
from weft.storage.check import check
from weft.storage.store import Store

BEFORE = ("create", "add", "add", "delete", "add", "add", "add", "add")
PAUSED = ("create", "pause", "add", "add", "delete", "group", "add", "add", "add", "add", "add", "group", "add", "add")
"""Before a merge: many segments, of which none was merged yet."""
AFTER = ("add", "delete", "compact", "add", "group", "wait")
# Opening files fails at random places of Python's own too; it is tried with the disk that is really full.
FAILING = {"ENOSPC": ("write", "pwrite64", "ftruncate", "fallocate", "fsync", "fdatasync"), "EIO": CALLS[1:]}


def before_a(kind):
    return PAUSED if kind == "wait" else BEFORE


def prepared(path, seed, kind, before=None):
    before = before or before_a(kind)
    worker = Worker(path, seed, (*before, kind, *AFTER))
    worker.send(f"run {len(before)}")
    assert [worker.answer() for _ in before] == [["ack"]] * len(before)
    return worker


def count_calls(path, seed, kind):
    with prepared(path, seed, kind) as worker, counted(worker) as calls:
        worker.send("run 1")
        assert worker.answer() == ["ack"]
    return calls


def merge_error(worker):
    """Return what the last merge said when it failed, [] if it did not."""
    worker.send("merges")
    _, merges, said = worker.answer()
    assert merges or said
    return said


def fail_at(path, seed, kind, call, error, when, before=None):
    """Let a call fail during one operation; go on in the same process. Return whether the operation failed.

    A merge fails in the background: the operation, which waits for it, does not, and the merger says why.
    """
    before = before or before_a(kind)
    with prepared(path, seed, kind, before) as worker:
        with traced(worker, *inject(call, f"error={error}", when)):
            worker.send("run 1")
            outcome, *said = worker.answer()
            if kind == "wait":
                assert outcome == "ack", said
                said = merge_error(worker)
        lost = outcome == "error"
        if said:
            bases, message = said
            assert "StorageError" in bases, (bases, message)
            assert str(path) in message
        model = Model(seed, (*before, kind, *AFTER), without=len(before) if lost else None)
        done = len(before) + (not lost)
        worker.send("read")
        answer, found, problems = worker.answer()
        assert (answer, problems) == ("contents", [])
        assert same(model[done], found)
        worker.send(f"run {len(AFTER)}")
        assert [worker.answer() for _ in AFTER] == [["ack"]] * len(AFTER)
        assert merge_error(worker) == []
        worker.send("quit")
        assert worker.answer() is None
        assert worker.exitcode() == 0
    verify(path, model, done + len(AFTER), done + len(AFTER))
    return bool(said)


def places(folder, seed, kind, error):
    calls = count_calls(folder / f"clean-{kind}", seed, kind)
    found = [(call, n) for call in FAILING[error] for n in range(1, calls[call] + 1)]
    assert found, f"{kind} did nothing"
    return found


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize("error", FAILING)
@pytest.mark.parametrize("kind", ["add", "delete", "group", "compact", "wait"])
class TestFailingCall:
    def test_at_a_sample_of_places(self, folder, kind, error):
        """The disk fails at the n-th call and stays so until the operation has given up."""
        found = places(folder, 5, kind, error)
        chosen = random.Random(kind).sample(found, min(8, len(found)))
        failed = [fail_at(folder / f"{call}-{n}", 5, kind, call, error, f"{n}+") for call, n in chosen]
        assert sum(failed) >= len(chosen) // 2

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(5, 5 + FAULT_SEEDS))
    @pytest.mark.parametrize("lasting", ["", "+"], ids=["once", "from then on"])
    def test_at_every_place(self, folder, kind, error, seed, lasting):
        found, failed = places(folder, seed, kind, error), Counter()
        for call, n in found:
            failed[call] += fail_at(folder / f"{call}-{n}", seed, kind, call, error, f"{n}{lasting}")
        tried = Counter(call for call, _ in found)
        note("failing call", kind=kind, error=error, seed=seed, lasting=bool(lasting), tried=tried, failed=failed)


@pytest.mark.usefixtures("strace")
class TestFailingFirstWrite:
    @pytest.mark.parametrize("call", ["pwrite64", "ftruncate", "fdatasync"])
    def test_keeps_no_lock_and_lets_the_next_one_work(self, folder, call):
        """A writer's first write takes the lock, on a full disk too."""
        assert fail_at(folder / "index", 5, "add", call, "ENOSPC", "1+", (*BEFORE, "reopen")) == (call != "ftruncate")


@pytest.mark.usefixtures("strace")
class TestFailingCommit:
    @pytest.mark.parametrize("kind", ["add", "delete", "group", "compact", "wait"])
    def test_then_a_crash(self, folder, kind):
        """The operation that failed may come to light after a crash, but then whole."""
        path = folder / "index"
        with prepared(path, 5, kind) as worker:
            with traced(worker, *inject("fdatasync", "error=EIO", "1+")):
                worker.send("run 1")
                outcome, *said = worker.answer()
                assert outcome == ("ack" if kind == "wait" else "error"), said
                if kind == "wait":
                    assert merge_error(worker)
            worker.kill()
        before = before_a(kind)
        verify(path, Model(5, (*before, kind)), len(before), len(before) + 1)

    @pytest.mark.parametrize("write", [1, 2, 3, 4])
    def test_then_another_writer_and_a_crash(self, folder, write):
        """Whatever the next writer tidies away, the log must not bring back a document without its vectors."""
        path = folder / "index"
        with prepared(path, 5, "add") as first, Worker(path, 5, ("reopen",)) as reader:
            reader.send("run 1")
            assert reader.answer() == ["ack"]
            reader.send("read")  # an open reader keeps SQLite's log alive while the first writer goes
            assert reader.answer()[0] == "contents"
            with traced(first, *inject("fdatasync", "error=EIO", "1+")):
                first.send("run 1")
                assert first.answer()[0] == "error"
            first.send("quit")
            assert first.exitcode() == 0
            with Worker(path, 5, ("reopen", "delete")) as second:
                second.send("run 1")
                assert second.answer() == ["ack"]
                with traced(second, *inject("pwrite64", "signal=KILL", write)):
                    second.send("run 1")
                    assert second.answer() is None
            reader.kill()
        with Store.open(path) as store:
            report = check(store)
            assert report.sound, report.problems
            contents(store)


def fill(folder, keep):
    """Fill a disk up but for so many bytes."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file:
        for size in (65536, 4096, 4096, 4096):  # what is only reserved comes free when the rest is on disk
            with suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
            os.fsync(file.fileno())
        file.truncate(max(0, file.tell() - keep))
        os.fsync(file.fileno())
    return filler


def attempt(call):
    """Return what a call returned, and None; or None and what it said of the disk."""
    try:
        return call(), None
    except StorageError as error:
        return None, str(error)


def in_a_group(store, ids, vectors):
    with store.writer(**WHOLE) as writer:
        writer.delete(ids)
        writer.add(ids, vectors)


def merged(store):
    """Let the background do what is due; raise what it could not."""
    store.merging.after_write()
    store.wait()
    if store.merging.error is not None:
        raise store.merging.error


@pytest.mark.usefixtures("mount")
class TestFullDisk:
    @pytest.mark.parametrize("kind", ["add", "upsert", "delete", "group", "merge", "compact", "create"])
    def test_is_survived(self, kind, monkeypatch):
        """Whatever room is left, an operation happens or says why not; with room again, it works."""
        if kind == "merge":
            monkeypatch.setattr(merger, "CODED_TOKENS", 5000)  # the merge codes
        outcomes = set()
        with scratch(32) as images:
            make_image(images / "disk.img", 16)
            with mounted(images / "disk.img") as disk:
                for keep in (0, 4096, 16384, 32768, 49152, 65536, 98304, 131072, 262144, 1 << 20):
                    outcomes.add(self.full(disk / f"index-{keep}", kind, keep))
                    for path in sorted(disk.glob("index-*/**/*"), reverse=True):
                        path.rmdir() if path.is_dir() else path.unlink()
        assert outcomes == {"worked", "failed"}

    def full(self, path, kind, keep):
        vectors = TokenVectors.from_list([[[1.0] * DIM] * n for n in (3, 2000)])
        store = None
        if kind != "create":
            store = Store.create(path, DIM)
            store.add([Document("d0", "zero"), Document("d1", "one")], vectors)
            store.add([Document("d2", "two"), Document("d3", "three")], vectors)
            store.delete("d0")
            if kind == "merge":
                with store.merging.paused():
                    for i in range(4, 12):
                        store.add([Document(f"d{i}", "more")], vectors[1:])
        before = None if store is None else contents(store)
        filler = fill(path.parent, keep)
        call = {
            "add": lambda: store.add(["d4", "d5"], vectors),
            "upsert": lambda: store.add([Document("d1", "other"), "d3"], vectors),
            "delete": lambda: store.delete(["d1", "d2"]),
            "group": lambda: in_a_group(store, ["d1", "d4"], vectors),
            "merge": lambda: merged(store),
            "compact": lambda: store.compact(),
            "create": lambda: Store.create(path, DIM),
        }[kind]
        made, said = attempt(call)
        outcome = "worked" if said is None else "failed"
        if said is not None:
            assert str(path) in said
            if store is not None:
                assert same(before, contents(store))
                assert check(store).sound
        if kind == "create":
            if outcome == "failed":
                filler.unlink()
            store = made if outcome == "worked" else call()
        elif outcome == "failed":
            for _ in range(20):  # trying again and again does not make it worse: there is one leftover at most
                attempt(lambda: store.add(["d4", "d5"], vectors))
            assert len(check(store).leftovers) <= 1
            filler.unlink()
            call()
        filler.unlink(missing_ok=True)
        with store:
            store.add(["d9"], vectors[:1])
            store.wait()
            assert store.merging.error is None
            assert check(store).sound
            assert not check(store).leftovers
            kept = contents(store)
        with Store.open(path) as store:
            assert same(kept, contents(store))
            assert "d9" in kept
            assert set(kept) <= set(IDS)
        return outcome
