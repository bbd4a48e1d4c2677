"""Where collections come from: folders, ir_datasets, suites, answers."""

import json
import shutil
from typing import NamedTuple

import pytest

from evaluation.conftest import write_collection
from weft.errors import DataError, InvalidParameterError
from weft.evaluation import datasets
from weft.evaluation.answers import has_answer, judge, tokens
from weft.evaluation.baselines import BM25_SYSTEM
from weft.evaluation.benchmark import Cut, measure_all
from weft.evaluation.datasets import Dataset, data_folder, find, folders, from_ir_datasets, read_folder
from weft.evaluation.measures import parse_measure
from weft.evaluation.suites import SUITES, suite


class TestFolders:
    def test_by_path_name_and_split(self, collection, monkeypatch):
        (collection / "qrels" / "dl19.tsv").write_text("q1\td3\t1\n")
        assert len(find(str(collection)).load().collection.queries) == 20
        monkeypatch.chdir(collection)
        assert find(".").load().name == "tiny"
        assert list(find("tiny:dl19", data=collection.parent).load().collection.queries) == ["q1"]
        assert find(str(collection), "dl19").load().name == "tiny:dl19"

    def test_those_for_testing(self, collection):
        for split in ("train", "dev", "test-en"):
            (collection / "qrels" / f"{split}.tsv").write_text("q1\td3\t1\n")
        (collection.parent / "no-collection").mkdir()
        assert {d.name for d in folders(collection.parent)} == {"tiny", "tiny:test-en"}

    def test_all_of_several_splits_is_not_for_testing(self, collection):
        for name in ("train", "all"):
            shutil.copy(collection / "qrels" / "test.tsv", collection / "qrels" / f"{name}.tsv")
        assert [found.split for found in folders(collection.parent)] == ["test"]
        for name in ("train", "test"):
            (collection / "qrels" / f"{name}.tsv").unlink()
        assert [found.split for found in folders(collection.parent)] == ["all"]

    def test_the_variable(self, collection, monkeypatch):
        monkeypatch.delenv("WEFT_DATA", raising=False)
        assert data_folder() is None
        monkeypatch.setenv("WEFT_DATA", str(collection.parent))
        assert data_folder() == collection.parent
        monkeypatch.setenv("WEFT_DATA", "/nowhere")
        with pytest.raises(DataError, match=r"no such folder of collections: '/nowhere' \(WEFT_DATA\)"):
            data_folder()
        assert data_folder(collection) == collection

    def test_unknown_documents_in_judgements(self, tmp_path, caplog):
        folder = write_collection(tmp_path / "x", {"a": "one"}, {"q": "one"}, {"q": {"a": 1, "gone": 1}})
        assert read_folder(folder).collection.qrels == {"q": {"a": 1}}
        assert "1 judgements name unknown" in caplog.text


class _Doc(NamedTuple):
    doc_id: str
    title: str
    text: str

    def default_text(self):
        return f"{self.title} {self.text}"


class _Query(NamedTuple):
    query_id: str
    text: str
    answers: tuple[str, ...] = ()

    def default_text(self):
        return self.text


class _Qrel(NamedTuple):
    query_id: str
    doc_id: str
    relevance: int


class _Dataset:
    def __init__(self, has=("docs", "queries", "qrels")):
        self.kinds = has

    def has(self, kind):
        return kind in self.kinds

    def docs_iter(self):
        return iter([_Doc("1", "Boats", "float"), _Doc("2", "Stones", "sink")])

    def queries_iter(self):
        return iter([_Query("a", "what floats", ("boats",)), _Query("b", "unjudged")])

    def qrels_iter(self):
        return iter([_Qrel("a", "1", 2), _Qrel("a", "9", 1), _Qrel("z", "1", 1)])


class TestIrDatasets:
    def test_reading(self, monkeypatch, caplog):
        monkeypatch.setattr(datasets, "open_ir_dataset", lambda name: _Dataset())
        task = find("boats/test").load()
        assert task.name == "boats/test"
        assert [d.full_text for d in task.collection.documents] == ["Boats float", "Stones sink"]
        assert task.collection.queries == {"a": "what floats"}
        assert task.collection.qrels == {"a": {"1": 2}}
        assert task.answers == {"a": ["boats"]}
        assert "2 judgements name unknown" in caplog.text

    def test_a_dataset_without_judgements(self, monkeypatch):
        monkeypatch.setattr(datasets, "open_ir_dataset", lambda name: _Dataset(("docs",)))
        with pytest.raises(DataError, match="has no queries; a part of it may, such as boats/test"):
            from_ir_datasets("boats")

    def test_unknown_names(self):
        pytest.importorskip("ir_datasets", reason="needs the datasets extra: pip install 'weft-search[datasets]'")
        with pytest.raises(DataError, match="'no/such' is not a suite, not a folder in BEIR's layout, and unknown"):
            find("no/such").load()

    def test_the_suites_ids_exist(self):
        registry = pytest.importorskip("ir_datasets", reason="needs the datasets extra").registry
        for made in SUITES.values():
            for dataset in made.datasets:
                assert not dataset.ir_id or dataset.ir_id in registry._registered, dataset


