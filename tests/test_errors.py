"""Bad input raises a WeftError that names the parameter, the constraint and the value."""

import importlib

import numpy as np
import pytest

import weft
from weft._renamed import MODULES
from weft.alignment import Alignment, Gate, entropy_lp, register_imputation, salience
from weft.errors import WeftError

Q, D = np.ones((2, 3)), np.ones((4, 3))
NAN = np.array([[0.0, np.nan, 0.0]])

CASES = {
    "k = 0": (lambda: Alignment.parse("top-k:0"), ["'k'", "TopK", "integer >= 1", "0"]),
    "k < 0": (lambda: weft.alignment.TopK(-2), ["'k'", "integer >= 1", "-2"]),
    "k not whole": (lambda: Alignment.parse("top-k:1.5"), ["'k'", "an integer", "1.5"]),
    "k a boolean": (lambda: weft.alignment.TopK(True), ["'k'", "integer >= 1", "True"]),
    "p = 0": (lambda: Alignment.parse("top-p:0"), ["'p'", "TopP", "(0, 1]", "0"]),
    "p > 1": (lambda: weft.score(Q, D, "top-p:1.01"), ["'p'", "(0, 1]", "1.01"]),
    "p NaN": (lambda: Alignment.parse("top-p:nan"), ["'p'", "(0, 1]", "nan"]),
    "k_prime = 0": (lambda: Alignment.parse("xtr:0"), ["'k_prime'", "0"]),
    "k_train = 0": (lambda: Alignment.parse("xtr-in-batch:0"), ["'k_train'", "0"]),
    "unknown imputation": (lambda: Alignment.parse("xtr:5,impute=magic"), ["'impute'", "kth", "magic"]),
    "infinite imputation": (lambda: Alignment.parse("xtr:5,impute=inf"), ["'impute'", "finite", "inf"]),
    "imputation name taken": (lambda: register_imputation("kth", lambda *a: a[2]), ["'name'", "'kth'"]),
    "eps = 0": (lambda: Alignment.parse("da:1,eps=0"), ["'eps'", "> 0", "0"]),
    "temperature < 0": (lambda: Alignment.parse("document-to-query:-1"), ["'temperature'", "-1"]),
    "unknown z": (lambda: Alignment.parse("top-k:1,z=two"), ["'z'", "'sum'", "'two'"]),
    "unknown alignment": (lambda: weft.score(Q, D, "maxx"), ["'alignment'", "sum-of-max", "'maxx'"]),
    "unknown option": (lambda: Alignment.parse("top-k:1,q=2"), ["top-k", "k, z", "q=2"]),
    "option twice": (lambda: Alignment.parse("top-k:1,k=2"), ["once", "top-k:1,k=2"]),
    "missing k": (lambda: Alignment.parse("top-k"), ["top-k:k", "'top-k'"]),
    "value where none goes": (lambda: Alignment.parse("sum-of-max:3"), ["without a value", "sum-of-max:3"]),
    "alignment a number": (lambda: weft.score(Q, D, 3), ["'alignment'", "3"]),
    "wrong dimension": (lambda: weft.score(Q, np.ones((4, 5))), ["'D'", "dimension, 3", "5"]),
    "one axis": (lambda: weft.score(np.ones(3), D), ["'Q'", "(tokens, dim)", "(3,)"]),
    "NaN in Q": (lambda: weft.score(NAN, D), ["'Q'", "finite", "NaN"]),
    "infinity in D": (lambda: weft.align(Q, np.full((1, 3), np.inf)), ["'D'", "finite"]),
    "text in D": (lambda: weft.score(Q, np.array([["a", "b", "c"]])), ["'D'", "real numbers", "<U1"]),
    "short salience": (
        lambda: weft.score(Q, D, document_salience=np.ones(3)),
        ["'document_salience'", "(4,)", "(3,)"],
    ),
    "negative salience": (
        lambda: weft.score(Q, D, query_salience=np.array([1.0, -1.0])),
        ["'query_salience'", ">= 0", "-1"],
    ),
    "NaN salience": (
        lambda: weft.score(Q, D, query_salience=np.array([1.0, np.nan])),
        ["'query_salience'", "finite", "nan"],
    ),
    "mask of another shape": (
        lambda: weft.score(Q, D, document_mask=np.ones((4, 3))),
        ["'document_mask'", "(4,)", "(4, 3)"],
    ),
    "COIL without ids": (lambda: weft.score(Q, D, "coil"), ["'query_tokens'", "None"]),
    "attention without matrix": (lambda: weft.score(Q, D, "attention"), ["'attention'", "None"]),
    "attention transposed": (
        lambda: weft.score(Q, D, "attention", attention=np.ones((4, 2))),
        ["'attention'", "(2, 4)", "(4, 2)"],
    ),
    "TokenVectors and a mask": (
        lambda: weft.score(Q, weft.TokenVectors.from_list([D]), document_mask=np.ones(4)),
        ["'document_mask'", "TokenVectors"],
    ),
    "ragged list": (lambda: weft.score([[1, 2, 3], [1]], D), ["'Q'", "TokenVectors.from_list"]),
    "misspelt argument": (lambda: Alignment.parse("top-k:2,K=1"), ["top-k", "k, z"]),
    "huge k is fine, zero is not": (lambda: weft.score(Q, D, "top-k:-1000000000000000000000"), ["'k'", ">= 1"]),
    "gate gradient": (lambda: Gate.parse("lp:0.4,gradient=bogus"), ["'gradient'", "implicit", "bogus"]),
    "imputation not callable": (lambda: register_imputation("foo", 3), ["'estimate'", "function", "3"]),
    "imputation without name": (lambda: register_imputation("", lambda *a: a[2]), ["'name'"]),
    "salience of NaN": (lambda: salience(NAN, np.ones(3), 0.0, "relu"), ["'vectors'", "finite"]),
    "salience mask": (lambda: salience(Q, np.ones(3), 0.0, "relu", np.ones(3)), ["'mask'", "(2,)", "(3,)"]),
    "salience of one vector": (lambda: salience(np.ones(3), np.ones(3), 0.0, "relu"), ["'vectors'", "(3,)"]),
    "LP NaN": (lambda: entropy_lp(np.array([0.0, np.nan]), 1), ["'s'", "finite"]),
    "LP k of another shape": (lambda: entropy_lp(np.ones((2, 3)), np.ones(4)), ["'k'", "(2,)"]),
    "LP k a word": (lambda: entropy_lp(np.ones(3), "a"), ["'k'", "real numbers"]),
    "LP mask of another shape": (lambda: entropy_lp(np.ones(3), 1, mask=np.ones(4)), ["'mask'", "(3,)", "(4,)"]),
    "LP of a number": (lambda: entropy_lp(1.0, 1), ["'s'", "(..., tokens)"]),
    "gate ratio": (lambda: Gate.parse("lp:0"), ["'alpha'", "(0, 1]", "0"]),
    "l1 coefficient": (lambda: Gate.parse("l1:-1"), ["'coefficient'", "> 0", "-1"]),
    "salience weight": (lambda: salience(Q, np.ones(4), 0.0, "relu"), ["'weight'", "3", "(4,)"]),
    "LP eps": (lambda: entropy_lp(np.ones(3), 1, eps=0), ["'eps'", "> 0", "0"]),
    "LP k < 0": (lambda: entropy_lp(np.ones(3), -1), ["'k'", ">= 0", "-1"]),
    "LP iterations": (lambda: entropy_lp(np.ones(3), 1, max_iterations=0), ["'max_iterations'", ">= 1", "0"]),
    "LP method": (lambda: entropy_lp(np.ones(3), 1, method="simplex"), ["'method'", "exact", "'simplex'"]),
    "LP gradient": (lambda: entropy_lp(np.ones(3), 1, gradient="no"), ["'gradient'", "implicit", "'no'"]),
}


