"""Training rows from the layouts people have."""

import gzip
import json

import pytest

from weft.errors import DataError
from weft.sources.beir import Collection
from weft.training.data import Row, Source, mining_corpus, read
from weft.training.mining import choose


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


class TestBeir:
    def folder(self, tmp_path, qrels=("q1\td1\t1", "q1\td2\t2", "q2\td3\t0")):
        rows = [{"_id": f"d{i}", "title": f"t{i}", "text": f"text {i}"} for i in (1, 2, 3)]
        with gzip.open(tmp_path / "corpus.jsonl.gz", "wt") as file:
            file.write("\n".join(map(json.dumps, rows)))
        write(tmp_path / "queries.jsonl", *(json.dumps({"_id": f"q{i}", "text": f"query {i}"}) for i in (1, 2)))
        write(tmp_path / "qrels" / "train.tsv", "query-id\tcorpus-id\tscore", *qrels)
        return tmp_path

    def test_one_row_for_each_relevant_document(self, tmp_path):
        rows, corpus = read(Source(str(self.folder(tmp_path))))
        assert [(row.query, row.positive) for row in rows] == [("query 1", "t1 text 1"), ("query 1", "t2 text 2")]
        assert rows[0].known == {"d1", "d2"}
        assert set(corpus) == {"d1", "d2", "d3"}

    def test_only_documents_that_match(self, tmp_path):
        rows, _ = read(Source(str(self.folder(tmp_path)), documents="2$"))
        assert [row.positive_id for row in rows] == ["d2"]

    def test_limit_is_a_fixed_sample(self, tmp_path):
        source = Source(str(self.folder(tmp_path)), limit=1)
        assert read(source, seed=3)[0] == read(source, seed=3)[0]
        assert len(read(source)[0]) == 1

    def test_unknown_documents_are_left_out_with_a_warning(self, tmp_path, caplog):
        collection = Collection.read(self.folder(tmp_path, ["q1\td1\t1", "q1\td9\t1", "q9\td1\t1"]), "train")
        assert collection.qrels == {"q1": {"d1": 1}}
        assert collection.queries == {"q1": "query 1"}
        assert "2 judgements" in caplog.text

    @pytest.mark.parametrize(
        ("break_it", "message"),
        [
            (lambda f: (f / "queries.jsonl").unlink(), "no such file"),
            (lambda f: (f / "queries.jsonl").write_text("{"), "line 1: not JSON"),
            (lambda f: (f / "queries.jsonl").write_text("[1]"), "expected an object"),
            (lambda f: (f / "queries.jsonl").write_text('{"text": "x"}'), "without '_id'"),
            (lambda f: (f / "corpus.jsonl.gz").write_bytes(b"\x1f\x8b\x08"), "cannot be read"),
            (lambda f: (f / "qrels" / "train.tsv").unlink(), "no split 'train'; it has none"),
            (
                lambda f: (f / "qrels" / "train.tsv").write_text("a\tb\tscore\nq1\td1\n"),
                "expected query, document and grade",
            ),
            (
                lambda f: (f / "corpus.jsonl.gz").write_bytes(gzip.compress(b'{"_id":"d1"}\n{"_id":"d1"}')),
                "occurs twice",
            ),
        ],
    )
    def test_broken_folders(self, tmp_path, break_it, message):
        break_it(self.folder(tmp_path))
        with pytest.raises(DataError, match=message):
            Collection.read(tmp_path, "train")

    def test_no_rows(self, tmp_path):
        with pytest.raises(DataError, match="no training rows"):
            read(Source(str(self.folder(tmp_path, ["q1\td1\t0"]))))


def test_jsonl(tmp_path):
    lines = [
        {"query": "q", "positive": "p", "negatives": ["a", "b"], "scores": [1, 0.5, 0]},
        {"query": "r", "positive": "o", "negative": "c"},
    ]
    path = write(tmp_path / "rows.jsonl", *map(json.dumps, lines))
    rows, corpus = read(Source(str(path), format="jsonl"))
    assert rows == [Row("q", "p", ["a", "b"], [1.0, 0.5, 0.0]), Row("r", "o", ["c"])]
    assert corpus == {}
    for line, message in [
        ('{"query": "q"}', "without 'positive'"),
        ('{"query": null, "positive": "p"}', "'query' is a text"),
        ('{"query": "q", "positive": "p", "negatives": "abc"}', "'negatives' is a list of texts"),
    ]:
        write(path, line)
        with pytest.raises(DataError, match=message):
            read(Source(str(path), format="jsonl"))


