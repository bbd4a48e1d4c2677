"""``weft evaluate`` and ``weft adapt``."""

import csv
import io
import json
import os
import shutil
from pathlib import Path

import pytest

from weft import Index, TextIndex
from weft.evaluation.runs import read_run, write_qrels, write_run


@pytest.fixture
def runs(tmp_path):
    """Thirty queries; one run has the relevant document first, the other second."""
    qrels = {f"q{i}": {"good": 1} for i in range(30)}
    write_qrels(tmp_path / "a.qrels", qrels)
    write_run(tmp_path / "new.run", {q: {"good": 2.0, "bad": 1.0} for q in qrels})
    write_run(tmp_path / "old.run", {q: {"good": 1.0, "bad": 2.0} for q in qrels})
    return tmp_path


class TestRuns:
    def test_measured(self, runs, run):
        code, out, _ = run(
            "evaluate", "--run", runs / "old.run", "--qrels", runs / "a.qrels", "--measures", "MRR@10,top-1"
        )
        assert code == 0
        assert "**a (30 queries)**" in out
        assert "| old | 0.500 ±0.000 | 0.000 ±0.000 |" in out

    def test_compared(self, runs, run):
        arguments = ("evaluate", "--run", runs / "new.run", "--qrels", runs / "a.qrels", "--compare", runs / "old.run")
        code, out, _ = run(*arguments, "--measures", "MRR@10", "--format", "json")
        assert code == 0
        found = json.loads(out)
        assert {row["system"]: row["measures"]["MRR@10"]["value"] for row in found["results"]} == {
            "new": 1.0,
            "old": 0.5,
        }
        (row,) = found["comparisons"][0]["rows"]
        assert row["MRR@10 − old"] == {"value": 0.5, "low": 0.5, "high": 0.5}
        assert row["p"] < 0.001
        assert row["better / equal / worse"] == "30 / 0 / 0"

    def test_formats(self, runs, run):
        arguments = ("evaluate", "--run", runs / "new.run", "--qrels", runs / "a.qrels", "--measures", "MRR@10")
        rows = list(csv.reader(io.StringIO(run(*arguments, "--format", "csv")[1])))
        assert rows == [["", "MRR@10", "MRR@10 low", "MRR@10 high"], ["new", "1.0", "1.0", "1.0"]]
        assert "<td" in run(*arguments, "--format", "html")[1]

    def test_per_query(self, runs, run):
        target = runs / "each.tsv"
        run(
            "evaluate",
            "--run",
            runs / "old.run",
            "--qrels",
            runs / "a.qrels",
            "--measures",
            "MRR@10",
            "--per-query",
            target,
        )
        lines = target.read_text().splitlines()
        assert lines[:2] == ["collection\tsystem\tquery\tMRR@10", "a\told\tq0\t0.5"]
        assert len(lines) == 31

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "give a TARGET, or --run FILE"),
            (["x", "--run", "y"], "give a TARGET, or --run FILE"),
            (["--run", "new.run"], "--qrels FILE is missing"),
            (["--run", "new.run", "--qrels", "a.qrels", "--measures", "nDGC@10"], "nDCG@10, MRR@10"),
            (["--run", "none.run", "--qrels", "a.qrels"], "no such file"),
            (["--run", "new.run", "--qrels", "a.qrels", "--compare", "gone.run"], "no such file"),
            (["no/such/thing"], "no/such/thing"),
            (["offline", "--data", "nowhere"], "no such folder of collections: 'nowhere'"),
            (["offline"], "give --data FOLDER or set WEFT_DATA"),
        ],
    )
    def test_mistakes(self, runs, run, monkeypatch, arguments, said):
        pytest.importorskip("ir_datasets", reason="needs the datasets extra: pip install 'weft-search[datasets]'")
        monkeypatch.chdir(runs)
        monkeypatch.delenv("WEFT_DATA", raising=False)
        code, out, err = run("evaluate", *arguments)
        assert code == 1
        assert said in err
        assert err.count("\n") == 1
        assert not out


