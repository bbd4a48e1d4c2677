"""A store beside a plain dict, for tens of thousands of random operations. Durability is not its matter."""

import random
from itertools import islice

import pytest

from faults import workload
from faults.workload import DIM, IDS, apply_to_model, apply_to_store, contents, contents_of, operations
from weft.storage import catalogue
from weft.storage.check import check
from weft.storage.store import Store


@pytest.fixture
def careless(monkeypatch):
    """No fsync: twenty thousand of them would be the whole of the test's time."""
    monkeypatch.setattr("os.fsync", lambda handle: None)
    monkeypatch.setattr(catalogue, "_connect", workload.careless(catalogue._connect))


def compare(path, seed, n):
    rng = random.Random(seed)
    model = {}
    store = Store.create(path, DIM)
    try:
        for i, op in enumerate(islice(operations(seed, ()), n)):
            if op.kind == "reopen":
                store.close()
                store = Store.open(path)
            apply_to_store(store, op)
            apply_to_model(model, op)
            looked = rng.choice(IDS)
            assert contents_of(store, [looked]).get(looked) == model.get(looked), (i, op.kind)
            if op.kind == "reopen" or i % 20 == 0:
                assert contents(store) == model, (i, op.kind)
            if i % 500 == 0:
                assert check(store).sound
                assert store.info()["documents"] == len(model)
    finally:
        store.close()
    with Store.open(path) as store:
        assert contents(store) == model
        report = check(store)
        assert report.sound
        assert not report.leftovers


@pytest.mark.usefixtures("careless")
class TestModel:
    @pytest.mark.parametrize("seed", range(4))
    def test_agrees(self, folder, seed):
        compare(folder / "index", seed, 5_000)

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(4, 8))
    def test_agrees_for_long(self, folder, seed):
        compare(folder / "index", seed, 50_000)
