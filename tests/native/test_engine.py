"""The engine against its definition in NumPy (engine_oracle.py)."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from native import engine_oracle as oracle
from weft.storage.codecs import clustering

TOKENS = (0, 1, 8, 9, 16, 17, 31, 32, 33, 70)


@st.composite
def cases(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dim = 4 * draw(st.integers(1, 33))
    lengths = draw(st.lists(st.integers(0, 14), max_size=14))
    made = oracle.problem(
        rng, lengths, dim, cells=draw(st.integers(1, 7)), scale=draw(st.sampled_from([300.0, 0.02, 1e7])),
        bits=draw(st.sampled_from([8, 4, 2])),
    )  # fmt: skip
    q = oracle.query(rng, draw(st.sampled_from(TOKENS)), dim, draw(st.sampled_from(oracle.KINDS)))
    return rng, made, q


def everything(made):
    return np.arange(len(made.offsets) - 1, dtype=np.int32)


# -- re-ranking --------------------------------------------------------------------------------------


@given(cases())
def test_rerank_equals_the_integer_oracle(case):
    _, made, q = case
    order, scores, _ = made.engine().rerank(q, everything(made), len(made.offsets), 0)
    expected = oracle.integer_scores(made, q)
    assert sorted(order.tolist()) == everything(made).tolist()
    np.testing.assert_allclose(scores, expected[order], rtol=1e-6, atol=1e-6 * np.abs(expected).max(initial=0))
    assert order.tolist() == [d for _, d in sorted(zip(-scores, order, strict=True))]


@given(cases())
def test_the_error_bound_holds(case):
    """It certifies exact search: never violated, by exact scores or by those computed in single precision."""
    _, made, q = case
    engine = made.engine()
    order, scores, error = engine.rerank(q, everything(made), len(made.offsets), 0)
    exact = oracle.exact_scores(made, q)[order]
    assert (np.abs(scores.astype(np.float64) - exact) <= error).all()
    values = np.empty(made.rows.shape, dtype=np.float32)
    engine.decode(everything(made), values)
    single = [
        np.float32((part @ q.T).max(axis=0, initial=-np.inf).sum(dtype=np.float32)) if len(part) else np.float32(0)
        for part in (np.split(values, made.offsets[1:-1]) if len(made.offsets) > 1 else [])
    ]
    assert (np.abs(scores.astype(np.float64) - np.array(single)[order]) <= error).all()


def test_the_bound_holds_where_rounding_loses_nothing():
    """Whole numbers are exact in the coded query, so only the digits of floats are left to bound."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        made = oracle.problem(rng, rng.integers(1, 9, 6), 8, scale=float(10.0 ** rng.uniform(-6, 6)))
        q = (rng.integers(-1, 2, (70, 8)) * 63).astype(np.float32)
        order, scores, error = made.engine().rerank(q, everything(made), 6, 0)
        assert (np.abs(scores.astype(np.float64) - oracle.exact_scores(made, q)[order]) <= error).all()


@pytest.mark.parametrize("dim", [4, 20, 64, 128, 132, 1024])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shape", ["flat", "few", "geometric", "even pairs"])
def test_aligned_vectors_at_the_norm_limit_do_not_wrap(dim, sign, shape):
    """The worst case of Cauchy-Schwarz: the query along the longest code, every rounding upwards."""
    weights = {
        "flat": np.ones(dim),
        "few": np.arange(dim) < 6,
        "geometric": 0.97 ** np.arange(dim),
        "even pairs": np.arange(dim) % 4 < 2,
    }[shape].astype(np.float64)
    x = weights / np.linalg.norm(weights)
    made = oracle.problem(np.random.default_rng(0), [1, 1], dim)
    made.norm = oracle.NORM + dim**0.5 / 2
    up = next(row for s in np.linspace(400, 1, 2000) if np.linalg.norm(row := np.ceil(x * s)) <= made.norm)
    rows = np.stack([128 + sign * np.minimum(up, 127), 128 - sign * np.minimum(up, 127)]).astype(np.uint8)
    made.rows = rows
    for q in (x, -x, np.stack([x] * 33)):
        q = np.atleast_2d(q).astype(np.float32)
        codes, _ = oracle.rounded(q, made.norm, common=False)
        dots = (rows.astype(np.int64) - 128) @ codes.T
        assert np.abs(dots).max() <= 32767
        order, scores, _ = made.engine().rerank(q, everything(made), 2, 0)
        np.testing.assert_allclose(scores, oracle.integer_scores(made, q)[order], rtol=1e-6)


