"""Top-p in a pruned index counts the tokens that documents had before: k = max(⌊p·m⌋, 1), m the full length."""

from itertools import pairwise

import numpy as np
import pytest

import oracles
from weft import TokenVectors
from weft.search import Index
from weft.storage import merger
from weft.storage.check import check

DIM, N = 8, 60


@pytest.mark.parametrize("form", ["flat", "coded", "merged"])
def test_top_p_counts_full_lengths(tmp_path, monkeypatch, form):
    monkeypatch.setattr(merger, "CODED_TOKENS", 10**9 if form == "flat" else 100)
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 40, N)
    texts = [rng.standard_normal((m, DIM)) for m in lengths]
    texts = [(x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32) for x in texts]
    documents = TokenVectors.from_list(texts, salience=[rng.permutation(m) + 1.0 for m in lengths])
    query = rng.standard_normal((3, DIM)).astype(np.float32)
    with Index.create(tmp_path / "i", DIM, beta_d=0.5, salience_weighs=False, merge="off") as index:
        for a, b in pairwise([0, 30, 50, N]):
            index.add([f"d{i}" for i in range(a, b)], documents[a:b])
        if form == "merged":
            index.compact()
        expected = {}
        for i, m in enumerate(lengths.tolist()):
            kept = index.vectors(f"d{i}").values
            assert len(kept) == -(-m // 2)
            k = min(max(m * 3 // 10, 1), len(kept))
            S = oracles.similarities(query, kept)
            expected[f"d{i}"] = oracles.relevance(S, oracles.top_k(S, len(kept), k), "sum")
        best = sorted(expected, key=lambda name: -expected[name])[:5]
        for exact in (True, False):
            (found,) = index.search(query, 5, alignment="top-p:0.3", exact=exact)
            assert list(found.ids) == best
            assert found.scores == pytest.approx([expected[name] for name in best], rel=2e-3)
            assert len(found.hits[0]) == 3 * min(max(lengths[int(best[0][1:])] * 3 // 10, 1), 20)
        assert check(index).sound
