"""Every alignment equals its brute-force double loop, on NumPy and on torch, whatever the padding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
import weft
from strategies import problems
from weft.alignment import Alignment

# name of the alignment → Ã by brute force, from S, the document's length and the vocabulary ids
PAIRWISE = {
    "single-vector": lambda S, m, ids: oracles.single_vector(S, m),
    "first-k-max:2": lambda S, m, ids: oracles.first_k_max(S, m, 2),
    "exact-match": lambda S, m, ids: oracles.exact_match(S, m, *ids),
    "sum-of-max": lambda S, m, ids: oracles.top_k(S, m, 1),
    "top-k:1": lambda S, m, ids: oracles.top_k(S, m, 1),
    "top-k:3": lambda S, m, ids: oracles.top_k(S, m, 3),
    "top-p:0.34": lambda S, m, ids: oracles.top_p(S, m, 3400),
    "top-p:1.0": lambda S, m, ids: oracles.top_p(S, m, 10_000),
    "document-to-query": lambda S, m, ids: oracles.document_to_query(S, m, 1.0),
    "document-to-query:0.5,z=one": lambda S, m, ids: oracles.document_to_query(S, m, 0.5),
}

XTR = {
    "xtr-in-batch:1": lambda all_S: oracles.xtr_in_batch(all_S, 1),
    "xtr-in-batch:4": lambda all_S: oracles.xtr_in_batch(all_S, 4),
    "xtr:4,impute=none": lambda all_S: oracles.xtr_in_batch(all_S, 4),
    "xtr:3": lambda all_S: oracles.xtr(all_S, 3, "kth"),
    "xtr:3,impute=zero": lambda all_S: oracles.xtr(all_S, 3, 0.0),
    "xtr:3,impute=0.2": lambda all_S: oracles.xtr(all_S, 3, 0.2),
    "xtr:1000": lambda all_S: oracles.xtr(all_S, 1000, "kth"),
}


def pad(arrays, width, fill=0.0):
    """Stack ragged arrays to a rectangle `width` long; padding holds `fill`."""
    out = np.full((len(arrays), width, *arrays[0].shape[1:]), fill, dtype=arrays[0].dtype)
    mask = np.zeros((len(arrays), width), dtype=bool)
    for row, array in enumerate(arrays):
        out[row, : len(array)] = array
        mask[row, : len(array)] = True
    return out, mask


def padded_inputs(to, Q, D, u_q, u_d, ids_q, ids_d, extra, fill):
    """Both sides as padded batches of this backend, `extra` columns wider than they need to be."""
    width = max(map(len, D)) + extra
    documents, document_mask = pad(D, width, fill)
    queries, query_mask = pad([Q], len(Q) + extra, fill)
    inputs = {
        "query_mask": query_mask,
        "document_mask": document_mask,
        "query_tokens": pad([ids_q], len(Q) + extra)[0],
        "document_tokens": pad(ids_d, width)[0],
    }
    if u_q is not None:
        inputs |= {"query_salience": pad([u_q], len(Q) + extra)[0], "document_salience": pad(u_d, width)[0]}
    return to(queries), to(documents), {name: to(value) for name, value in inputs.items()}


@pytest.mark.parametrize("name", PAIRWISE)
@given(problem=problems(), extra=st.integers(0, 3), fill=st.sampled_from([0.0, 100.0, np.nan]))
def test_alignment_and_score_equal_brute_force(backend, name, problem, extra, fill):
    Q, D, u_q, u_d, ids_q, ids_d = problem
    queries, documents, inputs = padded_inputs(backend, *problem, extra, fill)
    A = np.asarray(weft.align(queries, documents, name, **inputs))
    scores = np.asarray(weft.score(queries, documents, name, **inputs))
    z = Alignment.parse(name).z
    for position, document in enumerate(D):
        S = oracles.similarities(Q, document)
        expected = oracles.relevance(
            S, PAIRWISE[name](S, len(document), (ids_q, ids_d[position])), z, u_q, u_d and u_d[position]
        )
        assert scores[0, position] == pytest.approx(expected, rel=1e-4, abs=1e-4)
        # The score can be recomputed from the A returned, and padding never aligns.
        own = A[0, position, : len(Q), : len(document)]
        Z = {"one": 1.0, "sum": max(own.sum(), 1e-6) if own.sum() > 0 else 0.0, "query": len(Q)}[z]
        total = (np.reshape(S, own.shape) * own).sum()
        assert scores[0, position] == pytest.approx(total / Z if Z > 0 else 0.0, rel=1e-4, abs=1e-4)
        assert A[0, position].sum() == pytest.approx(own.sum(), rel=1e-6)


@pytest.mark.parametrize("name", [name for name in PAIRWISE if "document-to-query" not in name])
@given(problem=problems())
def test_hard_alignment_is_the_very_same_matrix(backend, name, problem):
    Q, D, _, _, ids_q, ids_d = problem
    for document, ids in zip(D, ids_d, strict=True):
        # Integer-valued S, so that ties are exact and the first-wins rule is put to the test.
        query, text = np.rint(Q), np.rint(document)
        S = oracles.similarities(query, text)
        expected = PAIRWISE[name](S, len(text), (ids_q, ids))
        A = weft.align(backend(query), backend(text), name, query_tokens=backend(ids_q), document_tokens=backend(ids))
        assert np.array_equal(np.asarray(A), np.reshape(expected, (len(Q), len(text))))


@pytest.mark.parametrize("name", XTR)
@given(problem=problems(), extra=st.integers(0, 3), fill=st.sampled_from([0.0, 100.0, np.nan]))
def test_xtr_equals_brute_force(backend, name, problem, extra, fill):
    Q, D, *_, ids_q, ids_d = problem
    queries, documents, inputs = padded_inputs(backend, Q, D, None, None, ids_q, ids_d, extra, fill)
    scores = np.asarray(weft.score(queries, documents, name, **inputs))[0]
    expected = XTR[name]([oracles.similarities(Q, document) for document in D])
    assert scores == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("name", [*PAIRWISE, *XTR, "da:2"])
@given(problem=problems())
def test_score_is_the_sum_of_the_terms_returned(name, problem):
    Q, D, u_q, u_d, ids_q, ids_d = problem
    query = weft.TokenVectors.from_list([Q], [ids_q], None if u_q is None else [u_q])
    documents = weft.TokenVectors.from_list(D, ids_d, u_d)
    terms = weft.aligned(query, documents, name)
    total = (terms.similarity * terms.alignment).sum(axis=(-2, -1))
    expected = np.divide(total, terms.z, out=np.zeros_like(total), where=terms.z != 0)
    assert weft.score(query, documents, name) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert np.array_equal(weft.align(query, documents, name), terms.alignment)


@given(problem=problems(), k_prime=st.integers(1, 12))
def test_kth_score_imputation_bounds_the_true_score(problem, k_prime):
    Q, D, *_ = problem
    documents = weft.TokenVectors.from_list(D)
    true = weft.score(Q, documents, "sum-of-max,z=query")
    imputed = weft.score(Q, documents, f"xtr:{k_prime}")
    assert (imputed >= true - 1e-4).all()


@pytest.mark.parametrize("name", [*PAIRWISE, *XTR, "da:2"])
@given(problem=problems())
def test_ragged_padded_and_single_forms_agree(name, problem):
    Q, D, u_q, u_d, ids_q, ids_d = problem
    documents = weft.TokenVectors.from_list(D, ids_d, u_d)
    queries = weft.TokenVectors.from_list([Q, Q[:1]], [ids_q, ids_q[:1]], None if u_q is None else [u_q, u_q[:1]])
    together = weft.score(queries, documents, name)
    assert together.shape == (2, len(D))
    padded = padded_inputs(lambda x: x, *problem, 2, 7.0)
    assert together[0] == pytest.approx(weft.score(*padded[:2], name, **padded[2])[0], rel=1e-5, abs=1e-6)
    if name in XTR:  # a document's score depends on the others retrieved beside it
        return
    for position, document in enumerate(D):
        extras = {"query_tokens": ids_q, "document_tokens": ids_d[position]}
        if u_q is not None:
            extras |= {"query_salience": u_q, "document_salience": u_d[position]}
        alone = weft.score(Q, document, name, **extras)
        assert alone.shape == ()
        assert together[0, position] == pytest.approx(float(alone), rel=1e-5, abs=1e-6)


@given(problem=problems(), eps=st.sampled_from([0.002, 0.05, 1.0]), k=st.integers(1, 8))
def test_differentiable_alignment_rows_sum_to_k(backend, problem, eps, k):
    Q, D, *_ = problem
    for document in D:
        A = np.asarray(weft.align(backend(Q), backend(document), f"da:{k},eps={eps}"))
        assert ((A >= 0) & (A <= 1)).all()
        assert A.sum(axis=1) == pytest.approx(np.full(len(Q), min(k, len(document))), rel=1e-3)


def test_differentiable_alignment_tends_to_top_k():
    rng = np.random.default_rng(0)
    Q, D = rng.standard_normal((4, 8)), rng.standard_normal((9, 8))
    assert weft.align(Q, D, "da:3,eps=0.002") == pytest.approx(weft.align(Q, D, "top-k:3"), abs=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("name", [*PAIRWISE, *XTR, "da:2,eps=0.5", "da:2,eps=0.5,gradient=iterations"])
def test_gradients_equal_finite_differences(name):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    Q = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    D = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
    inputs = {
        "document_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool),
        "query_tokens": torch.tensor([[0, 1, 2], [1, 1, 0]]),
        "document_tokens": torch.tensor([[0, 1, 2, 0, 1], [1, 2, 1, 0, 0], [2, 0, 0, 0, 0]]),
    }
    u_q = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
    u_d = torch.rand(3, 5, dtype=torch.float64, requires_grad=True)

    def scores(Q, D, u_q, u_d):
        return weft.score(Q, D, name, query_salience=u_q, document_salience=u_d, **inputs)

    assert torch.autograd.gradcheck(scores, (Q, D, u_q, u_d), atol=1e-5)


@pytest.mark.torch
@pytest.mark.parametrize("fill", [float("nan"), float("inf")])
def test_padding_never_reaches_a_gradient(fill):
    torch = pytest.importorskip("torch")
    for name in [*PAIRWISE, *XTR, "da:2"]:
        Q = torch.randn(1, 3, 4)
        D = torch.randn(2, 5, 4)
        Q[0, 2], D[1, 3:] = fill, fill
        Q.requires_grad_()
        D.requires_grad_()
        inputs = {
            "query_mask": torch.tensor([[1, 1, 0]]),
            "document_mask": torch.tensor([[1] * 5, [1, 1, 1, 0, 0]]),
            "query_tokens": torch.zeros(1, 3, dtype=torch.int64),
            "document_tokens": torch.zeros(2, 5, dtype=torch.int64),
        }
        weft.score(Q, D, name, **inputs).sum().backward()
        assert torch.isfinite(Q.grad).all(), name
        assert torch.isfinite(D.grad).all(), name
        assert (Q.grad[0, 2] == 0).all(), name


@pytest.mark.torch
def test_torch_types_may_mix_and_halves_are_summed_in_single():
    torch = pytest.importorskip("torch")
    Q, D = torch.randn(3, 64), torch.randn(7, 64)
    expected = float(weft.score(Q, D))
    assert float(weft.score(Q.double(), D)) == pytest.approx(expected, rel=1e-5)
    halves = weft.score(Q.half(), D.bfloat16())
    assert halves.dtype == torch.float32
    assert float(halves) == pytest.approx(expected, rel=2e-2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert weft.score(Q, D).dtype == torch.float32


def test_overflowing_similarities_do_not_become_nan():
    big = np.full((2, 2), 1e30, np.float32)
    with np.errstate(over="ignore"):
        assert weft.score(big, -big) == -np.inf


@pytest.mark.torch
def test_no_gradient_is_nan_for_empty_texts():
    torch = pytest.importorskip("torch")
    for name in [*PAIRWISE, *XTR, "da:2", "da:2,gradient=iterations"]:
        Q = torch.randn(1, 2, 3, requires_grad=True)
        D = torch.randn(2, 4, 3, requires_grad=True)
        ids = {
            "query_tokens": torch.zeros(1, 2, dtype=torch.int64),
            "document_tokens": torch.zeros(2, 4, dtype=torch.int64),
        }
        mask = torch.tensor([[True] * 4, [False] * 4])
        weft.score(Q, D, name, document_mask=mask, **ids).sum().backward()
        assert torch.isfinite(Q.grad).all(), name
        assert torch.isfinite(D.grad).all(), name
        assert (D.grad[1] == 0).all(), name