class TestSuites:
    def test_the_papers_lists(self):
        assert {name: len(made.datasets) for name, made in SUITES.items()} == {
            "beir13": 13,
            "msmarco": 3,
            "lotte": 12,
            "miracl": 18,
            "open-qa": 4,
            "nq320k": 1,
            "offline": 0,
        }
        assert {d.name for d in suite("beir13").datasets if d.drop_own} == {"ArguAna", "Quora"}
        for made in SUITES.values():
            for name in made.measures:
                parse_measure(name)

    def test_open_questions_are_those_of_the_test_sets(self, tmp_path):
        """DPR's dev sets (6,515 and 8,837 questions) were taken for XTR's table 3."""
        sets = {d.name: d for d in suite("open-qa").datasets}
        assert {name: d.n_queries for name, d in sets.items()} == {
            "EntityQuestions": 0,
            "NQ": 3610,
            "TriviaQA": 11313,
            "SQuAD": 10570,
        }
        assert not any(d.ir_id for d in sets.values())
        folder = tmp_path / "dpr-nq"
        folder.mkdir()
        (folder / "corpus.jsonl").write_text('{"_id": "d", "text": "a boat"}\n')
        rows = [json.dumps({"_id": str(i), "text": "what floats?", "answers": ["boat"]}) for i in range(3610)]
        (folder / "queries.jsonl").write_text("\n".join(rows))
        assert len(sets["NQ"].load(tmp_path).collection.queries) == 3610
        (folder / "queries.jsonl").write_text("\n".join(rows[:-1]))
        with pytest.raises(DataError, match=r"has 3,609 queries; NQ of the papers has 3,610"):
            sets["NQ"].load(tmp_path)

    def test_offline_needs_a_folder(self, collection):
        with pytest.raises(DataError, match="give --data FOLDER or set WEFT_DATA"):
            suite("offline").found(None)
        assert [d.name for d in suite("offline").found(collection.parent)] == ["tiny"]
        with pytest.raises(DataError, match="has no collections"):
            suite("offline").found(collection)
        with pytest.raises(DataError, match="'huge' is not of the suite offline: it has tiny"):
            suite("offline").found(collection.parent, ("huge",))

    def test_only_some(self):
        assert [d.name for d in suite("beir13").found(None, ("SciFact", "nfcorpus"))] == ["SciFact", "NFCorpus"]

    def test_unknown(self):
        with pytest.raises(InvalidParameterError, match="one of beir13"):
            suite("beir14")

    def test_a_collection_that_is_nowhere(self, tmp_path):
        with pytest.raises(DataError, match="NQ320k is not in ir_datasets, and there is no folder of collections"):
            suite("nq320k").datasets[0].load()
        with pytest.raises(DataError, match="put it there in BEIR's layout"):
            suite("nq320k").datasets[0].load(tmp_path)


class TestAnswers:
    @pytest.mark.parametrize(
        ("text", "answers", "expected"),
        [
            ("It opened in 1961.", ["1961"], True),
            ("It opened in 19610.", ["1961"], False),
            ("The Beatles' last LP", ["the beatles"], True),
            ("Émile Zola wrote it", ["émile zola"], True),
            ("E\u0301mile Zola wrote it", ["Émile"], True),
            ("new  york\ncity", ["New York City"], True),
            ("York, new", ["New York"], False),
            ("anything", [""], False),
            ("anything", [], False),
            ("", ["x"], False),
        ],
    )
    def test_matching(self, text, answers, expected):
        assert has_answer(text, answers) is expected

    def test_tokens(self):
        assert tokens("U.S.-based, 3.5%") == ["u", ".", "s", ".", "-", "based", ",", "3", ".", "5", "%"]

    def test_judging(self):
        run = {"q": {"a": 2.0, "b": 1.0, "c": 0.5}}
        texts = {"a": "stones sink", "b": "boats float", "c": "boats"}
        assert judge(run, texts, {"q": ["boats"], "r": ["x"]}, depth=2) == {"q": {"a": 0, "b": 1}, "r": {}}

    def test_top_k_accuracy_by_answers_and_groups(self, tmp_path):
        """EntityQuestions: no judgements, and the mean of the relations' means."""
        documents = {"a": "boats float", "b": "stones sink", "c": "birds fly"}
        queries = [
            {"_id": "1", "text": "boats", "answers": ["float"], "relation": "P1"},
            {"_id": "2", "text": "stones", "answers": ["sink"], "relation": "P1"},
            {"_id": "3", "text": "birds", "answers": ["swim"], "relation": "P2"},
        ]
        folder = write_collection(tmp_path / "eq", documents, queries, {})
        (folder / "qrels" / "test.tsv").unlink()
        task = read_folder(folder)
        (results,) = list(measure_all([task], [BM25_SYSTEM], ["top-1"]))
        assert results.scores["eq", "BM25"].per_query["top-1"] == {"1": 1.0, "2": 1.0, "3": 0.0}
        assert results.mean("eq", "BM25", "top-1").value == 0.5
        assert results.average("BM25", "top-1").value == 0.5

    def test_bad_answers(self, tmp_path):
        folder = write_collection(
            tmp_path / "x", {"a": "b"}, [{"_id": "1", "text": "t", "answers": [1]}], {"1": {"a": 1}}
        )
        with pytest.raises(DataError, match="the answers of query '1' are not a list of texts"):
            read_folder(folder)


def test_queries_that_are_documents_never_find_themselves(tmp_path):
    documents = {"a": "red boats float", "b": "red boats sink", "c": "birds"}
    folder = write_collection(tmp_path / "own", documents, {"a": "red boats float"}, {"a": {"b": 1}})
    for drop, expected in ((False, 0.5), (True, 1.0)):
        task = Dataset("own", str(folder), drop_own=drop).load()
        (results,) = list(measure_all([task], [BM25_SYSTEM], ["MRR@10"], cut=Cut()))
        assert results.scores["own", "BM25"]["MRR@10"] == expected


def test_rows_of_queries_stay_readable(tmp_path):
    folder = write_collection(tmp_path / "x", {"a": "b"}, [{"_id": "1", "text": "t", "answer": "b"}], {"1": {"a": 1}})
    assert json.loads((folder / "queries.jsonl").read_text())["answer"] == "b"
    assert read_folder(folder).answers == {"1": ["b"]}
