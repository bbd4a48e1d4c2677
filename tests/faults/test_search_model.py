"""Search against a plain dict: 20,000 random operations, every answer equal to brute force over what the dict holds."""

import numpy as np
import pytest

from weft import Document, TokenVectors
from weft.search import Index
from weft.storage import merger
from weft.storage.check import check

DIM = 6
OPERATIONS = ("add", "add", "add", "upsert", "delete", "search", "search", "search", "filter", "compact", "reopen")
WEIGHTS = np.array([4, 4, 4, 4, 6, 8, 8, 8, 8, 0.3, 0.5])


class Model:
    """The index and the dict that it must agree with."""

    def __init__(self, path, seed):
        self.path, self.rng = path, np.random.default_rng(seed)
        self.index = Index.create(path, DIM)
        self.documents = {}

    def text(self):
        # Small integers: exact in any precision, and full of ties.
        return self.rng.integers(-3, 4, (int(self.rng.integers(0, 5)), DIM)).astype(np.float32)

    def put(self, ids):
        batch = {id: (int(self.rng.integers(0, 5)), self.text()) for id in ids}  # noqa: A001
        documents = [Document(id, metadata={"group": group}) for id, (group, _) in batch.items()]  # noqa: A001
        self.index.add(documents, TokenVectors.from_list([text for _, text in batch.values()], dim=DIM))
        self.documents.update(batch)

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

    def compact(self):
        self.index.compact()

    def reopen(self):
        self.index.close()
        self.index = Index.open(self.path)
        assert len(self.index) == len(self.documents)


@pytest.mark.parametrize("seed", range(4))
def test_every_answer_equals_brute_force(tmp_path, monkeypatch, seed):
    monkeypatch.setattr("os.fsync", lambda handle: None)  # durability has its own tests
    model = Model(tmp_path / "m.weft", seed)
    model.index.catalogue._db.execute("PRAGMA synchronous = OFF")
    chosen = model.rng.choice(OPERATIONS, 5000, p=WEIGHTS / WEIGHTS.sum())
    for operation in chosen:
        getattr(model, str(operation))()
        if operation == "reopen":
            model.index.catalogue._db.execute("PRAGMA synchronous = OFF")
        if len(model.index._opened) > 40:  # as a user would
            model.compact()
    assert check(model.index).sound
    model.index.close()


def test_the_same_with_coded_segments(tmp_path, monkeypatch):
    """Codes round: scores are compared within the rounding, and every document must be findable."""
    monkeypatch.setattr(merger, "CODED_TOKENS", 200)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    rng = np.random.default_rng(7)
    documents = {}
    with Index.create(tmp_path / "c.weft", DIM) as index:
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