@pytest.mark.parametrize("case", CASES)
def test_message_names_parameter_constraint_and_value(case):
    act, parts = CASES[case]
    with pytest.raises(WeftError) as caught:
        act()
    assert isinstance(caught.value, ValueError)
    for part in parts:
        assert part in str(caught.value)


def test_a_huge_value_makes_a_short_message():
    with pytest.raises(WeftError) as caught:
        weft.score(Q, D, query_salience=-np.ones((2,)) * 1e9)
    assert len(str(caught.value)) < 400


def test_a_huge_k_takes_all():
    assert weft.score(Q, D, f"top-k:{10**30}") == weft.score(Q, D, "top-k:4")


@pytest.mark.torch
def test_a_torch_mask_on_numpy_vectors():
    torch = pytest.importorskip("torch")
    with pytest.raises(WeftError, match=r"'document_mask'.*NumPy"):
        weft.score(Q, D, document_mask=torch.ones(4))


@pytest.mark.torch
def test_numpy_and_torch_do_not_mix():
    torch = pytest.importorskip("torch")
    with pytest.raises(WeftError, match="same kind as Q"):
        weft.score(Q, torch.ones(4, 3))


# -- names that weft once had --------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), MODULES.items())
def test_modules_that_moved_say_where_to(old, new):
    if "importers" in old:
        pytest.importorskip("torch")
    importlib.import_module(new)
    parent, _, name = old.rpartition(".")
    for line in (f"import {old}", f"import {old}.something", f"from {parent} import {name}"):
        with pytest.raises(ImportError) as caught:
            exec(line, {})
        assert str(caught.value) == f"{old} is {new} now"


def test_modules_that_never_were():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'weft\.nothing'"):
        import weft.nothing  # noqa: F401


def test_attributes_that_have_another_name():
    encoder = object.__new__(weft.Encoder)
    with pytest.raises(AttributeError, match=r"^Encoder\.weights is Encoder\.salience_weighs now$"):
        _ = encoder.weights
    assert not hasattr(encoder, "weights")


def test_attributes_and_keywords_of_an_index_that_have_another_name(tmp_path):
    with weft.Index.create(tmp_path / "i", dim=2) as index:
        for old, new in (("encoder", "encoder_fingerprint"), ("weights", "salience_weighs")):
            with pytest.raises(AttributeError, match=f"^Index.{old} is Index.{new} now$"):
                getattr(index, old)
    for call in (
        lambda: weft.Index.create(tmp_path / "j", dim=2, encoder="x"),
        lambda: weft.Index.open(tmp_path / "i", encoder="x"),
    ):
        with pytest.raises(WeftError, match=r"The 'encoder' parameter of .* is called 'encoder_fingerprint' now\."):
            call()
    with pytest.raises(WeftError, match="is called 'salience_weighs' now"):
        weft.Index.create(tmp_path / "j", dim=2, weights=False)
    assert not (tmp_path / "j").exists()
