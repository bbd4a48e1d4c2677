"""Results read all at once are what reading them one by one gives."""

import numpy as np
import pytest

from weft.errors import CorruptIndexError
from weft.storage.shown import shown
from weft.storage.store import Store
from weft.types import Document, TokenVectors

DIM = 8


def batch(names, seed):
    """Documents whose tokens lie close together, far apart, and some outside of the text."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 30, len(names))
    spans = []
    for length in lengths:
        starts = np.cumsum(rng.integers(0, 400, length))
        own = np.stack([starts, starts + rng.integers(1, 300, length)], axis=1)
        own[rng.random(length) < 0.2] = -1
        spans.append(own)
    vectors = [rng.standard_normal((length, DIM)).astype(np.float16) for length in lengths]
    documents = [Document(name, f"text of {name}", {"seed": seed}) for name in names]
    return documents, TokenVectors.from_list(vectors, spans=spans, dim=DIM)


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "s", DIM, merge="off") as made:
        made.add(*batch([f"a{n}" for n in range(700)], 1))
        made.compact()  # one segment of codes, and two flat ones
        made.add(*batch([f"b{n}" for n in range(9)], 2))
        made.add(*batch(["a3", "a699", "c"], 3))
        made.delete(["a5", "b1"])
        yield made


def test_it_is_what_reading_one_by_one_gives(store):
    wanted = ["c", "b0", "a3", "a699", "a0", "b8", "a4"]
    for name, one in zip(wanted, shown(store, wanted), strict=True):
        assert one.document == store.get(name)
        np.testing.assert_array_equal(one.spans, store.reading(name).spans)
    assert [one.spans for one in shown(store, wanted, spans=False)] == [None] * len(wanted)
    assert shown(store, []) == []


def test_more_than_one_query_of_the_catalogue_holds(store):
    every = [f"a{n}" for n in range(700) if n != 5] + ["c"]
    found = shown(store, every[::-1])
    assert [one.document.id for one in found] == every[::-1]
    for name, one in list(zip(every[::-1], found, strict=True))[::50]:
        np.testing.assert_array_equal(one.spans, store.reading(name).spans)


def test_an_index_without_places_has_none_to_show(tmp_path):
    with Store.create(tmp_path / "s", DIM, reading=False) as plain:
        plain.add(*batch(["a", "b"], 1))
        assert [one.spans for one in shown(plain, ["b", "a"])] == [None, None]


def test_a_result_that_is_not_in_the_catalogue_is_damage(store):
    with pytest.raises(CorruptIndexError, match="'a5'"):
        shown(store, ["a4", "a5"])


def test_a_changed_row_is_noticed(store):
    store.close()
    import sqlite3

    with sqlite3.connect(store.folder / "catalogue.sqlite") as db:
        db.execute("PRAGMA trusted_schema = ON")
        db.execute("UPDATE documents SET metadata = '{\"seed\": 7}' WHERE id = 'a4'")
    db.close()
    with Store.open(store.folder) as again, pytest.raises(CorruptIndexError, match="checksum of document 'a4'"):
        shown(again, ["a0", "a4"])
