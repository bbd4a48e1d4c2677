"""Search against a plain dict: random operations, every answer equal to brute force over what the dict holds."""

import numpy as np
import pytest

from faults import workload
from weft import Document, TokenVectors
from weft.search import Index
from weft.storage import catalogue, merger
from weft.storage.check import check

DIM = 6
OPERATIONS = {"add": 12, "upsert": 4, "delete": 6, "group": 4, "search": 24, "filter": 8, "wait": 0.5, "compact": 0.3,
              "reopen": 0.5}  # fmt: skip
WEIGHTS = np.array(list(OPERATIONS.values()))


class Model:
    """The index and the dict that it must agree with."""

    def __init__(self, path, seed):
        self.path, self.rng = path, np.random.default_rng(seed)
        self.index = Index.create(path, DIM)
        self.documents = {}
        self.merges = 0

    def text(self):
        # Small integers: exact in any precision, and full of ties.
        return self.rng.integers(-3, 4, (int(self.rng.integers(0, 5)), DIM)).astype(np.float32)

    def put(self, ids, add=None):
        batch = {id: (int(self.rng.integers(0, 5)), self.text()) for id in ids}  # noqa: A001
        documents = [Document(id, metadata={"group": group}) for id, (group, _) in batch.items()]  # noqa: A001
        vectors = TokenVectors.from_list([text for _, text in batch.values()], dim=DIM)
        (add or self.index.add)(documents, vectors)
        self.documents.update(batch)

    def group(self):
        with self.index.writer() as writer:
            for _ in range(self.rng.integers(1, 12)):
                self.put([f"d{self.rng.integers(0, 400)}"], writer.add)
                gone = f"d{self.rng.integers(0, 400)}"
                writer.delete(gone)
                self.documents.pop(gone, None)

    def add(self):
        self.put({f"d{self.rng.integers(0, 400)}" for _ in range(self.rng.integers(1, 4))})

    def upsert(self):
        if self.documents:
            self.put([str(self.rng.choice(list(self.documents)))])

    def delete(self):
        ids = [f"d{self.rng.integers(0, 400)}" for _ in range(4)]
        assert self.index.delete(ids) == len(self.documents.keys() & set(ids))
        for id in ids:  # noqa: A001
            self.documents.pop(id, None)

    def search(self, group=None):
        query = self.rng.integers(-3, 4, (int(self.rng.integers(1, 4)), DIM)).astype(np.float32)
        scores = {
            id: float((query @ text.T).max(axis=1).sum())
            for id, (own, text) in self.documents.items()  # noqa: A001
            if len(text) and group in (None, own)
        }
        condition = None if group is None else f"group == {group}"
        (ranking,) = self.index.search(query, k=5, filter=condition, exact=True, hits=False)
        assert ranking.scores.tolist() == sorted(scores.values(), reverse=True)[:5]
        assert [scores[id] for id in ranking.ids] == ranking.scores.tolist()  # noqa: A001
        assert len(set(ranking.ids)) == len(ranking)

    def filter(self):
        self.search(group=int(self.rng.integers(0, 5)))

    def wait(self):
        self.index.wait()
        assert self.index.merging.error is None

    def compact(self):
        self.index.compact()

    def reopen(self):
        self.merges += self.index.merging.merges
        self.index.close()
        self.index = Index.open(self.path, merge=str(self.rng.choice(["background", "inline", "off"])))
        assert len(self.index) == len(self.documents)


@pytest.fixture
def careless(monkeypatch):
    """No fsync: durability has its own tests."""
    monkeypatch.setattr("os.fsync", lambda handle: None)
    monkeypatch.setattr(catalogue, "connect", workload.careless(catalogue.connect))


def compare(path, seed, n):
    model = Model(path, seed)
    try:
        for operation in model.rng.choice(list(OPERATIONS), n, p=WEIGHTS / WEIGHTS.sum()):
            getattr(model, str(operation))()
            if model.index.merging.mode == "off" and model.index.info()["segments"] > 60:  # as a user would
                model.compact()
        assert check(model.index).problems == ()
    finally:
        model.index.close()
    assert model.merges


@pytest.mark.usefixtures("careless")
class TestSearchModel:
    @pytest.mark.parametrize("seed", range(2))
    def test_every_answer_equals_brute_force(self, folder, seed):
        compare(folder / "m.weft", seed, 2500)

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(2, 6))
    def test_for_long(self, folder, seed):
        compare(folder / "m.weft", seed, 10_000)


@pytest.mark.parametrize("merge", ["background", "inline", "off"])
def test_the_same_with_coded_segments(tmp_path, monkeypatch, merge):
    """Codes round: scores are compared within the rounding, and every document must be findable."""
    monkeypatch.setattr(merger, "CODED_TOKENS", 200)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    rng = np.random.default_rng(7)
    documents = {}
    with Index.create(tmp_path / "c.weft", DIM, merge=merge) as index:
        for _ in range(40):
            batch = {f"d{rng.integers(0, 300)}": rng.standard_normal((int(rng.integers(1, 6)), DIM)) for _ in range(60)}
            index.add(list(batch), TokenVectors.from_list(list(batch.values())))
            documents.update(batch)
            gone = [f"d{rng.integers(0, 300)}" for _ in range(10)]
            index.delete(gone)
            for id in gone:  # noqa: A001
                documents.pop(id, None)
            if rng.random() < 0.3:
                index.compact()
            query = rng.standard_normal((3, DIM)).astype(np.float32)
            (ranking,) = index.search(query, k=8, exact=True)
            scores = sorted((float((query @ x.T).max(axis=1).sum()) for x in documents.values()), reverse=True)
            assert ranking.scores == pytest.approx(scores[:8], rel=0.05, abs=0.2)
            assert {r.id for r in index.search(query, k=1000, refine=1000)[0]} == set(documents)
        assert check(index).sound
