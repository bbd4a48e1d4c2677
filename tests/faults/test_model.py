"""A store beside a plain dict, for tens of thousands of random operations. Durability is not its matter."""

import random

import pytest

from faults import workload
from faults.amounts import MODEL_OPERATIONS, note
from faults.session import Session
from faults.workload import DIM, IDS, apply_to_model, contents, contents_of, operations, same
from weft.storage import catalogue, merger, merging
from weft.storage.check import check
from weft.storage.store import Store

MODES = ("background", "inline", "off")


@pytest.fixture
def careless(monkeypatch):
    """No fsync: twenty thousand of them would be the whole of the test's time."""
    monkeypatch.setattr("os.fsync", lambda handle: None)
    monkeypatch.setattr(catalogue, "connect", workload.careless(catalogue.connect))


@pytest.fixture
def merge_often(monkeypatch):
    monkeypatch.setattr(merging, "BASE", 1)
    monkeypatch.setattr(merger, "CODED_TOKENS", 200)


def compare(path, seed, n):
    """Perform n operations, those of groups counted one by one; return how many merges there were."""
    rng = random.Random(seed)
    model, merges, done = {}, 0, 0
    with Session(path, DIM, modes=MODES) as session:
        for i, op in enumerate(operations(seed)):
            done += max(len(op.steps), 1)
            if done > n:
                break
            if op.kind == "reopen":
                merges += session.store.merging.merges
            session.perform(op)
            apply_to_model(model, op)
            looked = rng.sample(IDS, 2)
            expected = {name: model[name] for name in looked if name in model}
            assert same(expected, contents_of(session.store, looked)), (i, op.kind)
            if op.kind in ("reopen", "compact", "wait") or i % 20 == 0:
                assert same(model, contents(session.store)), (i, op.kind)
            if i % 500 == 0:
                assert check(session.store).problems == ()
                assert session.store.info()["documents"] == len(model)
                assert session.store.merging.error is None
    with Store.open(path) as store:
        store.delete("nobody")  # a writer collects what the others left
        store.wait()
        assert same(model, contents(store))
        report = check(store)
        assert report.problems == ()
        assert not report.leftovers
    return merges


@pytest.mark.usefixtures("careless", "merge_often")
class TestModel:
    @pytest.mark.parametrize("seed", range(4))
    def test_agrees(self, folder, seed):
        assert compare(folder / "index", seed, 5_000) > 100

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(4, 8))
    def test_agrees_for_long(self, folder, seed):
        merges = compare(folder / "index", seed, MODEL_OPERATIONS // 4)
        assert merges > MODEL_OPERATIONS // 200
        note("model", seed=seed, operations=MODEL_OPERATIONS // 4, merges=merges, different=0)
