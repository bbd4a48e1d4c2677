"""Corpus indexes that someone crafted, with right checksums, and arguments beyond what 64 bits hold."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pydivsufsort", reason="needs the generative extra: pip install 'weft-search[generative]'")

from storage.crafted import reheader, rewrite
from weft import _native
from weft.errors import CorruptIndexError, IndexFormatError, WeftError
from weft.generative.corpus_index import FMIndex, NGramIndex, TokenTextIndex

DOCUMENTS = [[1, 2, 3, 1, 2], [2, 2, 9], [4, 1, 2]]


def build(form):
    return form.build(DOCUMENTS, ["a", "b", "c"], vocabulary=20)


@pytest.mark.parametrize("form", [TokenTextIndex, FMIndex])
@pytest.mark.parametrize("limit", [3, 2**31, 2**62, 2**63 - 1, 2**64])
def test_no_limit_is_too_large(form, limit):
    index = build(form)
    states = index.find([[1, 2]])
    assert index.locate(states, limit=limit)[0].tolist() == index.locate(states)[0].tolist() == [0, 3]


def use(path):
    with NGramIndex.open(path) as index:
        index.check()
        found = index.locate(index.find([[1, 2]]))[0]
        assert ((found >= 0) & (found < sum(map(len, DOCUMENTS)) + 2 * len(DOCUMENTS))).all()
        index.continuations(index.find([[1], [2, 2]]))
        index.read(range(len(index)))


@pytest.mark.parametrize("name", ["rate", "origin"])
@pytest.mark.parametrize("value", [2**62, 2**64, -1, 1.5, "x", None])
def test_numbers_that_would_never_end(tmp_path, name, value):
    path = tmp_path / "corpus.tokens"
    build(FMIndex).save(path)
    reheader(path, lambda header: header["info"].update({name: value}))
    with pytest.raises(CorruptIndexError):
        use(path)


@pytest.mark.parametrize("form", [TokenTextIndex, FMIndex])
@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in ("vocabulary", "documents") for value in (2**31, 2**32, 2**63, 2**64, -1, 1.5, True)]
    + [("tokens", value) for value in (2**31, -1, 2**64, None)]
    + [("breaks", value) for value in (None, "x", [1.5], [-1], [20], [[]])]
    + [("kind", value) for value in ([], {}, None, 7, "x")],
)
def test_numbers_that_the_arrays_do_not_bear_out(tmp_path, form, name, value):
    path = tmp_path / "corpus.tokens"
    build(form).save(path)
    reheader(path, lambda header: header["info"].update({name: value}))
    with pytest.raises((CorruptIndexError, IndexFormatError)):
        use(path)


@pytest.mark.parametrize("form", [TokenTextIndex, FMIndex])
@pytest.mark.parametrize("change", [lambda a: a.astype("<f2"), lambda a: a.astype("<f4") + np.nan, lambda a: a[:0]])
def test_places_of_ids_that_are_no_places(tmp_path, form, change):
    """Found by fuzzing: a TypeError, not an error of ours."""
    path = tmp_path / "corpus.tokens"
    build(form).save(path)
    rewrite(path, lambda stored, _: stored.update(id_offsets=change(stored["id_offsets"])))
    with pytest.raises(CorruptIndexError):
        use(path)


@given(data=st.data())
def test_any_number_anywhere(tmp_path_factory, data):
    """A corpus index whose arrays hold anything answers, or is refused by one of our errors."""
    path = tmp_path_factory.mktemp("any") / "corpus.tokens"
    build(data.draw(st.sampled_from([TokenTextIndex, FMIndex]))).save(path)

    def change(stored, _):
        for _ in range(data.draw(st.integers(1, 3))):
            name = data.draw(st.sampled_from(sorted(stored)))
            flat = stored[name].reshape(-1)
            if len(flat) and data.draw(st.booleans()):
                limits = np.iinfo(flat.dtype)
                values = [0, 1, 2, limits.max, limits.min]
                flat[data.draw(st.integers(0, len(flat) - 1))] = data.draw(st.sampled_from(values))
            else:
                stored[name] = stored[name][: data.draw(st.integers(0, len(stored[name])))]

    rewrite(path, change)
    with contextlib.suppress(WeftError):
        use(path)


def test_a_state_as_deep_as_can_be():
    index = build(FMIndex)
    low, high = np.array([0]), np.array([1])
    with pytest.raises(ValueError, match="tokens"):
        index._native.advance(low, high, np.array([2**31 - 1], np.int32), None, np.array([1], np.int32))
    assert _native.CorpusIndex is type(index._native)
