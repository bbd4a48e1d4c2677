"""Measures against pytrec_eval, and against definitions written out here."""

import math

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import DataError, InvalidParameterError
from weft.evaluation.measures import evaluate, parse_measure
from weft.evaluation.runs import ranked

NAMES = [f"d{i}" for i in range(8)] + ["é", "Z", "10", "9"]
documents = st.sampled_from(NAMES)
# Few values, so that many scores are equal; 1 + 1e-9 is 1 in single precision.
scores = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 1.0 + 1e-9, 3.0, 1e-40, 1e39])
runs = st.dictionaries(
    st.sampled_from(["p", "q", "r", "s"]), st.dictionaries(documents, scores, max_size=12), max_size=4
)
qrels = st.dictionaries(
    st.sampled_from(["p", "q", "r"]),
    st.dictionaries(documents, st.integers(-1, 3), min_size=1, max_size=6),
    min_size=1,
    max_size=3,
)

THEIRS = {
    "nDCG@10": "ndcg_cut_10",
    "nDCG@3": "ndcg_cut_3",
    "Recall@5": "recall_5",
    "Success@5": "success_5",
    "top-1": "success_1",
    "P@3": "P_3",
    "AP": "map",
    "RR": "recip_rank",
}


@given(runs, qrels)
def test_equal_to_pytrec_eval(run, qrels):
    if run and not set(run) & set(qrels):
        with pytest.raises(DataError, match="no query of the run is judged"):
            evaluate(run, qrels, THEIRS)
        return
    ours = evaluate(run, qrels, THEIRS)
    theirs = pytrec_eval.RelevanceEvaluator(qrels, set(THEIRS.values())).evaluate(run)
    for name, their in THEIRS.items():
        for query in qrels:
            expected = theirs.get(query, {}).get(their, 0.0)
            assert ours.per_query[name][query] == pytest.approx(expected, abs=1e-9), (name, query)
        assert ours[name] == pytest.approx(np.mean([theirs.get(q, {}).get(their, 0.0) for q in qrels]))


@given(runs, qrels)
def test_reciprocal_rank_with_a_cut_has_the_same_order(run, qrels):
    """ir_measures has MRR@k from a library that breaks ties the other way round."""
    if run and not set(run) & set(qrels):
        return
    found = evaluate(run, qrels, ["MRR@3"]).per_query["MRR@3"]
    for query, grades in qrels.items():
        order = ranked(run.get(query, {}))
        expected = next((1 / rank for rank, d in enumerate(order[:3], 1) if grades.get(d, 0) >= 1), 0.0)
        assert found[query] == pytest.approx(expected)


@given(st.dictionaries(documents, scores, min_size=1))
def test_the_order_is_trec_evals(run):
    """Each document in turn is the only relevant one: its reciprocal rank tells where trec_eval has it."""
    order = ranked(run)
    for rank, document in enumerate(order, 1):
        found = pytrec_eval.RelevanceEvaluator({"q": {document: 1}}, {"recip_rank"}).evaluate({"q": run})
        assert found["q"]["recip_rank"] == pytest.approx(1 / rank)


def test_ndcg_by_hand():
    grades = {"a": 3, "b": 1, "c": 2}
    run = {"x": 5.0, "c": 4.0, "a": 3.0}
    dcg = 2 / math.log2(3) + 3 / math.log2(4)
    ideal = 3 + 2 / math.log2(3) + 1 / math.log2(4)
    assert evaluate({"q": run}, {"q": grades}, ["nDCG@10"])["nDCG@10"] == pytest.approx(dcg / ideal)


def test_a_query_that_found_nothing_counts_as_zero():
    scores = evaluate({"q": {"a": 1.0}}, {"q": {"a": 1}, "r": {"b": 1}}, ["nDCG@10"])
    assert scores.per_query["nDCG@10"] == {"q": 1.0, "r": 0.0}
    assert scores["nDCG@10"] == 0.5
    assert scores.queries == ["q", "r"]


def test_an_empty_run_scores_nothing_and_says_so(caplog):
    for run in ({}, {"q": {}}):
        caplog.clear()
        assert evaluate(run, {"q": {"a": 1}}, ["nDCG@10", "MRR@10"]).means == {"nDCG@10": 0.0, "MRR@10": 0.0}
        assert "no results" in caplog.text


def test_a_query_without_relevant_documents_scores_zero():
    assert evaluate({"q": {"a": 1.0}}, {"q": {"a": 0}}, ["nDCG@10", "MRR@10", "Recall@5"]).means == {
        "nDCG@10": 0.0,
        "MRR@10": 0.0,
        "Recall@5": 0.0,
    }


def test_unjudged_queries_are_left_out():
    assert evaluate({"q": {"a": 1.0}, "z": {"a": 1.0}}, {"q": {"a": 1}}, ["MRR@10"])["MRR@10"] == 1.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_score_must_be_a_number(bad):
    with pytest.raises(DataError, match=r"document 'a' of query 'q' has the score"):
        evaluate({"q": {"a": bad}}, {"q": {"a": 1}}, ["MRR@10"])


def test_no_judgements():
    with pytest.raises(DataError, match="no judgements"):
        evaluate({"q": {"a": 1.0}}, {}, ["MRR@10"])


@pytest.mark.parametrize("bad", ["nDGC@10", "", "nDCG@ten", "nDCG@0.5x", "top-"])
def test_unknown_measures(bad):
    with pytest.raises(InvalidParameterError, match="nDCG@10, MRR@10"):
        parse_measure(bad)


def test_names_stay_as_they_were_given():
    scores = evaluate({"q": {"a": 1.0}}, {"q": {"a": 1}}, ["top-20", "Success@20", "MRR@10", "RR@10", "RR(rel=2)@10"])
    assert scores.means == {"top-20": 1.0, "Success@20": 1.0, "MRR@10": 1.0, "RR@10": 1.0, "RR(rel=2)@10": 0.0}
