"""Alignments and gates as small, hashable objects with a string form that parses back."""

import pickle

import numpy as np
import pytest

from weft import WeftError
from weft.alignment import (
    XTR,
    Alignment,
    Attention,
    DifferentiableAlignment,
    DocumentToQuery,
    EntropyLPGate,
    ExactMatch,
    FirstKMax,
    Gate,
    InBatchTokenRetrieval,
    SingleVector,
    SumOfMax,
    TopK,
    TopP,
)

STRINGS = [
    (SingleVector(), "single-vector"),
    (FirstKMax(3), "first-k-max:3"),
    (ExactMatch(), "exact-match"),
    (SumOfMax(), "sum-of-max"),
    (SumOfMax(z="query"), "sum-of-max,z=query"),
    (TopK(4), "top-k:4"),
    (TopK(4, z="one"), "top-k:4,z=one"),
    (TopP(0.015), "top-p:0.015"),
    (DifferentiableAlignment(1, eps=0.06), "da:1,eps=0.06"),
    (DifferentiableAlignment(2, gradient="iterations", z="one"), "da:2,gradient=iterations,z=one"),
    (InBatchTokenRetrieval(32), "xtr-in-batch:32"),
    (XTR(), "xtr"),
    (XTR(4000), "xtr:4000"),
    (XTR(4000, impute="0.2"), "xtr:4000,impute=0.2"),
    (DocumentToQuery(), "document-to-query"),
    (DocumentToQuery(0.5), "document-to-query:0.5"),
    (Attention(), "attention"),
]


@pytest.mark.parametrize(("alignment", "text"), STRINGS, ids=[text for _, text in STRINGS])
def test_string_and_back(alignment, text):
    assert str(alignment) == text
    assert Alignment.parse(text) == alignment
    assert hash(Alignment.parse(text)) == hash(alignment)
    assert Alignment.parse(alignment) is alignment
    assert pickle.loads(pickle.dumps(alignment)) == alignment


def test_every_alignment_is_in_the_table():
    assert {type(a) for a, _ in STRINGS} == set(Alignment._registry.values())
    assert all(a.reference for a, _ in STRINGS)


@pytest.mark.parametrize("text", ["lp:0.4", "lp:0.4,eps=0.01", "hard:0.5", "relu", "l1:0.001"])
def test_gates_too(text):
    assert str(Gate.parse(text)) == text
    assert Gate.parse("lp:0.4") == EntropyLPGate(0.4)


@pytest.mark.parametrize(
    ("alias", "alignment"),
    [
        ("colbert", SumOfMax()),
        ("maxsim", SumOfMax()),
        ("dpr", SingleVector()),
        ("me-bert:2", FirstKMax(2)),
        (" Top-K:2 ", TopK(2)),
    ],
)
def test_names_of_the_systems_work(alias, alignment):
    assert Alignment.parse(alias) == alignment


def test_number_and_text_impute_are_the_same_alignment():
    assert XTR(5, impute=0.2) == XTR(5, impute="0.2") == XTR(5, impute="0.20")


def test_numpy_numbers_are_numbers():
    assert str(TopK(np.int64(4))) == "top-k:4"
    assert TopP(np.float32(0.5)) == TopP(0.5)
    assert str(TopP(1)) == str(TopP(1.0)) == "top-p:1.0"


def test_xtr_without_a_k_prime_takes_a_share_of_the_tokens():
    assert str(XTR(impute="zero")) == "xtr,impute=zero"
    assert [XTR().retrieves(n) for n in (0, 40_000, 1_000_000)] == [100, 100, 2500]
    assert XTR(7).retrieves(1_000_000) == 7


@pytest.mark.parametrize("k_prime", [-1, 0, False, 0.5])
def test_k_primes_that_are_none(k_prime):
    with pytest.raises(WeftError, match="k_prime"):
        XTR(k_prime)


def test_z_of_xtr_without_imputation():
    assert XTR(5, impute="none", z="one").divides_by == "one"
    assert XTR(5, impute="none").divides_by == "sum"
    assert XTR(5).divides_by == "query"