class TestCollections:
    def test_bm25_and_a_model(self, collection, run, model, tmp_path):
        arguments = (
            "evaluate",
            collection,
            "--model",
            f"tiny={model}",
            "-a",
            "sum-of-max",
            "-a",
            "top-k:2",
            "-a",
            "xtr",
        )
        code, out, err = run(*arguments, "--work", tmp_path / "w", "--save-run", tmp_path / "runs", "--compare", "BM25")
        assert code == 0, err
        for row in ("BM25", "tiny, sum-of-max", "tiny, top-k:2", "tiny, xtr"):
            assert f"| {row} |" in out
        assert "**tiny (30 documents, 20 queries)**" in out
        assert "nDCG@10 beside BM25" in out
        saved = sorted(path.name for path in (tmp_path / "runs" / "tiny").iterdir())
        assert saved == ["BM25.run", "tiny--sum-of-max.run", "tiny--top-k-2.run", "tiny--xtr.run"]
        # A saved run measures as it did.
        again = ("evaluate", "--run", tmp_path / "runs/tiny/BM25.run", "--qrels", collection / "qrels/test.tsv")
        first = json.loads(run(*arguments, "--work", tmp_path / "w", "--format", "json")[1])["results"][0]["measures"]
        second = json.loads(run(*again, "--format", "json")[1])["results"][0]["measures"]
        assert first == second
        # And can be compared with.
        code, out, _ = run("evaluate", collection, "--no-late", "--compare", tmp_path / "runs/tiny/tiny--xtr.run")
        assert code == 0
        assert "beside tiny--xtr" in out

    def test_a_suite_goes_on_where_a_collection_is_missing(self, collection, run, caplog):
        other = collection.parent / "other"
        (other / "qrels").mkdir(parents=True)
        (other / "corpus.jsonl").write_text('{"_id": "a", "text": "x"}\n')
        (other / "qrels" / "test.tsv").write_text("q\ta\t1\n")
        code, out, _ = run("evaluate", "offline", "--data", collection.parent, "--no-late", "--measures", "nDCG@10")
        assert code == 0
        assert "other is left out: no such file" in caplog.text
        assert "| BM25 |" in out

    def test_several_collections_have_an_average(self, collection, run):
        (collection / "qrels" / "half.tsv").write_text("q1\td1\t1\nq2\td2\t1\nq3\td9\t1\n")
        arguments = ("evaluate", "offline", "--data", collection.parent, "--no-late", "--measures", "nDCG@10")
        code, out, _ = run(*arguments, "--format", "json")
        assert code == 0
        found = json.loads(out)
        values = {row["collection"]: row["measures"]["nDCG@10"]["value"] for row in found["results"]}
        assert set(values) == {"tiny", "tiny:half"}
        assert found["averages"]["BM25"]["nDCG@10"]["value"] == pytest.approx(sum(values.values()) / 2)
        assert "| average |" in run(*arguments)[1]
        assert set(json.loads(run(*arguments, "-c", "tiny:half", "--format", "json")[1])["averages"]) == {"BM25"}

    def test_re_ranking_finds_what_bm25_does_not(self, tmp_path, run):
        from evaluation.conftest import write_collection

        documents = {f"d{i}": "boats float" for i in range(120)} | {"gold": "nothing of it"}
        folder = write_collection(tmp_path / "r", documents, {"q": "boats"}, {"q": {"gold": 1}})
        arguments = ("evaluate", folder, "--no-late", "--measures", "Recall@200", "--format", "json")
        for more, expected in (((), 0.0), (("--rerank",), 1.0)):
            found = json.loads(run(*arguments, *more)[1])["results"][0]["measures"]["Recall@200"]["value"]
            assert found == expected or not more  # without re-ranking BM25 may list it last

    def test_sizes(self, collection, run):
        code, out, _ = run("evaluate", collection, "--no-late", "--documents", 12, "--sample", 4)
        assert code == 0
        assert "**tiny (12 documents, 4 queries)**" in out

    def test_mistakes(self, collection, run):
        assert "--collection is for suites" in run("evaluate", collection, "-c", "x", "--no-late")[2]
        assert "nothing to measure" in run("evaluate", collection, "--no-late", "--no-bm25")[2]
        assert "top-q" in run("evaluate", collection, "-a", "top-q:3")[2]
        assert "no split 'dev'" in run("evaluate", collection, "--no-late", "--split", "dev")[2]


@pytest.fixture
def indexed(collection, run, model, monkeypatch):
    monkeypatch.chdir(collection.parent)
    code, _, err = run("index", collection, "-o", "t.weft", "--model", model)
    assert code == 0, err
    return collection.parent / "t.weft"


