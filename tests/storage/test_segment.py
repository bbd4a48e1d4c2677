"""Segments: flat and coded with 8, 4 and 2 bits."""

import numpy as np
import pytest

from weft import TokenVectors
from weft.errors import CorruptIndexError
from weft.storage import merger as module
from weft.storage.arrays import Arrays, write_arrays
from weft.storage.codecs import CODECS
from weft.storage.segments import open_segment, writing
from weft.storage.segments.pieces import Given
from weft.storage.segments.writing import write_segment

BITS = (8, 4, 2)
LOST = {8: 0.02, 4: 0.06, 2: 0.2}
"""Of the vectors' norm, on the whole."""


def texts(seed=0, documents=120, dim=31, dtype=np.float32, norm=1.0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 40, documents)
    kinds = rng.standard_normal((30, dim))
    values = kinds[rng.integers(0, 30, lengths.sum())] + 0.4 * rng.standard_normal((lengths.sum(), dim))
    values *= norm / np.linalg.norm(values, axis=1, keepdims=True)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return TokenVectors.trusted(
        values.astype(dtype), offsets, rng.integers(0, 99, len(values)).astype(np.int32),
        rng.random(len(values)).astype(np.float32),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _coded_early(monkeypatch):
    monkeypatch.setattr(module, "CODED_TOKENS", 1000)


def written(tmp_path, vectors, bits=8):
    path = tmp_path / f"{bits}.seg"
    write_segment(path, [Given(vectors)], module.codec_for(vectors.n_tokens, bits, vectors.n_tokens))
    return open_segment(path)


def relative_error(a, b):
    return np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(b)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_select_returns_what_was_written(tmp_path, bits, dtype):
    vectors = texts(dtype=dtype)
    stored = written(tmp_path, vectors, bits)
    assert (stored.coded, stored.codec.bits) == (True, bits)
    chosen = np.array([5, 0, 119, 5])
    found = stored.select(chosen)
    assert found.values.dtype == dtype
    for i, d in enumerate(chosen):
        rows = slice(vectors.offsets[d], vectors.offsets[d + 1])
        mine = slice(found.offsets[i], found.offsets[i + 1])
        assert found.token_ids[mine].tolist() == vectors.token_ids[rows].tolist()
        assert found.salience[mine].tolist() == vectors.salience[rows].tolist()
    assert relative_error(stored.vectors().values, vectors.values.astype(np.float64)) < LOST[bits]
    assert stored.vectors(3, 5).values.tolist() == stored.select(np.array([3, 4])).values.tolist()


@pytest.mark.parametrize("bits", BITS)
def test_decoded_agrees_with_select(tmp_path, bits):
    vectors = texts(dim=32)  # a multiple of 4: no padding, which select() cuts off
    stored = written(tmp_path, vectors, bits)
    listed = np.array([7, 3, 0], dtype=np.int32)
    decoded = stored.decoded(listed)
    selected = stored.select(listed.astype(np.int64))
    np.testing.assert_allclose(decoded.values, stored.rotate(selected.values), atol=1e-5)
    assert decoded.salience.tolist() == selected.salience.tolist()
    assert decoded.offsets.tolist() == selected.offsets.tolist()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("norm", [1e-6, 1.0, 3e5])
def test_scores_of_the_codes_are_within_the_bound(tmp_path, bits, norm):
    """Whatever the length of the vectors: rotated ones are kept as float16, which ends at 65504."""
    vectors = texts(norm=norm)
    stored = written(tmp_path, vectors, bits)
    query = stored.rotate(texts(seed=1).values[:40])
    listed = np.arange(len(stored), dtype=np.int32)
    order, scores, error = stored.rerank(query, listed, len(listed))
    decoded = stored.decoded(order)
    for i in range(len(order)):
        rows = decoded.values[decoded.offsets[i] : decoded.offsets[i + 1]].astype(np.float64)
        exact = (rows @ query.T.astype(np.float64)).max(axis=0).sum() if len(rows) else 0.0
        assert abs(scores[i] - exact) <= error
    assert error < 3 * norm  # of scores up to 40
    assert relative_error(stored.vectors().values, vectors.values.astype(np.float64)) < LOST[bits]


@pytest.mark.parametrize("bits", BITS)
def test_probing_everything_finds_the_nearest(tmp_path, bits):
    vectors = texts(documents=200)
    stored = written(tmp_path, vectors, bits)
    for d in (3, 50, 199):
        query = stored.rotate(vectors.values[vectors.offsets[d] : vectors.offsets[d] + 12].astype(np.float32))
        if len(query) and vectors.offsets[d] < vectors.offsets[d + 1]:
            found = stored.candidates(query, None, 1000, 100_000, 20)
            assert d in found.tolist()
            assert d in stored.rerank(query, found, 5)[0].tolist()
    allowed = np.arange(200) % 2 == 0
    assert all(d % 2 == 0 for d in stored.candidates(query, allowed, 1000, 100_000, 20))


def test_bytes_per_token(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "FINE_BELOW", 1)  # as in a large segment
    vectors = texts(documents=1500, dim=128)
    plain = TokenVectors.trusted(vectors.values, vectors.offsets)
    size = {bits: written(tmp_path, plain, bits).nbytes - 128 * 128 * 4 for bits in BITS}  # less the rotation
    for bits, limit in ((8, 160), (4, 80), (2, 45)):  # 2 bits: under 40 where documents are longer and more
        assert size[bits] / plain.n_tokens < limit


def test_small_segments_are_flat_and_exact(tmp_path):
    vectors = texts(documents=10)
    stored = written(tmp_path, vectors, 4)
    assert not stored.coded
    np.testing.assert_array_equal(stored.vectors().values, vectors.values)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A segment of each number of bits, to be changed by tests."""
    folder = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CODED_TOKENS", 1000)
        return {bits: written(folder, texts(documents=60), bits).path for bits in BITS}


def rewritten(tmp_path, original, change):
    """A segment with its arrays changed, checksums and all."""
    arrays = Arrays(original)
    changed = {name: arrays[name].copy() for name in arrays._places}
    info = dict(arrays.info)
    change(changed, info)
    path = tmp_path / "changed.seg"
    write_arrays(path, changed, info)
    return path


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(
    "name", [*dict.fromkeys(name for codec in CODECS.values() for name in (*codec.required, *codec.per_token))]
)
@pytest.mark.parametrize("how", ["absent", "short", "flat", "empty"])
def test_arrays_that_do_not_fit_are_corrupt_never_a_crash(tmp_path, sound, bits, name, how):
    def change(arrays, _info):
        if name not in arrays:
            pytest.skip("not in this kind of segment")
        if how == "absent":
            del arrays[name]
        else:
            array = arrays[name]
            arrays[name] = {"short": array[:-1], "flat": array.reshape(-1, 1), "empty": array[:0]}[how]

    path = rewritten(tmp_path, sound[bits], change)
    with pytest.raises(CorruptIndexError, match="damaged"):
        use_all(open_segment(path))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("key", ["scale", "norm", "dim", "dtype"])
@pytest.mark.parametrize("value", [None, "x", -1, float("nan")])
def test_a_header_that_makes_no_sense_is_corrupt(tmp_path, sound, bits, key, value):
    def change(_arrays, info):
        if key not in info:
            pytest.skip("not in this kind of segment")
        info[key] = value

    path = rewritten(tmp_path, sound[bits], change)
    with pytest.raises(CorruptIndexError, match="damaged"):
        use_all(open_segment(path))


def use_all(stored):
    query = np.ones((3, 31), dtype=np.float32)
    rotated = stored.rotate(query)
    listed = stored.candidates(rotated, None, 4, 9, 20)
    stored.rerank(rotated, listed, 5)
    stored.decoded(listed)
    stored.select(listed.astype(np.int64))


@pytest.mark.parametrize("bits", BITS)
def test_unchanged_it_is_accepted(tmp_path, sound, bits):
    use_all(open_segment(rewritten(tmp_path, sound[bits], lambda _arrays, _info: None)))