def test_a_wider_norm_makes_a_shorter_query():
    """Residual codes may decode to longer rows than the codec's limit: the segment says how long."""
    made = oracle.problem(np.random.default_rng(0), [3, 2], 128)
    made.rows = np.full((5, 128), 255, dtype=np.uint8)
    made.norm = 127 * 128**0.5
    q = np.ones((2, 128), dtype=np.float32)
    order, scores, error = made.engine().rerank(q, everything(made), 2, 0)
    assert (np.abs(scores - oracle.exact_scores(made, q)[order]) <= error).all()


@given(cases(), st.integers(0, 5), st.integers(1, 4))
def test_rerank_keeps_the_best_and_patience_stops(case, keep, patience):
    rng, made, q = case
    listed = rng.permutation(everything(made)).astype(np.int32)
    engine = made.engine()
    order, scores, _ = engine.rerank(q, listed, len(listed), 0)
    some, some_scores, _ = engine.rerank(q, listed, keep, 0)
    assert some.tolist() == order[:keep].tolist()
    assert some_scores.tolist() == scores[:keep].tolist()

    value = dict(zip(order.tolist(), scores.tolist(), strict=True))
    seen, useless = [], 0
    for d in listed.tolist():
        if useless >= patience:
            break
        least = sorted((value[x] for x in seen), reverse=True)[keep - 1] if 0 < keep <= len(seen) else None
        room = len(seen) < keep
        useless = 0 if room or (least is not None and value[d] > least) else useless + 1
        seen.append(d)
    found, _, _ = engine.rerank(q, listed, keep, patience)
    assert found.tolist() == sorted(seen, key=lambda d: (-value[d], d))[:keep]


# -- candidates --------------------------------------------------------------------------------------


@given(cases(), st.integers(0, 8), st.integers(0, 40), st.integers(0, 16), st.booleans(), st.booleans())
def test_candidates_equal_the_definition(case, cells, centroids, count, masked, steps):
    rng, made, q = case
    allowed = (rng.random(len(made.offsets) - 1) < 0.6).astype(np.uint8) if masked else None
    found = made.engine(steps=steps).candidates(q, allowed, cells, centroids, count)
    assert found.tolist() == oracle.candidates(made, q, allowed, cells, centroids, count)


@given(cases(), st.integers(0, 8), st.integers(0, 40), st.integers(0, 16), st.integers(-1, 9), st.booleans())
def test_the_best_sketches_are_kept(case, cells, centroids, count, keep, masked):
    rng, made, q = case
    allowed = (rng.random(len(made.offsets) - 1) < 0.6).astype(np.uint8) if masked else None
    engine = made.engine()
    expected = oracle.sketched(made, q, allowed, cells, centroids, count, keep)
    found, ready, *_ = engine.probe(q, allowed, cells, centroids, count, keep, None)
    assert ready
    assert found.tolist() == expected
    # Nothing is read of documents that were not checked: they are named, and the next try is ready.
    checked = (rng.random(len(made.offsets) - 1) < 0.5).astype(np.uint8)
    found, ready, *_ = engine.probe(q, allowed, cells, centroids, count, keep, checked)
    if not ready:
        assert len(found) > 0
        assert not checked[found].any()
        checked[found] = 1
        found, ready, *_ = engine.probe(q, allowed, cells, centroids, count, keep, checked)
    assert ready
    assert found.tolist() == expected


@given(cases(), st.integers(0, 6))
def test_scores_are_those_of_the_unrounded_query(case, keep):
    rng, made, q = case
    engine = made.engine()
    exact = oracle.exact_scores(made, q)
    slack = 1e-5 * (np.abs(q).sum() * 300 / made.scale + 1e-30)
    np.testing.assert_allclose(engine.score(q, everything(made)), exact, rtol=1e-5, atol=slack)
    listed = rng.permutation(everything(made)).astype(np.int32)
    best, scores, *_ = engine.best(q, listed, keep, 0)
    assert sorted(best.tolist()) == sorted(engine.rerank(q, listed, keep, 0)[0].tolist())
    assert scores.tolist() == engine.score(q, best).tolist()
    assert best.tolist() == [d for _, d in sorted(zip(-scores, best, strict=True))]


