"""An index that is written one document at a time answers as well as one that was built, all the while."""

import numpy as np
import pytest

from weft import Document, TokenVectors
from weft.search import Index
from weft.storage import merger

DIM = 16
TOPICS = 40
K = 10


class Stream:
    """Documents of topics, as they come and go, and a dictionary of those that count."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.topics = self.rng.standard_normal((TOPICS, DIM))
        self.live = {}  # id → (vectors, topic)

    def vectors(self, count):
        topic = int(self.rng.integers(0, TOPICS))
        near = self.topics[np.where(self.rng.random(count) < 0.6, topic, self.rng.integers(0, TOPICS, count))]
        made = near + 0.6 * self.rng.standard_normal((count, DIM))
        return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32), topic

    def step(self, index, i):
        """Add a document; now and then replace or delete another."""
        chance = self.rng.random()
        name = f"d{i}"
        if self.live and chance < 0.15:
            name = list(self.live)[int(self.rng.integers(0, len(self.live)))]
        if self.live and chance < 0.05:
            index.delete(name)
            del self.live[name]
            name = f"d{i}"
        vectors, topic = self.vectors(int(self.rng.integers(4, 12)))
        index.add([Document(name, f"of {topic}", {"topic": topic})], TokenVectors.from_list([vectors]))
        self.live[name] = vectors, topic

    def best(self, query, topics=None):
        """The scores of all that count, by brute force, best first."""
        names = [name for name, (_, topic) in self.live.items() if topics is None or topic in topics]
        scores = {name: float((query @ self.live[name][0].T).max(axis=1).sum()) for name in names}
        return dict(sorted(scores.items(), key=lambda pair: -pair[1]))


def recall(ranking, best):
    """Share of the top K that was found; what scores as much as the last of them is as good."""
    wanted = list(best.values())[:K]
    return sum(best[name] >= wanted[-1] - 2e-2 for name in ranking.ids) / len(wanted)


@pytest.mark.parametrize(("bits", "adds"), [(8, 1500), (2, 600)])
def test_recall_while_documents_come_and_go(tmp_path, monkeypatch, bits, adds):
    monkeypatch.setattr(merger, "CODED_TOKENS", 1200)
    stream, found, counts = Stream(bits), [], []
    with Index.create(tmp_path / "i", DIM, bits=bits) as index:
        for i in range(adds):
            stream.step(index, i)
            if i % 25 == 24:
                query, _ = stream.vectors(5)
                (ranking,) = index.search(query, K)
                best = stream.best(query)
                assert len(set(ranking.ids)) == len(ranking.ids) == min(K, len(best))
                assert set(ranking.ids) <= set(best)  # nothing deleted
                # Two bits are coarse: what they lose is not for the search to find.
                wanted = list(best)[:K] if bits == 8 else index.search(query, K, exact=True)[0].ids
                found.append(len(set(ranking.ids) & set(wanted)) / len(wanted))
                with index.view() as view:
                    counts.append(len(view.segments) - np.log2(i + 1))
                    coded = [s.segment.coded for s in view.segments]
            if i % 100 == 99:
                some = tuple(stream.rng.choice(TOPICS, 4, replace=False).tolist())
                query, _ = stream.vectors(5)
                kept = " or ".join(f"topic == {topic}" for topic in some)
                (ranking,) = index.search(query, K, filter=kept)
                best = stream.best(query, some)
                assert set(ranking.ids) <= set(best)
                assert len(ranking) == min(K, len(best))
                if bits == 8:
                    assert recall(ranking, best) >= 0.8
                else:
                    exact = index.search(query, K, filter=kept, exact=True)[0].ids
                    assert len(set(ranking.ids) & set(exact)) >= 0.8 * len(exact)
        assert any(coded)
        assert np.mean(found) >= 0.97
        assert max(counts) <= 12
        assert len(index) == len(stream.live)
        index.wait()
        queries = [stream.vectors(5)[0] for _ in range(10)]
        before = [index.search(query, K, exact=True)[0] for query in queries]
        index.compact()
        assert index.info()["segments"] == 1
        assert sorted(index.matching("topic >= 0")) == sorted(stream.live)
        for query, old in zip(queries, before, strict=True):
            (new,) = index.search(query, K, exact=True)
            close = {8: 0.05, 2: 0.8}[bits]  # newly coded, some of them
            np.testing.assert_allclose(new.scores, old.scores, atol=close)
            np.testing.assert_allclose(new.scores, list(stream.best(query).values())[:K], atol=close)
        assert index.check().sound


def test_many_small_segments_answer_as_one(tmp_path):
    # merge="off", or left by a crash: every document its own segment.
    stream = Stream(1)
    with Index.create(tmp_path / "i", DIM, merge="off") as index:
        for i in range(300):
            stream.step(index, i)
        queries = [stream.vectors(5)[0] for _ in range(10)]
        before = [index.search(query, K)[0] for query in queries]
        index.compact()
        for query, old in zip(queries, before, strict=True):
            (new,) = index.search(query, K)
            assert new.ids == old.ids == tuple(list(stream.best(query))[:K])
            assert new.scores.tobytes() == old.scores.tobytes()
