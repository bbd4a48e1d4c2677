"""The merge policy, simulated: few segments, each document written a few times, and nothing merged in vain."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.storage.merging import DEAD, SMALL, Sized, budget, choose

TOKENS = 100
"""Of a document, in what is simulated."""
MOST_SEGMENTS = 12
"""… beyond log₂(documents)."""
MOST_WRITTEN = 8
"""Bytes written for each byte added."""


class Simulated:
    """An index without its files: the documents of each segment, and which of them were deleted."""

    def __init__(self, usual=1):
        self.usual = usual  # documents of an add
        self.segments = {}  # key → (documents, dead ones)
        self.next = 0
        self.added = self.written = self.merges = self.most = 0
        self.excess = -np.inf

    def add(self, documents):
        self.segments[self.next] = (documents, 0)
        self.next += 1
        self.added += documents
        self.written += documents
        self.settle()

    def settle(self):
        live = self.live
        adds = live // self.usual
        rounds = 0
        # Asking costs more than the rest of the simulation: below the budget nothing but dead segments is merged.
        while len(self.segments) > budget(adds) or any(dead for _, dead in self.segments.values()):
            sized = [
                Sized(key, (number - dead) * (TOKENS + 1), dead / number)
                for key, (number, dead) in self.segments.items()
            ]
            chosen = choose(sized, adds)
            if chosen is None:
                break
            merged = sum(self.segments[key][0] - self.segments[key][1] for key in chosen)
            for key in chosen:
                del self.segments[key]
            if merged:
                self.segments[self.next] = (merged, 0)
                self.next += 1
            self.written += merged
            self.merges += 1
            rounds += 1
            assert rounds < 50, "merges without an end"
        self.most = max(self.most, len(self.segments))
        self.excess = max(self.excess, len(self.segments) - np.log2(max(adds, 2)))

    def delete(self, rng, number):
        """Bury documents wherever they lie."""
        keys = list(self.segments)
        left = np.array([self.segments[key][0] - self.segments[key][1] for key in keys])
        gone = rng.multivariate_hypergeometric(left, min(number, int(left.sum()) - 1), method="marginals")
        for key, count in zip(keys, gone.tolist(), strict=True):
            documents, dead = self.segments[key]
            self.segments[key] = (documents, dead + count)

    @property
    def live(self):
        return sum(number - dead for number, dead in self.segments.values())

    @property
    def amplification(self):
        return self.written / self.added

    def check(self):
        assert self.amplification <= MOST_WRITTEN
        assert self.excess <= MOST_SEGMENTS


def test_single_adds():
    index = Simulated()
    for _ in range(100_000):
        index.add(1)
    assert index.live == 100_000
    index.check()


@pytest.mark.slow
def test_a_million_single_adds():
    index = Simulated()
    for _ in range(1_000_000):
        index.add(1)
    print(f"amplification {index.amplification:.2f}, at most {index.most} segments, {index.merges} merges")
    index.check()


def test_groups_of_a_hundred():
    index = Simulated(usual=100)
    for _ in range(10_000):
        index.add(100)
    index.check()


@pytest.mark.parametrize("seed", [0, 1])
def test_sizes_of_any_kind(seed):
    rng = np.random.default_rng(seed)
    index = Simulated()
    for size in np.ceil(np.exp(rng.normal(2, 2, 5000))).astype(int).tolist():  # a few are a thousand times the others
        index.add(size)
    index.check()


def test_with_deletes():
    rng = np.random.default_rng(2)
    index = Simulated()
    for step in range(8000):
        index.add(1)
        if step % 50 == 49:
            index.delete(rng, 8)
            index.settle()
    index.check()
    assert index.live == 8000 - 8 * 160


def test_what_is_mostly_dead_is_written_anew():
    rng = np.random.default_rng(3)
    index = Simulated()
    index.add(100_000)
    for _ in range(30):
        index.delete(rng, 3000)
        index.settle()
        ((number, dead),) = index.segments.values()
        assert dead / number <= DEAD + 0.04
    assert index.live == 10_000
    assert index.written <= 3 * 100_000  # 1 + 2/3 + 4/9 + …


sized = st.builds(
    lambda live, dead: (live, dead),
    st.one_of(st.integers(0, 300), st.integers(0, 10**9)),
    st.one_of(st.just(0.0), st.floats(0, 1)),
)


@given(st.lists(sized, max_size=40), st.integers(0, 10**7), st.one_of(st.none(), st.integers(0, 10)))
def test_choices_make_sense(parts, documents, elsewhere):
    segments = [Sized(10 + 3 * i, 0 if dead == 1 else live, dead) for i, (live, dead) in enumerate(parts)]
    count = None if elsewhere is None else len(segments) + elsewhere
    chosen = choose(segments, documents, count)
    number = len(segments) if count is None else count
    by_key = {s.key: s for s in segments}
    if chosen is None:
        assert all(s.dead <= DEAD or s.live <= SMALL for s in segments if s.dead < 1)
        assert not any(s.dead == 1 for s in segments)
        assert len(segments) < 2 or number <= budget(documents)
        return
    assert len(set(chosen)) == len(chosen) >= 1
    assert set(chosen) <= set(by_key)
    if len(chosen) == 1:
        assert by_key[chosen[0]].dead > DEAD
    else:
        assert number > budget(documents)
        sizes = [by_key[key].live for key in chosen]
        between = [s.key for s in segments if min(sizes) < s.live < max(sizes)]
        assert set(between) <= set(chosen)  # neighbours in size