@given(cases(), st.integers(0, 6), st.booleans(), st.booleans())
def test_the_best_come_with_the_pairs_that_make_their_scores(case, keep, imputing, twins):
    rng, made, q = case
    if twins and made.codes is None:  # tokens that only their place tells apart
        made.rows[1::2] = made.rows[0 : len(made.rows) - 1 : 2]
    missing = None
    if imputing:
        exact = [oracle.exact_similarities(made, q, d).ravel() for d in range(len(made.offsets) - 1)]
        found = np.concatenate([*exact, [1.0]]).astype(np.float32)
        missing = rng.choice(found, len(q))
    listed = rng.permutation(everything(made)).astype(np.int32)
    documents, scores, _, tokens, similarities, *_ = made.engine().best(q, listed, keep, 0, missing)
    assert tokens.dtype == np.int32
    assert similarities.dtype == np.float32
    assert tokens.shape == similarities.shape == (len(documents), len(q))
    sums = np.cumsum(similarities.astype(np.float64), axis=1)[:, -1:]  # in order
    assert scores.tolist() == (sums.astype(np.float32).ravel().tolist() if len(q) else [0.0] * len(documents))
    assert documents.tolist() == [d for _, d in sorted(zip(-scores, documents, strict=True))]
    for d, chosen, counted in zip(documents, tokens, similarities, strict=True):
        expected = oracle.exact_similarities(made, q, d)  # (tokens, n)
        if len(expected) == 0:
            assert (chosen == -1).all()
            assert (counted == 0).all()
            continue
        slack = 1e-5 * np.sqrt(np.square(q.astype(np.float64)).sum(axis=1)) * made.norm / made.scale
        greatest = expected.max(axis=0)
        stands_in = chosen == -1
        if missing is None:
            assert not stands_in.any()
        else:
            assert counted[stands_in].tolist() == missing[stands_in].tolist()
            assert (counted >= missing).all()
            assert (missing - greatest >= -slack)[stands_in].all()
        pairs = np.flatnonzero(~stands_in)
        assert (np.abs(counted - expected[chosen, np.arange(len(q))]) <= slack)[pairs].all()
        assert (counted >= greatest - slack)[pairs].all()
        rows = oracle.documents(made)[d]
        for i in pairs:  # no token before it has the same codes
            assert not (rows[: chosen[i]] == rows[chosen[i]]).all(axis=1).any()


def test_a_token_that_is_found_as_well_as_imputed_counts_as_found():
    made = oracle.problem(np.random.default_rng(0), [2, 0, 3], 8, scale=1.0)
    made.rows[:] = 128
    made.rows[[1, 3, 4], 0] = 130
    engine, listed = made.engine(), np.arange(3, dtype=np.int32)
    q = np.eye(8, dtype=np.float32)[:3]
    for missing, tokens, similarities in (
        ([2, 0, 0.5], {0: [1, 0, -1], 1: [-1] * 3, 2: [1, 0, -1]}, [2, 0, 0.5]),
        ([1.5, -1, -1], {0: [1, 0, 0], 1: [-1] * 3, 2: [1, 0, 0]}, [2, 0, 0]),
        ([2.5, 0, 0], {0: [-1, 0, 0], 1: [-1] * 3, 2: [-1, 0, 0]}, [2.5, 0, 0]),
    ):
        documents, scores, _, found, counted, *_ = engine.best(q, listed, 3, 0, np.array(missing, np.float32))
        assert documents.tolist() == [0, 2, 1]
        assert [row.tolist() for row in found] == [tokens[d] for d in (0, 2, 1)]
        assert counted.tolist() == [similarities, similarities, [0, 0, 0]]
        assert scores.tolist() == [sum(similarities), sum(similarities), 0]


def test_a_cell_beyond_the_last_reads_the_last_one():
    for seed in range(20):
        made = oracle.problem(np.random.default_rng(seed), [2, 3, 1, 3], 12, cells=3)
        if made.numbers is None:
            continue
        q = oracle.query(np.random.default_rng(0), 5, 12)
        made.token_cells[:] = 2
        expected, *_ = made.engine().probe(q, None, 3, 9, 4, 2, None)
        made.token_cells[:] = 65535
        found, *_ = made.engine().probe(q, None, 3, 9, 4, 2, None)
        assert found.tolist() == expected.tolist()


def test_candidates_of_many_documents():
    """Enough documents and pages for every loop, and lists of steps beyond 65535."""
    rng = np.random.default_rng(1)
    made = oracle.problem(rng, np.ones(200_000, dtype=int), 4, cells=9)
    q = oracle.query(rng, 40, 4)
    made.lists = [np.sort(rng.choice(200_000, rng.integers(0, 6), replace=False)) for _ in made.centroids]
    made.lists[0] = np.array([0, 65534, 131069, 199_999])
    made.lists[1] = np.array([199_999])
    expected = oracle.candidates(made, q, None, 3, 9, 50)
    for steps in (False, True):
        assert made.engine(steps=steps).candidates(q, None, 3, 9, 50).tolist() == expected


