"""Tries against plain sets of prefixes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import InvalidParameterError
from weft.generative.trie import ClusterTrie, Trie

IDENTIFIERS = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), min_size=1, max_size=30)


@given(IDENTIFIERS)
def test_every_valid_next_token_of_every_prefix_is_allowed_and_no_other(identifiers):
    trie = Trie(identifiers)
    prefixes = sorted({tuple(i[:n]) for i in identifiers for n in range(len(i) + 1)}, key=len)
    states = {(): trie.start(1)}
    for prefix in prefixes[1:]:
        states[prefix] = trie.advance(states[prefix[:-1]], np.array([0]), np.array([prefix[-1]], np.int32))
    state = np.concatenate([states[prefix] for prefix in prefixes])
    offsets, tokens = trie.continuations(state)
    for number, prefix in enumerate(prefixes):
        expected = sorted(
            {i[len(prefix)] for i in identifiers if len(i) > len(prefix) and tuple(i[: len(prefix)]) == prefix}
        )
        assert tokens[offsets[number] : offsets[number + 1]].tolist() == expected
    assert trie.complete(state).tolist() == [list(prefix) in identifiers for prefix in prefixes]
    assert trie.depth == max(map(len, identifiers))


@given(IDENTIFIERS, st.integers(0, 9))
def test_a_token_that_may_not_follow_leads_nowhere(identifiers, token):
    trie = Trie(identifiers)
    state = trie.advance(trie.start(1), np.array([0]), np.array([token], np.int32))
    if all(i[0] != token for i in identifiers):
        assert trie.continuations(state)[1].tolist() == []
        assert not trie.complete(state).any()
        again = trie.advance(state, np.array([0, 0]), np.array([0, 1], np.int32))
        assert again.tolist() == [-1, -1]


@given(IDENTIFIERS, st.lists(st.integers(-1, 6), min_size=1, max_size=20))
def test_every_cluster_of_every_valid_token_is_allowed(identifiers, token_of):
    trie = Trie(identifiers)
    spread = ClusterTrie(trie, np.array(token_of))
    state = trie.advance(trie.start(1), np.array([0, 0]), np.array([identifiers[0][0], identifiers[-1][0]], np.int32))
    (plain, tokens), (offsets, clusters) = trie.continuations(state), spread.continuations(state)
    for beam in range(2):
        allowed = set(tokens[plain[beam] : plain[beam + 1]].tolist())
        expected = [cluster for cluster, token in enumerate(token_of) if token in allowed]
        assert clusters[offsets[beam] : offsets[beam + 1]].tolist() == expected


@pytest.mark.parametrize("identifiers", [[], [[]], [[1], []], [[-1]]])
def test_no_identifier_is_an_error(identifiers):
    with pytest.raises(InvalidParameterError, match="'identifiers' parameter of Trie"):
        Trie(identifiers)
