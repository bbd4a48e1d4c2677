"""The PyTerrier transformer, against the real package; no Java is started."""

import pytest

pt = pytest.importorskip("pyterrier", reason="needs the pyterrier extra: make test-integrations")
pd = pytest.importorskip("pandas")

from weft.integrations.pyterrier import WeftRetriever

TOPICS = [["q1", "red planet", "a"], ["q2", "lazy dog", "b"]]


@pytest.fixture
def topics():
    return pd.DataFrame(TOPICS, columns=["qid", "query", "group"])


def test_a_run(texts, topics):
    retriever = WeftRetriever(texts, k=3, text=True)
    assert isinstance(retriever, pt.Transformer)
    run = retriever(topics)
    assert list(run.columns) == ["qid", "query", "group", "docno", "score", "rank", "text"]
    expected = [
        (qid, query, group, match.id, match.score, rank, match.text)
        for qid, query, group in TOPICS
        for rank, match in enumerate(texts.search(query, 3))
    ]
    assert [tuple(row) for row in run.itertuples(index=False)] == expected
    assert not pt.java.started()


def test_no_queries_give_an_empty_run(texts, topics):
    run = WeftRetriever(texts)(topics[:0])
    assert (len(run), list(run.columns)) == (0, ["qid", "query", "group", "docno", "score", "rank"])


def test_pipelines_and_experiments(texts, topics):
    retriever = WeftRetriever(texts, k=4)
    best = (retriever % 1)(topics)
    assert list(best["docno"]) == [texts.search(query, 1)[0].id for _, query, _ in TOPICS]
    filtered = WeftRetriever(texts, filter="year >= 2002")(topics)
    assert set(filtered["docno"]) == {"dog", "fox"}
    qrels = pd.DataFrame([[qid, docno, 1] for qid, docno in zip(best["qid"], best["docno"], strict=True)])
    qrels.columns = ["qid", "docno", "label"]
    table = pt.Experiment([retriever, WeftRetriever(texts, k=2)], topics, qrels, ["recip_rank"], names=["all", "two"])
    assert table["recip_rank"].tolist() == [1.0, 1.0]
    assert not pt.java.started()


def test_wrong_columns(texts):
    with pytest.raises(pt.validate.InputValidationError):
        WeftRetriever(texts)(pd.DataFrame({"docno": ["x"]}))
