"""Identifiers: every document has one, no two share one without need."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("sklearn", reason="needs the generative extra: pip install 'weft-search[generative]'")

from weft.errors import InvalidParameterError
from weft.generative.identifiers import DigitVocabulary, cluster_digits, lsa_vectors, title_prefixes


@pytest.mark.parametrize(("n", "k", "c"), [(1, 2, 1), (40, 3, 4), (200, 10, 10), (30, 4, 100)])
def test_digits_are_unique_below_k_and_c(n, k, c):
    vectors = np.random.default_rng(n).normal(size=(n, 5))
    digits = cluster_digits(vectors, k, c)
    assert len(set(digits)) == n
    assert all(max(path[:-1], default=0) < k and path[-1] < c for path in digits)
    if n <= c:
        assert digits == [(place,) for place in range(n)]


def test_copies_of_one_document_end_too():
    digits = cluster_digits(np.ones((25, 3)), 2, 2)
    assert len(set(digits)) == 25
    assert max(map(len, digits)) <= 6


def test_near_documents_share_a_path():
    centres = np.eye(4)[np.repeat(np.arange(4), 10)] * 10
    digits = cluster_digits(centres + np.random.default_rng(0).normal(size=(40, 4)) * 0.01, 4, 10)
    assert [len({path[0] for path in digits[i : i + 10]}) for i in range(0, 40, 10)] == [1, 1, 1, 1]
    assert len({path[0] for path in digits}) == 4


def test_every_position_has_tokens_of_its_own():
    digits = DigitVocabulary(3, 4)
    said = [digits.tokens([d] * 4) for d in range(3)]
    assert sorted(token for row in said for token in row) == list(range(2, digits.size))


def test_vectors_of_texts_with_the_same_words_are_near():
    texts = ["red cat", "cat red red", "stormy river boat", "boat on a river"]
    similar = (vectors := lsa_vectors(texts, 2)) @ vectors.T
    assert similar[0, 1] > 0.9 > 0.5 > similar[0, 2]
    assert lsa_vectors(["one", "one"]).shape[0] == 2


@given(st.lists(st.tuples(st.lists(st.integers(2, 4), min_size=1, max_size=8), st.integers(0, 3)), min_size=1))
def test_titles_grow_only_where_they_must(documents):
    tokens, titles = [ids for ids, _ in documents], [min(n, len(ids)) for ids, n in documents]
    found = title_prefixes(tokens, titles)
    for number, (ids, title) in enumerate(zip(tokens, titles, strict=True)):
        own = found[number]
        assert own == ids[: len(own)]
        assert len(own) >= min(title or 4, len(ids))
        same = [other for other in range(len(found)) if found[other] == own]
        assert all(tokens[other] == ids for other in same)  # only documents that are alike share one


def test_wrong_numbers():
    with pytest.raises(InvalidParameterError, match="'k' parameter"):
        cluster_digits(np.ones((3, 2)), 1, 2)
    with pytest.raises(InvalidParameterError, match="'c' parameter"):
        cluster_digits(np.ones((3, 2)), 2, 0)
