"""One long search stops at its next step once nobody waits for it, and leaves the index as it was."""

import numpy as np
import pytest

from weft import Document, Index, TokenVectors
from weft.search import Searcher
from weft.stopping import stopping

DIM = 16
WORDS = ("tide", "moon", "salt", "ship", "rope", "mast")


class GoneError(Exception):
    """Nobody waits any more."""


class Patience:
    """A check that lets some steps pass, then raises for ever."""

    def __init__(self, steps):
        self.steps, self.asked = steps, 0

    def __call__(self):
        self.asked += 1
        if self.asked > self.steps:
            raise GoneError


class Encoder:
    def encode_query(self, texts):
        rng = np.random.default_rng(5)
        return TokenVectors.from_list([rng.standard_normal((4, DIM)).astype(np.float32) for _ in texts])


@pytest.fixture(scope="module")
def searcher(tmp_path_factory):
    rng = np.random.default_rng(0)
    with Index.create(tmp_path_factory.mktemp("stopping") / "i", DIM, merge="off") as index:
        names = [f"d{n}" for n in range(6000)]
        rows = [Document(name, " ".join(rng.choice(WORDS, 30)), {"n": n}) for n, name in enumerate(names)]
        index.add(rows, TokenVectors.from_list([rng.standard_normal((6, DIM)).astype(np.float16) for _ in rows]))
        index.compact()
        index.add([Document("new", "tide")], TokenVectors.from_list([np.ones((2, DIM), np.float16)]))
        yield Searcher(index, Encoder())


@pytest.mark.parametrize(
    "options",
    [
        {"exact": True, "alignment": "top-k:2"},
        {"exact": True, "alignment": "top-p:0.1"},
        {"exact": True, "alignment": "xtr:2000"},
        {"filter": "n > 17 and n < 5000"},
        {"hybrid": "rrf"},
    ],
    ids=str,
)
def test_each_step_can_be_the_last(searcher, options):
    whole = Patience(10**9)
    with stopping(whole):
        (expected,) = searcher.search(["moon tide"], 5, **options)
    assert whole.asked >= 3  # so many steps it has
    for steps in {0, 1, whole.asked // 2, whole.asked - 1}:
        searcher.index._filtered.clear()
        with stopping(Patience(steps)), pytest.raises(GoneError):
            searcher.search(["moon tide"], 5, **options)
        (again,) = searcher.search(["moon tide"], 5, **options)
        assert again.ranking.ids == expected.ranking.ids


def test_sql_is_interrupted_while_it_runs(searcher):
    """Counting values is one statement: only SQLite itself can stop in the middle of it."""
    whole = Patience(10**9)
    with stopping(whole):
        searcher.index.value_counts()
    assert whole.asked > 2
    patience = Patience(1)
    with stopping(patience), pytest.raises(GoneError):
        searcher.index.value_counts()
    assert patience.asked <= 4
    assert len(searcher.index.value_counts()["n"]) == 20