@pytest.mark.parametrize("seed", range(8))
def test_a_bar_keeps_out_what_does_not_reach_it(seed):
    rng = np.random.default_rng(seed)
    made = oracle.problem(rng, rng.integers(1, 4, 200), 16, cells=9)
    q, engine = oracle.query(rng, 40, 16), made.engine()
    found, _, promise, sketch, imputed, _ = engine.probe(q, None, 3, 6, 30, 0, None)
    assert found.tolist() == oracle.candidates(made, q, None, 3, 6, 30)
    assert sketch == -np.inf
    # Its own bar is one that all of them reach, and a higher one fewer, in the same order.
    last = len(found)
    for bar in (promise, promise * 1.01, promise * 1.1, np.inf):
        again, ready, *_ = engine.probe(q, None, 3, 6, 30, 0, None, bar, -np.inf, imputed)
        assert ready
        assert again.tolist() == found[: len(again)].tolist()
        assert len(again) == 30 if bar == promise else len(again) <= last
        last = len(again)
    assert last == 0
    if made.numbers is None:
        return
    found, _, promise, sketch, imputed, _ = engine.probe(q, None, 3, 6, 30, 5, None)
    again, *_ = engine.probe(q, None, 3, 6, 30, 5, None, promise, sketch, imputed)
    assert again.tolist() == found.tolist()
    again, *_ = engine.probe(q, None, 3, 6, 30, 5, None, promise, np.inf, imputed)
    assert again.tolist() == []


def test_asking_for_more_candidates_than_there_are_returns_all():
    made = oracle.problem(np.random.default_rng(0), [2, 0, 1, 3], 8)
    engine = made.engine()
    q = np.ones((3, 8), dtype=np.float32)
    assert engine.candidates(q, None, 1, 1, 100).tolist() == [0, 2, 3]
    assert engine.candidates(q, np.array([0, 1, 1, 1], dtype=np.uint8), 1, 1, 2).tolist() == [2, 3]
    assert engine.candidates(q, np.zeros(4, dtype=np.uint8), 1, 1, 2).tolist() == []
    assert engine.candidates(q[:0], None, 1, 1, 2).tolist() == [0, 2]


def test_engines_of_different_sizes_share_nothing():
    """Working memory is kept between queries: a smaller engine's must not leak into a larger one's."""
    rng = np.random.default_rng(3)
    made = [
        oracle.problem(rng, rng.integers(0, 4, size), 16, cells=cells) for size, cells in ((40, 9), (7, 2), (90, 3))
    ]
    for _ in range(3):
        for one in made:
            q = oracle.query(rng, 34, 16)
            assert one.engine().candidates(q, None, 2, 5, 6).tolist() == oracle.candidates(one, q, None, 2, 5, 6)


# -- decoding ----------------------------------------------------------------------------------------


@given(cases())
def test_decode_gives_the_coded_vectors(case):
    rng, made, _ = case
    listed = rng.permutation(everything(made))[:5].astype(np.int32)
    rows = [oracle.documents(made)[d] for d in listed]
    expected = np.concatenate([np.zeros((0, made.dim), np.uint8), *rows]).astype(np.float32) - 128
    out = np.empty(expected.shape, dtype=np.float32)
    made.engine().decode(listed, out)
    np.testing.assert_array_equal(out, expected * (np.float32(1) / np.float32(made.scale)))


# -- levels ------------------------------------------------------------------------------------------


def test_every_simd_level_gives_the_same_answers():
    """The sums are whole numbers: levels must agree to the last bit."""
    answers = {}
    for level in weft.simd_levels():
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("engine_oracle.py"))],
            env={**os.environ, "WEFT_SIMD": level}, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        first, *rest = done.stdout.splitlines()
        assert first == level
        assert len(rest) == 60
        answers[level] = rest
    assert all(answer == answers["baseline"] for answer in answers.values())


def test_padding_columns_change_nothing():
    """A dimension that is no multiple of 4 is coded in the next one, by a rotation with orthonormal rows."""
    for dim in (1, 5, 127, 128):
        matrix = clustering.rotation(dim, 1)
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(dim), atol=1e-5)
