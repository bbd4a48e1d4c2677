"""Spans and saliences come back as they went in, whatever they are, and take three bytes a token."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import Document, Index, TokenVectors
from weft.storage import merger
from weft.storage.segments.reading import pack_salience, pack_spans, unpack_salience, unpack_spans

HUGE = 2**31 - 1
LARGEST = 240.0
"""The largest salience that a byte stands for."""

starts = st.one_of(st.integers(-3, 600), st.integers(0, HUGE))
ordinary = st.tuples(st.integers(0, 2000), st.integers(0, 300)).map(lambda x: (x[0], x[0] + x[1]))
odd = st.tuples(starts, starts).filter(lambda span: span[1] >= 0)  # backwards, overlapping, anywhere
span = st.one_of(st.just((-1, -1)), ordinary, odd)


@st.composite
def walks(draw):
    """Spans in their order, as tokenizers make them: touching, apart, sharing characters; some are not of the text."""
    spans, at = [], 0
    for gap, length in draw(st.lists(st.tuples(st.integers(-70, 300), st.integers(0, 260)), max_size=12)):
        at = max(at + gap, 0)
        spans.append((at, at + length) if length != 13 else (-1, -1))
        at += length
    return spans


documents = st.lists(st.one_of(st.lists(span, max_size=8), walks()), min_size=1, max_size=6)


def flat(spans):
    joined = np.array([s for text in spans for s in text], dtype=np.int32).reshape(-1, 2)
    return joined, np.concatenate([[0], np.cumsum([len(text) for text in spans])]).astype(np.int64)


@given(documents)
def test_spans_come_back(spans):
    joined, offsets = flat(spans)
    packed = pack_spans(joined, offsets)
    assert packed.steps.dtype == packed.lengths.dtype == np.uint8
    assert unpack_spans(packed, offsets).tolist() == joined.tolist()


@given(walks())
def test_what_is_in_order_and_near_is_not_listed(spans):
    joined, offsets = flat([spans])
    before, few = 0, 0
    for start, stop in spans:
        if stop < 0:
            continue
        few += not (-64 <= start - before < 190 and stop - start <= 255)
        before = stop
    assert len(pack_spans(joined, offsets).listed) == few


@given(st.lists(st.one_of(st.floats(0, 300, width=32), st.floats(0, 2.0**127, width=32)), max_size=30))
def test_saliences_are_off_by_a_thirtieth_at_most(values):
    salience = np.array(values, dtype=np.float32)
    back = unpack_salience(pack_salience(salience))
    assert back.dtype == np.float32
    tiny, large = salience < 2.0**-8, salience > LARGEST
    assert (back[tiny] == 0).all()
    assert (back[large] == LARGEST).all()
    rest = ~tiny & ~large
    assert (np.abs(back[rest] - salience[rest]) <= salience[rest] / 30).all()


def test_bytes_of_saliences_are_in_order():
    every = np.arange(256, dtype=np.uint8)
    values = unpack_salience(every)
    assert (np.diff(values) > 0).all()
    assert (pack_salience(values) == every).all()
    assert values[-1] == LARGEST


def stored(index, names):
    found = {}
    for name in names:
        read = index.reading(name)
        found[name] = (
            read.n_tokens,
            None if read.spans is None else read.spans.tolist(),
            None if read.salience is None else read.salience.tolist(),
            None if read.token_ids is None else read.token_ids.tolist(),
        )
    return found


@settings(max_examples=25)
@given(documents, st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([8, 2]))
def test_an_index_keeps_them_through_merges(tmp_path_factory, spans, seed, weighs, bits):
    rng = np.random.default_rng(seed)
    lengths = [len(text) for text in spans]
    salience = [np.round(rng.gamma(1, 1, m), 3).astype(np.float32) for m in lengths]
    ids = [rng.integers(0, 30000, m) for m in lengths]
    vectors = [rng.standard_normal((m, 4)).astype(np.float32) for m in lengths]
    names = [f"d{i}" for i in range(len(spans))]
    path = tmp_path_factory.mktemp("reading") / "i"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merger, "CODED_TOKENS", 15)
        patch.setattr(merger, "CODED_SHARE", 1)
        with Index.create(path, 4, bits=bits, merge="off", salience_weighs=weighs) as index:
            for i, name in enumerate(names):
                one = TokenVectors.from_list([vectors[i]], [ids[i]], [salience[i]], [np.reshape(spans[i], (-1, 2))])
                index.add([name], one)
                index.add(["gone", "also gone"], TokenVectors.concatenate([one, one]))
            expected = stored(index, names)
            for i, name in enumerate(names):
                n, kept_spans, kept_salience, kept_ids = expected[name]
                assert n == lengths[i]
                assert kept_spans == [list(s) for s in spans[i]]
                assert kept_ids == ids[i].tolist()
                if weighs:
                    assert kept_salience == salience[i].tolist()  # float32, to the last bit
                    assert index.vectors(name).salience.tolist() == salience[i].tolist()
                else:
                    assert kept_salience == unpack_salience(pack_salience(salience[i])).tolist()
                    assert index.vectors(name).salience is None
            index.delete(["gone", "also gone"])
            index.compact()
            assert index.info()["segments"] == 1
            assert stored(index, names) == expected
            index.delete(names[::2])
            index.add(["more"], TokenVectors.from_list([np.ones((2, 4))], [[1, 2]], [[1, 1]], [[(0, 1), (5, HUGE)]]))
            index.compact()
            assert stored(index, names[1::2]) == {name: expected[name] for name in names[1::2]}
            assert index.reading("more").spans.tolist() == [[0, 1], [5, HUGE]]
            assert index.check().sound
        with Index.open(path) as again:
            assert stored(again, names[1::2]) == {name: expected[name] for name in names[1::2]}
            assert again.reading("gone") is None


def realistic(rng, documents=200, tokens=100):
    """Word pieces: most begin where the last one ended or after a space, first and last are not of the text."""
    texts = []
    for _ in range(documents):
        at, spans = 0, [(-1, -1)]
        for _ in range(tokens - 2):
            at += int(rng.choice([0, 1, 2], p=[0.3, 0.65, 0.05]))
            length = int(rng.integers(1, 12))
            spans.append((at, at + length))
            at += length
        texts.append([*spans, (-1, -1)])
    return texts


@pytest.mark.parametrize("coded", [False, True])
def test_three_bytes_a_token(tmp_path, monkeypatch, coded):
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000 if coded else 10**9)
    rng = np.random.default_rng(0)
    spans = realistic(rng)
    vectors = TokenVectors.from_list(
        [rng.standard_normal((100, 8)).astype(np.float32) for _ in spans],
        salience=[rng.random(100).astype(np.float32) for _ in spans],
        spans=[np.array(s) for s in spans],
    )
    sizes = {}
    for reading in (True, False):
        with Index.create(tmp_path / f"{reading}", 8, salience_weighs=False, reading=reading, merge="off") as index:
            index.add([Document(f"d{i}") for i in range(len(spans))], vectors)
            (file,) = (index.folder / "segments").iterdir()
            sizes[reading] = file.stat().st_size
            read = index.reading("d7")
            assert (read.spans is not None, read.salience is not None) == (reading, reading)
            assert read.n_tokens == 100
            assert index.info()["reading"] == reading
    assert 3 * vectors.n_tokens <= sizes[True] - sizes[False] <= 3.05 * vectors.n_tokens


def test_reading_false_stores_none_but_what_weighs(tmp_path):
    one = TokenVectors.from_list([np.ones((2, 4))], [[5, 6]], [[0.3, 0.1]], [[(0, 1), (1, 2)]])
    with Index.create(tmp_path / "w", 4, reading=False) as index:
        index.add(["a"], one)
        read = index.reading("a")
        assert read.spans is None
        assert read.salience.tolist() == np.array([0.3, 0.1], np.float32).tolist()
        assert read.salience.dtype == np.float32
        assert read.token_ids.tolist() == [5, 6]
        assert index.reading("b") is None


def test_documents_without_tokens(tmp_path):
    nothing = TokenVectors.from_list([np.ones((0, 4))] * 2, spans=[np.zeros((0, 2))] * 2)
    with Index.create(tmp_path / "e", 4) as index:
        index.add(["a", "b"], nothing)
        index.add(["c"], TokenVectors.from_list([np.ones((1, 4))], spans=[[(3, 900)]]))
        for _ in range(2):
            assert index.reading("a") is not None
            assert index.reading("a").spans.shape == (0, 2)
            assert index.reading("c").spans.tolist() == [[3, 900]]
            index.compact()
