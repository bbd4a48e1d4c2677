"""Operations: the paper's numbers, and the walk through a coded segment beside the engine's own."""

import numpy as np
import pytest

from weft.analysis.counting import SearchCounter, colbert_flops, xtr_flops
from weft.search.tokens import one_in
from weft.storage.arrays import Arrays
from weft.storage.codecs import CODECS
from weft.storage.codecs import clustering as codec
from weft.storage.segments.coded import CodedSegment
from weft.storage.segments.effort import CELLS
from weft.storage.segments.pieces import Given
from weft.storage.segments.writing import write_segment
from weft.types import TokenVectors


def test_the_papers_table():
    # XTR table 1: 0.36e9 and 0.09e6 operations, 4,000 times fewer.
    assert round(colbert_flops(16, 100, 55, 128) / 1e9, 2) == 0.36
    assert round(xtr_flops(16, 100, 2.5) / 1e6, 2) == 0.09
    assert round(colbert_flops(16, 100, 55, 128) / xtr_flops(16, 100, 2.5), -3) == 4000


@pytest.fixture(scope="module")
def segment(tmp_path_factory):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((52_000, 8)).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    path = tmp_path_factory.mktemp("segment") / "a.seg"
    write_segment(path, [Given(TokenVectors(values, np.arange(0, 52_001, 13)))], CODECS[8])  # 4,000 documents of 13
    return CodedSegment.open(path)


def test_the_walk_reads_the_lists_of_what_the_engine_finds(segment):
    counter = SearchCounter(segment)
    with Arrays(segment.path) as stored:
        starts, lists = stored["list_starts"].copy(), stored["lists"].copy()
    rng = np.random.default_rng(1)
    for _ in range(5):
        rotated = segment.rotate(rng.standard_normal((6, 8)).astype(np.float32))
        scored, touched = counter.walk(rotated)
        named = set(np.concatenate([lists[starts[c] : starts[c + 1]] for c in touched]).tolist())
        found = segment.candidates(rotated, None, CELLS, counter.centroids, 200)
        # The engine ranks centroids by bytes: a few at the edge differ.
        assert np.mean([d in named for d in found.tolist()]) > 0.97
        assert len(touched) <= 6 * counter.centroids <= scored


def test_centroids_are_read_in_the_order_of_their_cells(segment):
    counter = SearchCounter(segment)
    with Arrays(segment.path) as stored:
        codes = np.round(counter._centroids * np.float32(stored.info["scale"]) + 128).astype(np.uint8)
        blocks, first = codec.block_layout(codes, stored["cell_starts"])
        assert np.array_equal(blocks, stored["centroid_codes"])
        assert np.array_equal(first, stored["cell_blocks"])


def test_stages_of_a_search(segment):
    counts = SearchCounter(segment).count(np.eye(8, dtype=np.float32)[:3], 10)
    assert list(counts) == ["rotation", "cells", "centroids", "lists", "sketches", "integer scores", "final scores"]
    dim = codec.padded_dim(8)
    refine = segment.size.refine
    assert counts["integer scores"] == 3 * (2 * refine * 13 * dim + refine * 13)
    brute = 3 * (2 * 52_000 * 8 + 52_000 + 4000)
    assert sum(counts.values()) < brute


def test_what_xtr_takes_besides(segment):
    query = np.eye(8, dtype=np.float32)[:3]
    counter, dim = SearchCounter(segment), codec.padded_dim(8)
    cells = 2 * 3 * len(counter._cells) * dim
    # A sample of one token in so many, of which only those of near cells are compared; a small k′ takes a scan.
    sampled = counter.count_last(query, 1000)
    assert cells < sampled < cells + 3 * (2 * dim + 1) * (52_000 // one_in(1000))
    assert counter.count_last(query, 52_000) <= cells + 3 * (2 * dim + 1) * (52_000 // one_in(52_000) + 1)
    assert counter.count_last(query, 100) == 3 * 52_000 * (2 * dim + 1)
