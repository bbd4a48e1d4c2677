"""The native scores are those of the formula, whatever the shapes, the ties and the number of threads."""

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from native.parity import KINDS, brute_force, check, make
from weft import InvalidParameterError, TokenVectors, WeftError, _native
from weft.kernels import aligned_pairs, score_ragged, similarities

QUERY_LENGTHS = (0, 1, 7, 8, 9, 16, 17, 33, 64)
ALIGNMENTS = st.one_of(
    st.just("sum-of-max"),
    st.integers(1, 12).map("top-k:{}".format),
    st.integers(1, 100).map(lambda p: f"top-p:{p / 100}"),
)


@st.composite
def problems(draw, *, salient=None, kinds=KINDS):
    """Queries, documents: unequal, empty and one-token texts, odd dimensions, ties, all-negative similarities."""
    weigh = draw(st.booleans()) if salient is None else salient
    return make(
        np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        draw(st.lists(st.sampled_from(QUERY_LENGTHS), max_size=3)),
        draw(st.lists(st.one_of(st.sampled_from((0, 1)), st.integers(0, 20)), max_size=8)),
        draw(st.integers(1, 67)),
        "ties" if weigh else draw(st.sampled_from(kinds)),
        dtype=draw(st.sampled_from((np.float32, np.float16))),
        salient=weigh,
    )


@given(problems(), ALIGNMENTS, st.integers(1, 4))
def test_equals_brute_force(problem, alignment, threads):
    check(*problem, alignment, threads)


@pytest.mark.parametrize("k", [63, 64, 65, 200])
@pytest.mark.parametrize("salient", [False, True])
def test_large_k_on_both_sides_of_the_fused_limit(k, salient):
    rng = np.random.default_rng(k)
    check(*make(rng, [9, 0, 3], [0, 70, 1, 64, 300, 65, 2], 5, "ties", salient=salient), f"top-k:{k}", threads=2)


@given(problems(salient=False, kinds=("normal", "negative", "ties")), ALIGNMENTS)
def test_equals_the_alignment_itself(problem, alignment):
    """Native and NumPy are two ways to one definition."""
    queries, documents = problem
    want = weft.score(queries, documents, alignment) if len(queries) and len(documents) else None
    got = score_ragged(queries, documents, alignment)
    if want is not None:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@given(problems(salient=False))
def test_similarities_are_those_of_a_matrix_product(problem):
    queries, documents = problem
    for position in range(len(queries)):
        query = queries[position : position + 1]
        S = query.values.astype(np.float64) @ documents.values.astype(np.float64).T
        np.testing.assert_allclose(similarities(query, documents), S, rtol=1e-4, atol=1e-4)


@given(problems(salient=False), st.integers(0, 7))
def test_a_similarity_depends_on_its_two_tokens_alone(problem, which):
    """To the last bit: an index and its parts find the same."""
    queries, documents = problem
    if not len(queries) or not len(documents):
        return
    at = which % len(documents)
    start, stop = documents.offsets[at : at + 2]
    for position in range(len(queries)):
        query = queries[position : position + 1]
        beside = similarities(query, documents)[:, start:stop]
        np.testing.assert_array_equal(beside, similarities(query, documents[at : at + 1]))


def test_similarities_are_of_one_query():
    queries, documents = make(np.random.default_rng(3), [4, 2], [3], 5, "normal")
    with pytest.raises(InvalidParameterError, match="one text"):
        similarities(queries, documents)


def test_z_is_the_number_of_query_tokens_where_asked():
    queries, documents = make(np.random.default_rng(3), [4, 0], [3, 0, 9], 5, "normal")
    totals, _ = brute_force(queries, documents, lambda m: min(2, m))
    np.testing.assert_allclose(score_ragged(queries, documents, "top-k:2,z=query")[0], totals[0] / 4, rtol=1e-5)
    assert not score_ragged(queries, documents, "top-k:2,z=query")[1].any()


def test_selection_is_by_similarity_and_first_among_equals():
    """Salience weighs what was selected; it neither moves the selection nor breaks a tie."""
    query = TokenVectors.from_list([[[1.0]]])
    document = TokenVectors.from_list([[[1.0], [2.0], [2.0], [2.0]]], salience=[[9.0, 3.0, 5.0, 7.0]])
    assert score_ragged(query, document).item() == 2 * 3
    assert score_ragged(query, document, "top-k:2,z=one").item() == 2 * 3 + 2 * 5
    assert score_ragged(query, document, "top-k:2").item() == 2
    (hits,) = aligned_pairs(query, document, "top-k:3")
    assert hits.document_token.tolist() == [1, 2, 3]


def test_a_greater_similarity_pushes_out_the_last_of_equals():
    query = TokenVectors.from_list([[[1.0]]])
    document = TokenVectors.from_list([[[5.0], [5.0], [7.0]]], salience=[[1.0, 10.0, 100.0]])
    assert score_ragged(query, document, "top-k:2,z=one").item() == 7 * 100 + 5 * 1


def test_zero_salience_makes_z_zero_and_the_score_zero():
    query = TokenVectors.from_list([[[1.0], [2.0]]], salience=[[0.0, 0.0]])
    document = TokenVectors.from_list([[[3.0], [4.0]]], salience=[[1.0, 1.0]])
    assert score_ragged(query, document, "top-k:1").item() == 0


