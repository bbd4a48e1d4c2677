"""Shards of one build share the scale of their codes and their cells, found by a sample of all documents."""

import json
from collections import Counter

import numpy as np
import pytest

import weft
from weft.cluster import codebook
from weft.cluster.building import Job, build_shard, find_codebook, publish
from weft.cluster.store import ShardStore
from weft.errors import CorruptIndexError
from weft.storage import merger

SHARDS, DOCUMENTS = 3, 150
QUERIES = [f"Text {n} is about the number {n}" for n in range(0, DOCUMENTS, 15)]


@pytest.fixture(autouse=True)
def small_segments_are_coded(monkeypatch):
    monkeypatch.setattr(merger, "CODED_TOKENS", 150)


@pytest.fixture
def source(tmp_path):
    rows = [{"id": f"d{n}", "text": f"Text {n} is about the number {n} and ships."} for n in range(DOCUMENTS)]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def built(store, job, numbers, tmp_path):
    shards = [build_shard(job, number, store) for number in numbers]
    return [weft.TextIndex.open(store.fetch_shard(shard, tmp_path / "here" / shard.name)) for shard in shards]


def codes_of(texts):
    """Return the byte codes of all tokens, and the scale and the cells that they are coded with."""
    with texts.index.view() as view:
        (live,) = view.segments
        segment = live.segment
        book = segment.codebook()
        rows = segment.codec.byte_rows(segment.arrays, np.arange(segment.n_tokens)).tolist()
    return rows, book.scale, book.cells.tolist()


def test_shards_share_it_and_find_what_one_index_finds(source, tmp_path):
    store, job = ShardStore(tmp_path / "store"), Job.of([source], SHARDS)
    # In any order, as tasks come: whoever is first finds it, and all others read it.
    shards = built(store, job, (2, 0, 1), tmp_path)
    (whole,) = built(ShardStore(tmp_path / "one"), Job.of([source], 1), [0], tmp_path)
    found = [codes_of(texts) for texts in shards]
    shared = codebook.known(store, job.name)
    assert {scale for _, scale, _ in found} == {shared.scale}
    assert all(cells == shared.cells.tolist() for _, _, cells in found)
    one, scale, _ = codes_of(whole)
    assert scale == shared.scale
    # The last digits of a text's vectors depend on the texts that it is encoded beside, and a digit can turn a code.
    rows = Counter(tuple(row) for rows, _, _ in found for row in rows)
    assert rows.total() == len(one)
    assert (rows & Counter(map(tuple, one))).total() >= 0.99 * len(one)
    for query in QUERIES:
        options = {"alignment": "top-k:1", "exact": True}
        merged = sorted((-m.score, m.id) for texts in shards for m in texts.search(query, 5, **options))[:5]
        expected = sorted((-m.score, m.id) for m in whole.search(query, 5, **options))
        assert [score for score, _ in merged] == pytest.approx([score for score, _ in expected], abs=1e-3)
    for texts in (*shards, whole):
        assert not texts.check().problems
        texts.close()
    publish(job, store)
    assert find_codebook(job, store).cells.tolist() == shared.cells.tolist()  # nothing is found twice


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_shards_that_were_written_go_on_by_themselves(source, tmp_path, bits):
    store, job = ShardStore(tmp_path / "store"), Job.of([source], 2, bits=bits)
    (texts,) = built(store, job, [0], tmp_path)
    with texts:
        texts.add({f"n{n}": f"Zebra {n} runs with {n} others." for n in range(60)})
        texts.compact()
        assert not texts.check().problems
        assert texts.search("Zebra 7 runs with 7 others", 1)[0].id == "n7"


def test_small_shards_need_none(source, tmp_path, monkeypatch):
    monkeypatch.setattr(merger, "CODED_TOKENS", 50_000)
    store, job = ShardStore(tmp_path / "store"), Job.of([source], SHARDS)
    assert find_codebook(job, store) is None
    monkeypatch.setattr(merger, "CODED_TOKENS", 4_000)  # so many bytes, and fewer tokens
    assert find_codebook(job, store) is None
    assert codebook.known(store, job.name) is None


def test_a_damaged_one_is_told(source, tmp_path):
    store, job = ShardStore(tmp_path / "store"), Job.of([source], SHARDS)
    find_codebook(job, store)
    (path,) = (tmp_path / "store" / "codebooks").iterdir()
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptIndexError, match="damaged"):
        build_shard(job, 0, store)
