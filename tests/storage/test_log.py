"""SQLite's log: it stays short where readers never leave it, and a reader who stays long holds up nobody."""

import threading
from itertools import pairwise

import numpy as np
import pytest

from weft import Document, Index, TokenVectors
from weft.storage import database
from weft.storage.database import log_size

LIMIT = 200_000


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(database, "LONG_LOG", LIMIT)
    monkeypatch.setattr("os.fsync", lambda handle: None)


def add(index, n):
    text = f"text number {n} " * 50
    index.add([Document(f"d{n % 10}", text)], TokenVectors.from_list([np.ones((2, 4), np.float32)]))


def test_is_folded_back_while_others_read_without_a_pause(tmp_path):
    """A pair of readers, of whom one always holds a state: SQLite alone would let the log grow for ever."""
    ready = [threading.Semaphore(0), threading.Semaphore(1)]
    done, seen = threading.Event(), []

    def read(index, own, other):
        while not done.is_set():
            with index.view() as view:
                seen.append(view.generation)
                own.release()  # the other one may end its state: this one holds another
                other.acquire(timeout=1)

    with Index.create(tmp_path / "i.weft", 4, merge="off") as index:
        threads = [threading.Thread(target=read, args=(index, *pair)) for pair in (ready, ready[::-1])]
        for thread in threads:
            thread.start()
        sizes = []
        for n in range(150):
            add(index, n)
            sizes.append(log_size(index.folder))
        done.set()
        for thread in threads:
            thread.join()
        assert len(set(seen)) > 10
        assert len(index) == 10
    assert max(sizes) < 3 * LIMIT
    assert sum(after < before for before, after in pairwise(sizes)) > 2


def test_a_reader_who_stays_is_waited_for_once(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "_FOLDING_PATIENCE", 0)
    tried = []
    fold = database.fold_log
    monkeypatch.setattr("weft.storage.catalogue.fold_log", lambda *given: tried.append(fold(*given)) or tried[-1])
    with Index.create(tmp_path / "i.weft", 4, merge="off") as index, Index.open(tmp_path / "i.weft") as reader:
        with reader.view() as view:
            before = view.generation
            while log_size(index.folder) < 4 * LIMIT:
                add(index, len(tried))
            with reader.view() as view:
                assert view.generation == before
                assert len(reader) == 0
        assert 2 <= len(set(tried)) <= 6  # again only when the log has grown as much again
        add(index, 0)
        while log_size(index.folder) > LIMIT:
            add(index, len(tried))
        assert len(reader) == 10
