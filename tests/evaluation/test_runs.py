"""Files of runs and judgements: what is read back, and what is wrong with them."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import DataError
from weft.evaluation.runs import known_only, ranked, read_qrels, read_run, write_qrels, write_run

words = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=6)
floats = st.floats(allow_nan=False, allow_infinity=False)


@given(run=st.dictionaries(words, st.dictionaries(words, floats, min_size=1, max_size=5), max_size=4))
def test_a_run_comes_back_as_it_was(tmp_path_factory, run):
    path = tmp_path_factory.mktemp("runs") / "a.run"
    write_run(path, run)
    back = read_run(path)
    assert back == run
    assert {q: ranked(documents) for q, documents in back.items()} == {q: ranked(run[q]) for q in run}
    for query, documents in back.items():  # the file itself is in the defined order
        assert list(documents) == ranked(run[query])


@given(qrels=st.dictionaries(words, st.dictionaries(words, st.integers(-2, 9), min_size=1), min_size=1, max_size=4))
def test_judgements_come_back_as_they_were(tmp_path_factory, qrels):
    path = tmp_path_factory.mktemp("qrels") / "a.qrels"
    write_qrels(path, qrels)
    assert read_qrels(path) == qrels


def test_trec_and_beir_judgements(tmp_path):
    trec, beir, zipped = tmp_path / "a.qrels", tmp_path / "a.tsv", tmp_path / "b.qrels.gz"
    trec.write_text("q1 0 d1 1\nq1 0 d2 0\n\nq2 Q0 d1 -1\n")
    beir.write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td 2\t0\nq2\td1\t2\n")
    zipped.write_bytes(gzip.compress(trec.read_bytes()))
    assert read_qrels(trec) == {"q1": {"d1": 1, "d2": 0}, "q2": {"d1": -1}} == read_qrels(zipped)
    assert read_qrels(beir) == {"q1": {"d1": 1, "d 2": 0}, "q2": {"d1": 2}}


def test_the_same_judgement_twice_is_one(tmp_path, caplog):
    path = tmp_path / "a.qrels"
    path.write_text("q 0 d 1\nq 0 d 1\nq 0 e 0\n")
    assert read_qrels(path) == {"q": {"d": 1, "e": 0}}
    assert "1 judgements are there more than once" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q 0 d 1\nq 0 d 2\n", "line 2: document 'd' of query 'q' has two grades, 1 and 2"),
        ("q 0 d 1\nq d\n", "line 2: expected"),
        ("q 0 d 1\nq 0 d relevant\n", "line 2: expected"),
        ("q 0 d 1 2 3\n", "line 1: expected"),
        ("", "has no judgements"),
        ("query-id\tcorpus-id\tscore\n", "has no judgements"),
    ],
)
def test_bad_judgements(tmp_path, text, message):
    path = tmp_path / "a.qrels"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_qrels(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q Q0 d 1 2.0 x\nq Q0 d 2 1.0 x\n", "line 2: document 'd' is there twice for query 'q'"),
        ("q Q0 d 1 nan x\n", "line 1: the score nan is not a finite number"),
        ("q Q0 d 1 -inf x\n", "not a finite number"),
        ("q Q0 d 1 2.0\n", "line 1: expected 'query Q0 document rank score tag'"),
        ("q Q0 d 1 two x\n", "line 1: expected"),
    ],
)
def test_bad_runs(tmp_path, text, message):
    path = tmp_path / "a.run"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_run(path)


def test_a_run_without_results(tmp_path, caplog):
    path = tmp_path / "a.run"
    path.write_text("\n")
    assert read_run(path) == {}
    assert "has no results" in caplog.text


def test_no_such_file(tmp_path):
    for read in (read_run, read_qrels):
        with pytest.raises(DataError, match="no such file"):
            read(tmp_path / "none")


@pytest.mark.parametrize("bad", ["a b", "", " a", "a\tb"])
def test_names_that_trecs_files_cannot_hold(tmp_path, bad):
    for run in ({bad: {"d": 1.0}}, {"q": {bad: 1.0}}):
        with pytest.raises(DataError, match="TREC's files cannot hold"):
            write_run(tmp_path / "a.run", run)
    with pytest.raises(DataError, match="cannot hold"):
        write_run(tmp_path / "a.run", {"q": {"d": 1.0}}, tag=bad)


def test_ranks_of_a_file_do_not_count(tmp_path):
    path = tmp_path / "a.run"
    path.write_text("q Q0 low 1 1.0 x\nq Q0 high 2 2.0 x\n")
    assert ranked(read_run(path)["q"]) == ["high", "low"]


def test_unknown_documents_are_counted_and_left_out(caplog):
    qrels = {"q": {"a": 1, "gone": 1}, "r": {"gone": 2, "lost": 1}, "s": {"a": 1}}
    assert known_only(qrels, {"a"}, {"q", "r"}) == {"q": {"a": 1}}
    assert "4 judgements name unknown queries or documents" in caplog.text
    caplog.clear()
    assert known_only({"q": {"a": 1}}, {"a"}) == {"q": {"a": 1}}
    assert not caplog.text