class TestIndexes:
    def test_measured(self, indexed, collection, run):
        files = ("--queries", collection / "queries.jsonl", "--qrels", collection / "qrels/test.tsv")
        code, out, err = run("evaluate", "t.weft", *files, "--measures", "nDCG@10", "-a", "sum-of-max", "-a", "top-k:2")
        assert code == 0, err
        assert "**t.weft (30 documents, 20 queries)**" in out
        assert "| sum-of-max |" in out
        assert "| top-k:2 |" in out
        assert "--queries FILE and --qrels" in run("evaluate", "t.weft", "--qrels", files[3])[2]

    def test_runs_are_those_of_searching(self, indexed, collection, run, tmp_path):
        files = ("--queries", collection / "queries.jsonl", "--qrels", collection / "qrels/test.tsv")
        run("evaluate", "t.weft", *files, "--save-run", "saved")
        saved = read_run("saved/sum-of-max.run")
        out = run("search", "t.weft", "--queries", files[1], "--trec", "-k", 5)[1]
        Path("searched.run").write_text(out)
        for query, documents in read_run("searched.run").items():
            for name, score in documents.items():
                assert saved[query][name] == pytest.approx(score, abs=1e-5)


class TestAdapt:
    def test_one_example_is_no_evidence(self, indexed, run, caplog):
        query = "lilac grove amber"
        code, out, err = run("adapt", "t.weft", "e.tsv")
        assert (code, out) == (1, "")
        assert "no such file" in err
        Path("e.tsv").write_text(f"{query}\td3\n{query}\tgone\n")
        code, out, err = run("adapt", "t.weft", "e.tsv")
        assert code == 0, err
        assert "1 judgements name unknown" in caplog.text
        assert "sum-of-max stays" in out
        assert "(1 example)" in out
        with Index.open(indexed) as index:
            assert index.alignment == "sum-of-max"

    def test_strong_evidence(self, indexed, run, collection):
        """Judgements made from the other alignment's own rankings cannot but favour it."""
        rows = [json.loads(line) for line in (collection / "queries.jsonl").read_text().splitlines()]
        out = run("search", "t.weft", "--queries", collection / "queries.jsonl", "-a", "top-k:4", "--trec", "-k", 3)[1]
        texts = {row["_id"]: row["text"] for row in rows}
        lines = [line.split() for line in out.splitlines()]
        Path("e.tsv").write_text("".join(f"{texts[q]}\t{d}\t{4 - int(r)}\n" for q, _, d, r, _, _ in lines))
        tried = json.loads(run("adapt", "t.weft", "e.tsv", "--dry-run", "--json")[1])
        assert tried["changed"] is True
        assert tried["stored"] is False
        assert '"alignment": "sum-of-max"' in run("info", "t.weft", "--json")[1]
        code, out, err = run("adapt", "t.weft", "e.tsv", "-a", "top-k:4", "-a", "top-k:2")
        assert code == 0, err
        assert "→ top-k:4" in out
        assert "stored in t.weft" in err
        assert "top-k:4" in run("info", "t.weft")[1]
        query = texts["q0"]
        assert json.loads(run("search", "t.weft", query, "--json")[1])["alignment"] == "top-k:4"
        assert json.loads(run("search", "t.weft", query, "--json", "-a", "sum-of-max")[1])["alignment"] == "sum-of-max"
        assert json.loads(run("explain", "t.weft", query, "--json")[1].splitlines()[0])["alignment"] == "top-k:4"
        assert run("adapt", "t.weft", "--reset")[0] == 0
        assert json.loads(run("search", "t.weft", query, "--json")[1])["alignment"] == "sum-of-max"

    def test_the_papers_rule_takes_the_best_on_the_examples(self, indexed, run, collection):
        rows = [json.loads(line) for line in (collection / "queries.jsonl").read_text().splitlines()]
        out = run("search", "t.weft", rows[0]["text"], "-a", "top-k:8", "--trec", "-k", 30)[1]
        ranked = [line.split()[2] for line in out.splitlines()]
        out = run("search", "t.weft", rows[0]["text"], "-a", "sum-of-max", "--trec", "-k", 30)[1]
        plain = [line.split()[2] for line in out.splitlines()]
        wanted = max(ranked, key=lambda name: plain.index(name) - ranked.index(name))  # top-k:8 ranks it higher
        assert plain.index(wanted) > ranked.index(wanted)
        Path("e.tsv").write_text(f"{rows[0]['text']}\t{wanted}\n")
        assert "sum-of-max stays" in run("adapt", "t.weft", "e.tsv")[1]  # one example is no evidence
        code, out, err = run("adapt", "t.weft", "e.tsv", "--rule", "paper")
        assert code == 0, err
        assert "scores best on the 1 example" in out
        assert "certainty" not in out
        tried = json.loads(run("adapt", "t.weft", "e.tsv", "--rule", "paper", "--json", "--dry-run")[1])
        best = max(option["score"] for option in tried["options"])
        assert tried["rule"] == "paper"
        assert next(o for o in tried["options"] if o["alignment"] == tried["alignment"])["score"] == best

    def test_the_models_own_alignment_is_the_indexs(self, collection, run, model, monkeypatch, tmp_path):
        """A model trained with top-k:1 and saliences was searched by the sum of max, and never offered its own."""
        own = tmp_path / "trained"
        shutil.copytree(model, own)
        settings = json.loads((own / "weft_encoder.json").read_text())
        (own / "weft_encoder.json").write_text(json.dumps(settings | {"alignment": "top-k:1"}))
        monkeypatch.chdir(tmp_path)
        code, _, err = run("index", collection, "-o", "own.weft", "--model", own)
        assert code == 0, err
        query = json.loads((collection / "queries.jsonl").read_text().splitlines()[0])["text"]
        found = json.loads(run("search", "own.weft", query, "--json")[1])
        named = json.loads(run("search", "own.weft", query, "--json", "-a", "top-k:1")[1])
        assert found["alignment"] == "top-k:1"
        assert [r["score"] for r in found["results"]] == [r["score"] for r in named["results"]]
        other = json.loads(run("search", "own.weft", query, "--json", "-a", "sum-of-max")[1])
        assert [r["score"] for r in found["results"]] != [r["score"] for r in other["results"]]
        files = ("--queries", collection / "queries.jsonl", "--qrels", collection / "qrels/test.tsv")
        tried = json.loads(run("adapt", "own.weft", *files, "--json", "--dry-run")[1])
        assert [option["alignment"] for option in tried["options"]][:3] == ["top-k:1", "sum-of-max", "top-k:2"]
        with TextIndex.open("own.weft") as index:
            index.remember_alignment("sum-of-max")
        assert run("adapt", "own.weft", "--reset")[0] == 0
        assert json.loads(run("search", "own.weft", query, "--json")[1])["alignment"] == "top-k:1"
        code, out, err = run("evaluate", collection, "-m", f"ours={own}", "--no-bm25")
        assert code == 0, err
        assert "ours, top-k:1" in out

    def test_saliences_make_top_1_an_alternative(self, indexed, run, collection):
        files = ("--queries", collection / "queries.jsonl", "--qrels", collection / "qrels/test.tsv")
        tried = json.loads(run("adapt", "t.weft", *files, "--json", "--dry-run")[1])
        assert "top-k:1" in [option["alignment"] for option in tried["options"]]

    def test_queries_and_judgements(self, indexed, run, collection):
        files = ("--queries", collection / "queries.jsonl", "--qrels", collection / "qrels/test.tsv")
        code, out, err = run("adapt", "t.weft", *files)
        assert code == 0, err
        assert "20 examples" in out

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "give a file of EXAMPLES, or --queries FILE with --qrels FILE"),
            (["e.tsv", "--queries", "x"], "give a file of EXAMPLES"),
            (["e.tsv", "--reset"], "--reset takes no examples"),
            (["e.tsv", "--certainty", "2"], "certainty"),
            (["e.tsv", "--certainty", "0.9", "--rule", "paper"], "--certainty is for --rule careful"),
            (["gone.tsv"], "none of the 1 documents judged is in the index"),
        ],
    )
    def test_mistakes(self, indexed, run, arguments, said):
        Path("e.tsv").write_text("amber\td1\n")
        Path("gone.tsv").write_text("amber\tgone\n")
        code, out, err = run("adapt", "t.weft", *arguments)
        assert code == 1
        assert said in err
        assert not out


DATA = Path(os.environ.get("WEFT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


@pytest.mark.skipif(
    not (DATA / "scifact").is_dir(), reason="needs SciFact in BEIR's layout, in the folder WEFT_DATA names"
)
def test_bm25_on_scifact(run):
    """Published: 0.665 (BEIR), 0.679 (Anserini's multi-field)."""
    code, out, _ = run("evaluate", DATA / "scifact", "--no-late", "--measures", "nDCG@10", "--format", "json")
    assert code == 0
    assert 0.655 <= json.loads(out)["results"][0]["measures"]["nDCG@10"]["value"] <= 0.689