def test_tsv(tmp_path):
    path = write(tmp_path / "rows.tsv", "q\tp\tn1\tn2", "r\to")
    assert read(Source(str(path), format="tsv"))[0] == [Row("q", "p", ["n1", "n2"]), Row("r", "o")]
    write(path, "only a query")
    with pytest.raises(DataError, match="line 1"):
        read(Source(str(path), format="tsv"))


class TestMsMarco:
    def folder(self, tmp_path):
        write(tmp_path / "collection.tsv", "1\tone", "2\ttwo", "3\tthree")
        write(tmp_path / "queries.train.tsv", "7\tseven", "8\teight")
        write(tmp_path / "qrels.train.tsv", "7 0 1 1", "8 0 2 1")
        return tmp_path

    def test_qrels(self, tmp_path):
        rows, _ = read(Source(str(self.folder(tmp_path)), format="msmarco"))
        assert [(row.query, row.positive) for row in rows] == [("seven", "one"), ("eight", "two")]

    @pytest.mark.parametrize("lines", [["7\t1\t2\t3"], ["7\t1\t1", "7\t2\t0", "7\t3\t0"]], ids=["lists", "labels"])
    def test_rocketqa_negatives(self, tmp_path, lines):
        folder = self.folder(tmp_path)
        write(folder / "hard.tsv", *lines)
        rows, _ = read(Source(str(folder), format="msmarco", negatives_file="hard.tsv"))
        assert [(row.query, row.positive, row.negatives) for row in rows] == [("seven", "one", ["two", "three"])]

    @pytest.mark.parametrize(
        ("name", "line"),
        [("collection.tsv", "1 one"), ("queries.train.tsv", "seven"), ("qrels.train.tsv", "7 0 1"), ("hard.tsv", "7")],
    )
    def test_broken_lines_are_named(self, tmp_path, name, line):
        folder = self.folder(tmp_path)
        write(folder / "hard.tsv", "7\t1\t2")
        write(folder / name, line)
        hard = {"negatives_file": "hard.tsv"} if name == "hard.tsv" else {}
        with pytest.raises(DataError, match=f"{name}', line 1: expected"):
            read(Source(str(folder), format="msmarco", **hard))


@pytest.mark.torch
def test_hugging_face_dataset(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"query": ["q"], "positive": ["p"], "negative": ["n"]}).save_to_disk(tmp_path / "set")
    assert read(Source(str(tmp_path / "set"), format="hub"))[0] == [Row("q", "p", ["n"])]
    split = datasets.Dataset.from_dict({"query": ["q"], "positive": ["p"]})
    datasets.DatasetDict({"train": split}).save_to_disk(tmp_path / "splits")
    assert read(Source(str(tmp_path / "splits"), format="hub"))[0] == [Row("q", "p")]
    with pytest.raises(DataError, match="cannot be loaded"):
        read(Source(str(tmp_path / "splits"), format="hub", split="dev"))


def test_relevant_passages_and_their_copies_are_never_negatives():
    corpus = {"a": "right", "b": "also right", "c": "right", "d": "wrong", "e": "wrong too"}
    row = Row("q", "right", positive_id="a", known=frozenset({"a", "b"}))
    choose([row], [["a", "c", "b", "e", "d"]], corpus, count=2, skip=0)
    assert row.negatives == ["wrong too", "wrong"]
    choose([row], [["a", "c", "b", "e", "d"]], corpus, count=2, skip=1)
    assert row.negatives == ["wrong"]


def test_mining_among_some_documents_keeps_every_positive():
    corpus = {f"d{i}": f"text {i}" for i in range(50)}
    rows = [Row("q", corpus[name], positive_id=name) for name in ("d3", "d40")]
    some = mining_corpus(Source("x", mine_among=10), rows, corpus, seed=1)
    assert len(some) == 10
    assert {"d3", "d40"} <= set(some)
    assert some == mining_corpus(Source("x", mine_among=10), rows, corpus, seed=1)
    assert len(mining_corpus(Source("x", mine_among=1), rows, corpus)) == 2  # positives are always there
    assert mining_corpus(Source("x"), rows, corpus) == corpus