@given(problems(salient=False), ALIGNMENTS)
def test_pairs_are_the_selection_that_was_scored(problem, alignment):
    queries, documents = problem
    for b in range(len(queries)):
        query = queries[b : b + 1]
        pairs = aligned_pairs(query, documents, alignment)
        scores = score_ragged(query, documents, f"{alignment},z=one")[0]
        assert len(pairs) == len(documents)
        for d, (hits, score) in enumerate(zip(pairs, scores, strict=True)):
            assert (hits.document == d).all()
            S = query.values.astype(np.float64) @ documents[d].astype(np.float64).T
            np.testing.assert_allclose(hits.similarity, S[hits.query_token, hits.document_token], rtol=1e-4, atol=1e-5)
            total = float(hits.similarity.astype(np.float64).sum())
            assert score == pytest.approx(total, rel=1e-5, abs=1e-5)
            # By query token, then the most similar first, equal ones by document token.
            order = np.lexsort((hits.document_token, -hits.similarity, hits.query_token))
            assert order.tolist() == list(range(len(hits)))


@pytest.mark.parametrize("alignment", ["sum-of-max", "top-k:5", "top-p:0.5", "top-k:80"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("salient", [False, True])
def test_threads_do_not_change_a_bit(alignment, dtype, salient):
    rng = np.random.default_rng(1)
    lengths = [*rng.integers(0, 200, 300), 3000]
    queries, documents = make(rng, [32, 5, 0, 70], lengths, 24, "normal", dtype=dtype, salient=salient)
    one = score_ragged(queries, documents, alignment)
    for threads in (2, 3, 4, 64):
        assert np.array_equal(one, score_ragged(queries, documents, alignment, threads=threads))


def test_a_score_depends_on_nothing_but_its_pair():
    """Not on the neighbours in the collection, nor on the place in a tile, nor on the batch of queries."""
    rng = np.random.default_rng(2)
    queries, documents = make(rng, [9, 32, 1], rng.integers(0, 40, 60), 33, "normal")
    for alignment in ("sum-of-max", "top-k:3"):
        together = score_ragged(queries, documents, alignment)
        for b, d in itertools.product(range(len(queries)), range(len(documents))):
            alone = score_ragged(queries[b : b + 1], documents[d : d + 1], alignment)
            assert alone.item() == together[b, d]


def test_many_callers_at_once():
    """The GIL is released, and nothing is shared between calls."""
    rng = np.random.default_rng(4)
    queries, documents = make(rng, [32], rng.integers(1, 90, 200), 64, "normal")
    want = score_ragged(queries, documents)
    got = []

    def call():
        got.extend(score_ragged(queries, documents, threads=2) for _ in range(5))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(got) == 20
    assert all(np.array_equal(want, scores) for scores in got)


def test_read_only_arrays_are_enough():
    """Segments are memory-mapped read-only."""
    queries, documents = make(np.random.default_rng(5), [3], [4, 5], 6, "normal")
    want = score_ragged(queries, documents)
    for side in (queries, documents):
        side.values.flags.writeable = False
        side.offsets.flags.writeable = False
    assert np.array_equal(want, score_ragged(queries, documents))


@pytest.fixture
def pair():
    return make(np.random.default_rng(6), [3], [4, 5], 6, "normal")


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, None])
def test_bad_threads(pair, threads):
    with pytest.raises(InvalidParameterError, match=r"'threads' parameter of score_ragged must be an integer >= 1\."):
        score_ragged(*pair, threads=threads)


@pytest.mark.parametrize("call", [score_ragged, aligned_pairs])
def test_bad_arguments(pair, call):
    queries, documents = pair
    other = TokenVectors.from_list([np.ones((2, 5))])
    with pytest.raises(InvalidParameterError, match=r"'documents' parameter of .* dimension of .*, 6\. Got 5 instead"):
        call(queries, other)
    with pytest.raises(InvalidParameterError, match=r"must be a TokenVectors\. Got 'ndarray' instead"):
        call(queries, documents.values)
    with pytest.raises(InvalidParameterError, match=r"must be sum-of-max, top-k or top-p .* Got 'single-vector'"):
        call(queries, documents, "dpr")
    with pytest.raises(WeftError):
        call(queries, documents, "top-k:0")


def test_pairs_need_one_query(pair):
    queries, documents = pair
    two = TokenVectors.concatenate([queries, queries])
    with pytest.raises(InvalidParameterError, match=r"'query' parameter of aligned_pairs must be .* one text"):
        aligned_pairs(two, documents)


def test_the_bindings_refuse_arrays_that_would_lead_out_of_bounds(pair):
    queries, documents = pair
    good = {
        "queries": queries.values,
        "query_offsets": queries.offsets,
        "query_salience": None,
        "documents": documents.values,
        "offsets": documents.offsets,
        "salience": None,
        "k": None,
        "out": np.empty((1, 2), np.float32),
        "mass": None,
        "threads": 1,
    }
    _native.score(**good)
    for name, bad in {
        "query_offsets": np.array([0, 4]),
        "offsets": np.array([0, 10, 9]),
        "documents": documents.values[:, :5].copy(),
        "salience": np.ones(8, np.float32),
        "query_salience": np.ones(2, np.float32),
        "k": np.array([5, 5], np.int32),
        "out": np.empty((2, 1), np.float32),
        "mass": np.empty((1, 1), np.float32),
        "threads": 0,
    }.items():
        with pytest.raises(ValueError, match="must"):
            _native.score(**{**good, name: bad})
    with pytest.raises(TypeError):
        _native.score(**{**good, "documents": documents.values[::2]})
