"""Building from a stream: resumable, early searchable, and the same index whatever the batches."""

import numpy as np
import pytest

from weft import Document, TokenVectors, WeftError
from weft.search import Index
from weft.storage.building import _batches, build
from weft.storage.check import check
from weft.storage.store import Store

DIM = 4


def stream(n, rng=None):
    rng = rng or np.random.default_rng(0)
    for i in range(n):
        yield Document(f"d{i}", f"text {i}"), rng.standard_normal((int(rng.integers(0, 9)), DIM)).astype(np.float32)


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "b.weft", DIM) as made:
        yield made


def test_batches_double_and_the_first_is_small(monkeypatch):
    monkeypatch.setattr("weft.storage.building.FIRST_TOKENS", 10)
    texts = [(f"d{i}", np.ones((5, DIM))) for i in range(60)]
    sizes = [vectors.n_tokens for _, vectors in _batches(iter(texts), DIM, most_tokens=80)]
    assert sizes == [10, 20, 40, 80, 80, 70]


def test_everything_arrives(store):
    assert build(store, stream(50)) == 50
    assert len(store) == 50
    for document, vectors in stream(50):
        assert store.get(document.id) == document
        assert np.array_equal(store.vectors(document.id).values, vectors)
    assert check(store).sound


def test_an_interrupted_build_goes_on_where_it_stopped(store, monkeypatch):
    monkeypatch.setattr("weft.storage.building.FIRST_TOKENS", 20)

    class InterruptedBuildError(Exception):
        pass

    def failing():
        for i, item in enumerate(stream(100)):
            if i == 60:
                raise InterruptedBuildError
            yield item

    with pytest.raises(InterruptedBuildError):
        build(store, failing())
    kept = len(store)
    assert 0 < kept < 60  # searchable long before the end
    assert check(store).sound
    assert build(store, stream(100)) == 100 - kept
    assert len(store) == 100


def test_an_index_is_compacted_after_a_build(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.storage.building.FIRST_TOKENS", 20)
    with Index.create(tmp_path / "i.weft", DIM) as index:
        index.build(stream(80), total=80, progress=False)
        assert index.info()["segments"] == 1
        assert index.check().sound
        assert "d7" in index
        assert "nobody" not in index


def test_progress_bar_says_rate_and_time_left(store, capsys):
    build(store, stream(30), total=30, progress=True)
    written = capsys.readouterr()
    assert written.out == ""
    assert "30/30" in written.err
    assert "documents/s" in written.err


def test_no_bar_where_nobody_watches(store, capsys):
    build(store, stream(3))
    assert capsys.readouterr().err == ""


def test_mistakes(store):
    with pytest.raises(WeftError, match="most_tokens"):
        build(store, stream(3), most_tokens=0)
    with pytest.raises(WeftError, match="dimension"):
        build(store, [("a", np.ones((2, DIM + 1)))])
    assert len(store) == 0


def test_merging_keeps_ids_saliences_and_precision_apart(store):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, DIM)).astype(np.float32)
    store.add(["plain"], TokenVectors.from_list([x]))
    store.add(["half"], TokenVectors.from_list([x.astype(np.float16)]))
    store.add(["salient"], TokenVectors.from_list([x], salience=[[0.5, 1.0]]))
    store.add(["named"], TokenVectors.from_list([x], token_ids=[[3, 4]]))
    store.add(["plain too", "gone"], TokenVectors.from_list([x, x]))
    store.delete("gone")
    store.compact()
    assert store.info()["segments"] == 4
    assert store.vectors("salient").salience.tolist() == [0.5, 1.0]
    assert store.vectors("named").token_ids.tolist() == [3, 4]
    assert store.vectors("half").values.dtype == np.float16
    assert np.array_equal(store.vectors("plain too").values, x)
    assert check(store).sound
