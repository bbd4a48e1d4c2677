"""Segments read before anyone asks: all of them or, where they would not fit the memory, none."""

from contextlib import contextmanager

import numpy as np
import pytest

from weft import Index, TokenVectors
from weft.errors import CorruptIndexError
from weft.storage import ahead, merger
from weft.storage.arrays import BLOCK, Arrays

DIM = 64


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A coded segment and a flat one."""
    monkeypatch.setattr(merger, "CODED_TOKENS", 200)
    rng = np.random.default_rng(0)
    with Index.create(tmp_path / "i", DIM, merge="off") as index:
        for start, stop in ((0, 800), (800, 804)):
            vectors = TokenVectors.from_list(
                [rng.standard_normal((4, DIM)).astype(np.float32) for _ in range(stop - start)]
            )
            index.add([f"d{n}" for n in range(start, stop)], vectors)
            if not start:
                index.compact()
        with index.view() as view:
            assert sorted(s.segment.coded for s in view.segments) == [False, True]
    return tmp_path / "i"


def coded(index):
    """The arrays of the coded segment; a flat one of a single block is checked when it is opened."""
    with index.view() as view:
        return next(s.segment._arrays for s in view.segments if s.segment.coded)


@contextmanager
def coded_checks(monkeypatch):
    """Collect the documents whose bytes a search has to check."""
    checked = []
    with monkeypatch.context() as patched:
        patched.setattr(Arrays, "verify_rows", lambda self, name, starts, stops: checked.append(name))
        yield checked


def test_everything_is_checked_once_and_no_more_by_searches(path, monkeypatch):
    query = np.ones((2, DIM), np.float32)
    with Index.open(path) as index:
        with coded_checks(monkeypatch) as checked:
            index.search(query, 5)
        assert checked
    with Index.open(path) as index:
        assert not coded(index)._verified.all()
        assert index.read_ahead()
        assert coded(index)._verified.all()
        with coded_checks(monkeypatch) as checked:
            (found,) = index.search(query, 5)
        assert not checked
    with Index.open(path) as index:
        (again,) = index.search(query, 5)
    assert (found.ids, found.scores.tolist()) == (again.ids, again.scores.tolist())


def test_an_index_that_the_memory_cannot_hold_is_left_alone(path, monkeypatch):
    monkeypatch.setattr(ahead, "memory", lambda: 1000)
    with Index.open(path) as index:
        assert not index.read_ahead()
        assert not coded(index)._verified.all()


def test_damage_is_left_to_the_search_that_meets_it(path):
    with Index.open(path) as index:
        file, (_, _, start, _) = coded(index).path, coded(index)._places["codes"]
    data = bytearray(file.read_bytes())
    data[start + 2 * BLOCK] ^= 1
    file.write_bytes(data)
    with Index.open(path) as index:
        assert index.read_ahead()
        with pytest.raises(CorruptIndexError, match="checksum"):
            index.search(np.ones((2, DIM), np.float32), 900, exact=True)
