"""TokenVectors, Hits, Ranking: shapes, slices, padding and what they refuse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import collections
from weft import Hits, Ranking, TokenVectors, WeftError


def make(lengths=(2, 0, 3), dim=4, **extra):
    rng = np.random.default_rng(0)
    return TokenVectors.from_list([rng.standard_normal((m, dim)).astype(np.float32) for m in lengths], **extra)


@given(collections(min_texts=1))
def test_list_and_back(texts):
    ragged = TokenVectors.from_list(texts)
    assert len(ragged) == len(texts)
    assert ragged.lengths.tolist() == [len(text) for text in texts]
    for ours, theirs in zip(ragged, texts, strict=True):
        assert np.array_equal(ours, theirs)


@given(collections(min_texts=1), st.booleans())
def test_padded_and_back(texts, with_extras):
    extras = {}
    if with_extras:
        extras = {
            "token_ids": [np.arange(len(t)) for t in texts],
            "salience": [np.ones(len(t)) * 0.5 for t in texts],
            "spans": [np.arange(2 * len(t)).reshape(-1, 2) for t in texts],
        }
    ragged = TokenVectors.from_list(texts, **extras)
    again = TokenVectors.from_padded(*ragged.to_padded())
    for name in ("values", "offsets", "token_ids", "salience", "spans"):
        ours, theirs = getattr(again, name), getattr(ragged, name)
        assert (ours is None and theirs is None) or np.array_equal(ours, theirs)


@given(collections(min_texts=1), st.data())
def test_slices_and_selections_are_those_of_a_list(texts, data):
    ragged = TokenVectors.from_list(texts)
    cut = data.draw(st.slices(len(texts)))
    assert [x.tolist() for x in ragged[cut]] == [x.tolist() for x in texts[cut]]
    chosen = data.draw(st.lists(st.integers(-len(texts), len(texts) - 1)))
    assert [x.tolist() for x in ragged.select(chosen)] == [texts[i].tolist() for i in chosen]


def test_slices_do_not_copy():
    ragged = make()
    assert np.shares_memory(ragged[1:].values, ragged.values)
    assert np.shares_memory(ragged[2], ragged.values)


def test_out_of_range_is_an_index_error():
    for index in (3, -4):
        with pytest.raises(IndexError, match="of a TokenVectors with 3 texts"):
            make()[index]


def test_concatenation_keeps_texts_and_drops_partial_extras():
    a, b = make((1, 2), salience=[[1.0], [2.0, 3.0]]), make((0, 1))
    both = TokenVectors.concatenate([a, b])
    assert both.lengths.tolist() == [1, 2, 0, 1]
    assert both.salience is None
    assert TokenVectors.concatenate([a, a]).salience.tolist() == [1, 2, 3, 1, 2, 3]


def test_spans_go_where_their_tokens_go():
    texts = make((2, 0, 1), spans=[[[0, 3], [4, 7]], [], [[-1, -1]]])
    assert texts.spans.dtype == np.int32
    assert texts[2:].spans.tolist() == [[-1, -1]]
    assert texts.select([2, 0]).spans.tolist() == [[-1, -1], [0, 3], [4, 7]]
    assert TokenVectors.concatenate([texts, texts]).spans.shape == (6, 2)
    assert texts.astype(np.float16).spans.tolist() == texts.spans.tolist()
    assert make((0,), spans=[[]]).spans.shape == (0, 2)


def test_types_are_kept_or_widened():
    assert TokenVectors([[1, 2]], [0, 1]).values.dtype == np.float32
    assert TokenVectors(np.ones((1, 2), np.float16), [0, 1]).values.dtype == np.float16
    assert TokenVectors(np.ones((1, 2), np.float64), [0, 1]).values.dtype == np.float32
    assert make().astype(np.float16).values.dtype == np.float16


def test_non_contiguous_values_become_contiguous():
    assert TokenVectors(np.ones((4, 6), np.float32)[:, ::2], [0, 4]).values.flags.c_contiguous


def test_repr_says_what_is_inside():
    assert repr(make(salience=[[0.5, 0.5], [], [1.0, 1.0, 1.0]])) == (
        "TokenVectors(3 texts, 5 tokens, dim 4, float32, with salience)"
    )


def test_empty_collection_needs_a_dimension():
    assert TokenVectors.from_list([], dim=8).dim == 8
    with pytest.raises(WeftError, match="dim="):
        TokenVectors.from_list([])


@pytest.mark.torch
def test_torch_tensors_are_welcome():
    torch = pytest.importorskip("torch")
    tensor = torch.ones(2, 3, dtype=torch.bfloat16, requires_grad=True)
    assert TokenVectors.from_list([tensor]).values.tolist() == [[1.0] * 3] * 2


V = np.ones((3, 2), np.float32)
BAD = {
    "ragged values": (lambda: TokenVectors([[1.0], [1.0, 2.0]], [0, 2]), ["'values'", "from_list"]),
    "beyond float32": (lambda: TokenVectors([[1e300]], [0, 1]), ["'values'", "inf"]),
    "spans too few": (lambda: TokenVectors(V, [0, 3], spans=[[0, 1]]), ["'spans'", "(3, 2)", "(1, 2)"]),
    "spans of one number": (
        lambda: TokenVectors.from_list([V], spans=[[1, 2, 3]]),
        ["'spans'", "lengths [3]", "(2,)"],
    ),
    "salience of words": (lambda: TokenVectors(V, [0, 3], salience=["a", "b", "c"]), ["'salience'", "real"]),
    "text by list": (lambda: TokenVectors(V, [0, 3])[[0, 1]], ["integer or a slice", "select"]),
    "text by fraction": (lambda: TokenVectors(V, [0, 3])[0.5], ["integer or a slice", "0.5"]),
    "hits of words": (lambda: Hits([0], [0], [0], ["a"]), ["'similarity'", "real"]),
    "scores of words": (lambda: Ranking(["a"], ["x"]), ["'scores'", "real"]),
    "1-D values": (lambda: TokenVectors([1.0, 2.0], [0, 2]), ["'values'", "2-D", "(2,)"]),
    "NaN": (lambda: TokenVectors([[1.0, np.nan]], [0, 1]), ["'values'", "finite", "nan at [0, 1]"]),
    "infinity in float16": (
        lambda: TokenVectors(np.array([[np.inf]], np.float16), [0, 1]),
        ["'values'", "inf at [0, 0]"],
    ),
    "complex": (lambda: TokenVectors([[1j]], [0, 1]), ["'values'", "real", "complex128"]),
    "text": (lambda: TokenVectors([["a"]], [0, 1]), ["'values'", "real"]),
    "offsets end early": (lambda: TokenVectors(V, [0, 2]), ["'offsets'", "3", "2"]),
    "offsets fall": (lambda: TokenVectors(V, [0, 2, 1, 3]), ["'offsets'", "never decreases"]),
    "offsets start late": (lambda: TokenVectors(V, [1, 3]), ["'offsets'", "starts at 0"]),
    "offsets of floats": (lambda: TokenVectors(V, [0.0, 3.0]), ["'offsets'", "integers", "float64"]),
    "token ids too few": (lambda: TokenVectors(V, [0, 3], token_ids=[1, 2]), ["'token_ids'", "(3,)", "(2,)"]),
    "token ids too large": (
        lambda: TokenVectors(V, [0, 3], token_ids=[1, 2, 2**40]),
        ["'token_ids'", "int32"],
    ),
    "salience too long": (
        lambda: TokenVectors(V, [0, 3], salience=np.ones(4)),
        ["'salience'", "(3,)", "(4,)"],
    ),
    "salience negative": (
        lambda: TokenVectors(V, [0, 3], salience=[1, -0.5, 1]),
        ["'salience'", ">= 0", "-0.5"],
    ),
    "salience NaN": (
        lambda: TokenVectors(V, [0, 3], salience=[1, np.nan, 1]),
        ["'salience'", "finite", "nan"],
    ),
    "dimensions differ": (
        lambda: TokenVectors.from_list([np.ones((1, 2)), np.ones((1, 3))]),
        ["'texts'", "[2, 3]"],
    ),
    "mask shape": (
        lambda: TokenVectors.from_padded(np.ones((1, 2, 3)), np.ones((1, 3))),
        ["'mask'", "(1, 2)", "(1, 3)"],
    ),
    "hits of unequal length": (lambda: Hits([0], [0, 1], [0], [0.5]), ["'document'", "(1,)", "(2,)"]),
    "ranking out of order": (lambda: Ranking(["a", "b"], [1.0, 2.0]), ["'scores'", "best first"]),
    "ranking with NaN": (lambda: Ranking(["a"], [np.nan]), ["'scores'", "NaN"]),
    "ranking of unequal length": (lambda: Ranking(["a"], [1.0, 0.5]), ["'scores'", "(1,)", "(2,)"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_a_clear_line(case):
    act, parts = BAD[case]
    with pytest.raises(WeftError) as caught:
        act()
    for part in parts:
        assert part in str(caught.value)


def test_hits_of_one_document():
    hits = Hits([0, 1, 0], [5, 5, 9], [2, 3, 0], [0.9, 0.8, 0.7])
    assert hits.of_document(5).similarity.tolist() == pytest.approx([0.9, 0.8])
    assert len(hits.of_document(7)) == 0


def test_ranking_reads_like_a_list():
    ranking = Ranking(["x", "y"], [2.0, 1.0], hits=[Hits([], [], [], [])] * 2)
    assert len(ranking) == 2
    assert ranking[1].id == "y"
    assert next(iter(ranking)) == ("x", 2.0)
    assert ranking[:1] == [("x", 2.0)]
