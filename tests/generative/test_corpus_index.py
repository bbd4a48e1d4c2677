"""Both forms of the corpus index against n-grams counted one by one."""

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pydivsufsort", reason="needs the generative extra: pip install 'weft-search[generative]'")

from weft.errors import InvalidParameterError
from weft.generative.corpus_index import FMIndex, NGramIndex, States, TokenTextIndex
from weft.generative.corpus_index.corpus import MAX_VOCABULARY, suffix_array

FORMS = [TokenTextIndex, FMIndex]
LONGEST = 9  # one more than the deepest head


def ngrams(documents, breaks=()):
    """Every n-gram with its places (document, position), by sliding over each document."""
    found = {}
    for d, document in enumerate(documents):
        for begin in range(len(document)):
            for end in range(begin + 1, min(begin + LONGEST, len(document)) + 1):
                if document[end - 1] in breaks:
                    break
                found.setdefault(tuple(document[begin:end]), []).append((d, begin))
    return found


def build(form, documents, vocabulary, **options):
    ids = [f"d{i}" for i in range(len(documents))]
    return form.build(documents, ids, vocabulary=vocabulary, allow_empty=True, **options)


@st.composite
def corpora(draw):
    """Few different tokens, so that n-grams repeat; some of them at the ends of the integer types."""
    vocabulary = draw(st.sampled_from([1, 2, 4, 256, 257, 65535, 65536, 65537]))
    ends = sorted({0, 1, vocabulary // 2, vocabulary - 2, vocabulary - 1} & set(range(vocabulary)))
    token = st.sampled_from(ends)
    documents = draw(st.lists(st.lists(token, max_size=12), max_size=6))
    breaks = draw(st.sets(token, max_size=2))
    return documents, vocabulary, breaks


@pytest.mark.parametrize("form", FORMS)
@given(corpus=corpora(), heads=st.sampled_from([1, 2, 3, 1000]))
def test_counts_continuations_and_places(form, corpus, heads):
    documents, vocabulary, breaks = corpus
    index = build(form, documents, vocabulary, breaks=breaks, heads=heads)
    true = ngrams(documents, breaks)
    follow = {(): Counter()}
    for gram, places in true.items():
        follow.setdefault(gram[:-1], Counter())[gram[-1]] += len(places)
        follow.setdefault(gram, Counter())
    assert index.n_tokens == sum(follow[()].values()) == index.count([])

    # Walk breadth first as decoding does: every allowed token of every prefix, and no other.
    states, prefixes = index.start(1), [()]
    while prefixes:
        offsets, tokens, counts = index.continuations(states)
        assert [a.tolist() for a in index.following(states)] == [offsets.tolist(), tokens.tolist()]
        beams = np.repeat(np.arange(len(prefixes)), np.diff(offsets))
        for b, prefix in enumerate(prefixes):
            mine = slice(offsets[b], offsets[b + 1])
            want = sorted(follow[prefix].items())
            assert list(zip(tokens[mine].tolist(), counts[mine].tolist(), strict=True)) == want
        states = index.advance(states, beams, tokens)
        prefixes = [(*prefixes[b], t) for b, t in zip(beams.tolist(), tokens.tolist(), strict=True)]
        assert states.counts.tolist() == [len(true[prefix]) for prefix in prefixes]
        where = index.locate(states)
        for b, prefix in enumerate(prefixes):
            mine = slice(where.offsets[b], where.offsets[b + 1])
            assert (
                sorted(zip(where.documents[mine].tolist(), where.positions[mine].tolist(), strict=True)) == true[prefix]
            )
        longer = [len(prefix) < LONGEST for prefix in prefixes]  # the oracle goes no further
        prefixes = [prefix for prefix in prefixes if len(prefix) < LONGEST]
        states = States(states.low[longer], states.high[longer], states.depth[longer])

    offsets, tokens = index.read(range(len(documents)))
    want = [[-1 if token in breaks else token for token in document] for document in documents]
    assert [part.tolist() for part in np.split(tokens, offsets[1:-1])][: len(documents)] == want


@pytest.mark.parametrize("form", FORMS)
@given(corpus=corpora(), asked=st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=5))
def test_n_grams_that_are_not_there(form, corpus, asked):
    documents, vocabulary, breaks = corpus
    index = build(form, documents, vocabulary, breaks=breaks)
    true = ngrams(documents, breaks)
    true[()] = [None] * index.n_tokens
    assert [index.count(gram) for gram in asked] == [len(true.get(tuple(gram), [])) for gram in asked]
    grams = [gram for gram in asked if gram]
    states = index.find(grams)
    assert states.counts.tolist() == [index.count(gram) for gram in grams]
    gone = index.extend(states, [vocabulary] * len(grams))  # no such token
    assert not gone.counts.any()
    assert not len(index.continuations(gone).tokens)
    assert not index.extend(index.start(1), [-1]).counts.any()


@pytest.mark.parametrize("form", FORMS)
def test_more_symbols_than_two_bytes(form):
    documents = [np.arange(40_000), np.arange(39_999, 70_000), [69_999, 3, 3]]
    index = build(form, documents, 70_000)
    assert index.count([39_998, 39_999]) == 1
    assert index.count([39_999]) == 2
    states = index.find([[39_999], [69_998, 69_999], [3]])
    offsets, tokens, _ = index.continuations(states)
    assert (offsets.tolist(), tokens.tolist()) == ([0, 1, 1, 3], [40_000, 3, 4])
    assert index.read([1])[1].tolist() == documents[1].tolist()
    assert len(index.continuations(index.start(1)).tokens) == 70_000


@pytest.mark.parametrize("form", FORMS)
def test_the_largest_vocabulary(form):
    last = MAX_VOCABULARY - 1
    index = build(form, [[last, 0, last], [last]], MAX_VOCABULARY)
    assert (index.count([last]), index.count([last, 0, last])) == (3, 1)


@pytest.mark.parametrize("form", FORMS)
def test_a_larger_text(form):
    rng = np.random.default_rng(0)
    documents = [rng.zipf(1.3, size).clip(max=3000) % 3000 for size in rng.integers(0, 120, 60)]
    index = build(form, documents, 3000, breaks=[7], heads=50)
    true = ngrams([document.tolist() for document in documents], {7})
    grams = [gram for gram in true if len(gram) <= 3][::5]
    states = index.find(grams)
    assert states.counts.tolist() == [len(true[gram]) for gram in grams]
    where = index.locate(states, limit=5)
    for i, gram in enumerate(grams):
        mine = slice(where.offsets[i], where.offsets[i + 1])
        places = set(zip(where.documents[mine].tolist(), where.positions[mine].tolist(), strict=True))
        assert len(places) == min(5, len(true[gram]))
        assert places <= set(true[gram])
    several = rng.integers(0, len(documents), 100)  # documents of many lengths side by side, some of them twice
    offsets, tokens = index.read(several)
    for i, document in enumerate(several.tolist()):
        want = np.where(documents[document] == 7, -1, documents[document])
        assert tokens[offsets[i] : offsets[i + 1]].tolist() == want.tolist()


@given(st.lists(st.integers(0, 300), min_size=1, max_size=40), st.sampled_from([np.uint16, np.uint32]))
def test_suffix_array(text, dtype):
    assert suffix_array(np.array(text, dtype)).tolist() == sorted(range(len(text)), key=lambda i: text[i:])


@pytest.mark.parametrize("form", FORMS)
def test_constraint(form):
    grams = build(form, [[5, 6, 7], [6, 8], []], 10, breaks=[8]).constraint()
    state = grams.start(2)
    offsets, tokens = grams.continuations(state)
    assert (offsets.tolist(), tokens.tolist()) == ([0, 3, 6], [5, 6, 7] * 2)
    assert grams.complete(state).tolist() == [False, False]
    after = grams.advance(state, np.array([1, 0, 0]), np.array([6, 7, 9], np.int32))
    assert grams.complete(after).tolist() == [True, True, False]
    assert grams.continuations(after)[1].tolist() == [7]
    assert state.depth.tolist() == [0, 0]  # a state is a value


@pytest.mark.parametrize(
    ("documents", "options", "message"),
    [
        ([[1]], {"vocabulary": 2**40}, "'vocabulary' .* from 1 to 16777216. Got 1099511627776"),
        ([[1]], {"vocabulary": 0}, "'vocabulary'"),
        ([[1, 5]], {"vocabulary": 5}, "token ids from 0 to 4, the vocabulary's. Got 5"),
        ([[1, -1]], {"vocabulary": 5}, "Got -1"),
        ([[1.5]], {"vocabulary": 5}, "an array of integers"),
        ([[2**70]], {"vocabulary": 5}, "'documents'"),
        ([[[1, 2]]], {"vocabulary": 5}, "one sequence of token ids each. Got \\(1, 2\\)"),
        ([[1]], {"vocabulary": 5, "breaks": [5]}, "'breaks'"),
        ([[1]], {"vocabulary": 5, "heads": 0}, "'heads'"),
        ([[1], []], {"vocabulary": 5}, "none in document 'd1'"),
        ([[3, 3], [1]], {"vocabulary": 5, "breaks": [3]}, "none in document 'd0'"),
        ([], {"vocabulary": 5}, "at least one document"),
        ([[1], [2]], {"vocabulary": 5, "ids": ["a", "a"]}, "different from each other. Got 'a'"),
        ([[1], [2]], {"vocabulary": 5, "ids": ["a"]}, "one for each of the 2 documents"),
        ([[1]], {"vocabulary": 5, "ids": [7]}, "'ids'"),
        ([[1]], {"vocabulary": 5, "ids": ["\ud800"]}, "valid Unicode"),
    ],
)
def test_bad_corpora(documents, options, message):
    options = {"ids": [f"d{i}" for i in range(len(documents))], **options}
    with pytest.raises(InvalidParameterError, match=message):
        TokenTextIndex.build(documents, **options)


@pytest.mark.parametrize("form", FORMS)
def test_bad_questions(form):
    index = build(form, [[1, 2, 3]], 5)
    with pytest.raises(InvalidParameterError, match="'beams'"):
        index.advance(index.start(1), [1], [2])
    with pytest.raises(InvalidParameterError, match="'limit'"):
        index.locate(index.start(1), -1)
    with pytest.raises(InvalidParameterError, match="'documents'"):
        index.read([1])
    with pytest.raises(InvalidParameterError, match="'ngram'"):
        index.count([1.5])
    assert index.count(np.array([1])) == 1
    assert index.count([2**32 + 1]) == 0  # not taken for 1
    with pytest.raises(ValueError, match="a token for each beam"):
        index.extend(index.start(2), [1])
    for low, high, depth in [(-1, 2, 1), (3, 2, 1), (0, 6, 1), (0, 1, -1)]:
        state = States(np.array([low]), np.array([high]), np.array([depth], np.int32))
        with pytest.raises(ValueError, match="range of the text's rows"):
            index.continuations(state)


@pytest.mark.parametrize("form", FORMS)
@given(st.data())
def test_no_state_leads_out_of_bounds(form, data):
    """States that no n-gram has, as a caller might make: any answer, but one (AddressSanitizer looks on)."""
    index = build(form, [[1, 2, 3, 1, 2], [2, 2]], 5, heads=2)
    low = data.draw(st.integers(0, 10))
    high, depth = data.draw(st.integers(low, 10)), data.draw(st.integers(0, 2**31 - 2))
    state = States(np.array([low]), np.array([high]), np.array([depth], np.int32))
    index.continuations(state)
    index.extend(state, [2])


def test_the_interface_has_no_index_of_its_own():
    with pytest.raises(TypeError, match="abstract"):
        NGramIndex({}, {})


def test_a_machine_that_cannot_count_bits_in_one_instruction():
    """A process keeps the form of the FM-index it began with, so the tests above run again in another."""
    asked = "FMIndex and (counts_continuations or larger_text or not_there)"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", __file__, "-k", asked],
        env={**os.environ, "WEFT_SIMD": "baseline"}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
