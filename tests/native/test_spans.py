"""Matched words, against the same in plain Python: tokens share characters, lie far apart or outside of the text."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import _native
from weft.storage.segments.reading import Places

INNER = re.compile("[A-Za-z0-9]")
ALPHABET = "ab Z9-.é中🙂"


def oracle(text, spans, pairs, z):
    """Words with what they add and the query tokens that met them, those first that they answer most."""
    words = {}
    for i, j, similarity, weight in pairs:
        added = float(similarity) * float(weight) / z
        if j < 0 or added <= 0:
            continue
        start, stop = spans[j]
        if not 0 <= start < stop <= len(text):
            continue
        inside = [bool(INNER.match(c)) for c in text]
        cut = (start > 0 and inside[start - 1]) or (stop < len(text) and inside[stop])
        if cut and inside[start] and inside[stop - 1]:
            while start > 0 and inside[start - 1]:
                start -= 1
            while stop < len(text) and inside[stop]:
                stop += 1
        words.setdefault((start, stop), []).append((added, i))
    found = []
    for (start, stop), parts in sorted(words.items()):
        total, by_query = 0.0, {}
        for added, i in parts:
            total += added
            by_query[i] = by_query.get(i, 0.0) + added
        found.append((start, stop, round(total, 6), sorted(by_query, key=by_query.__getitem__, reverse=True)))
    return found


def matched(text, places, pairs, z, *, weighs=True):
    columns = list(zip(*pairs, strict=True)) or [()] * 4
    i, j = (np.array(column, np.int32) for column in columns[:2])
    similarity, weight = (np.array(column, np.float32) for column in columns[2:])
    made = lambda *word: word  # noqa: E731
    return _native.matched_words(made, text, *places, i, j, similarity, weight if weighs else None, z)


@st.composite
def problems(draw):
    text = draw(st.text(ALPHABET, max_size=24))
    place = st.integers(-2, len(text) + 300)
    spans = draw(st.lists(st.one_of(st.just((-1, -1)), st.tuples(place, place).map(sorted)), min_size=1, max_size=8))
    spans = [(a, b) if a >= 0 else (-1, -1) for a, b in spans]
    # In 4096ths, so that sums are exact in any order, and as they are in single precision; some are halves of 1e-6.
    number = st.one_of(st.integers(-4096, 4096).map(lambda n: n / 4096), st.just(2.5e-6), st.just(0.5))
    pair = st.tuples(st.integers(0, 4), st.integers(-1, len(spans) - 1), number.map(np.float32), st.just(np.float32(1)))
    return text, spans, draw(st.lists(pair, max_size=12)), draw(st.sampled_from([1.0, 2.0, 3.0]))


@settings(max_examples=300)
@given(problems(), st.integers(0, 3))
def test_it_is_what_plain_python_finds(problem, before):
    text, spans, pairs, z = problem
    # The document's tokens among those of others.
    alone = Places.of(np.array(spans, np.int32))
    around = np.full(before, 64, np.uint8)
    places = Places(
        np.concatenate([around, alone.steps, around]),
        np.concatenate([around, alone.lengths, around]),
        alone.listed + np.array([before, 0, 0], np.int32),
        before,
        before + len(spans),
    )
    expected = oracle(text, spans, pairs, z)
    assert places.unpacked().tolist() == [list(span) for span in spans]
    assert matched(text, places, pairs, z) == expected
    assert matched(text, places, pairs, z, weighs=False) == expected


def test_weights_count():
    places = Places.of(np.array([[0, 3], [4, 8]], np.int32))
    pairs = [(0, 0, 0.5, 2.0), (1, 1, 0.5, 0.0), (2, 1, 0.25, 1.0), (0, 1, 0.5, 1.0)]
    assert matched("red mars", places, pairs, 2.0) == [(0, 3, 0.5, [0]), (4, 8, 0.375, [0, 2])]


@pytest.mark.parametrize("value", [0.0000005, 0.0000015, 0.1234565, 1e9 + 0.3, 3.0000005, 1e-9])
def test_rounding_is_pythons(value):
    places = Places.of(np.array([[0, 3]], np.int32))
    single = float(np.float32(value))
    assert matched("red", places, [(0, 0, value, 1.0)], 1.0) == [(0, 3, round(single, 6), [0])]
    assert matched("red", places, [(0, 0, value, 1.0)], 3.0) == [(0, 3, round(single / 3, 6), [0])]


def test_what_does_not_fit_is_refused():
    places = Places.of(np.array([[0, 3]], np.int32))
    for j, stop in ((1, 1), (0, 2)):
        with pytest.raises(ValueError, match="must"):
            matched("red", places._replace(stop=stop), [(0, j, 0.5, 1.0)], 1.0)
    with pytest.raises(ValueError, match="three columns"):
        matched("red", places._replace(listed=np.zeros((1, 2), np.int32)), [(0, 0, 0.5, 1.0)], 1.0)
    broken = places._replace(steps=np.array([255], np.uint8))  # listed apart, it says, and is not
    assert matched("red", broken, [(0, 0, 0.5, 1.0)], 1.0) == []
