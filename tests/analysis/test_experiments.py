"""What experiments report, against independent computations; settings and errors; files and pages."""

import csv
import itertools
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

import weft
from weft.analysis import plots
from weft.analysis.base import NeedsError
from weft.analysis.experiments import EXPERIMENTS
from weft.analysis.experiments.pruning import idf
from weft.analysis.experiments.token_ranks import real_tokens
from weft.analysis.lab import Lab, Options
from weft.analysis.run import find, run
from weft.errors import DataError, InvalidParameterError
from weft.evaluation.significance import Interval
from weft.evaluation.tables import Table
from weft.types import TokenVectors


def ndcg(order, grades):
    gain = [grades.get(d, 0) / np.log2(rank + 2) for rank, d in enumerate(order[:10])]
    best = [g / np.log2(rank + 2) for rank, g in enumerate(sorted(grades.values(), reverse=True)[:10])]
    return sum(gain) / sum(best)


def cell(table, row, column):
    """The cell of a row that begins with these words, by its column's name."""
    (found,) = [cells for cells in table.rows if list(cells[: len(row)]) == list(row)]
    return found[list(table.columns).index(column)]


def test_alignments_are_measured_as_defined(lab):
    outcome = find("alignments").make(["top_k=1,4", "top_p=0.5"]).run(lab)
    (pool,) = lab.pools
    encoded = lab.encoded(lab.models[0], pool)
    names = np.array(list(pool.documents))
    for text, column in (("top-k:1", "top-1"), ("top-k:4", "top-4"), ("top-p:0.5", "top-50 %")):
        scores = np.asarray(weft.score(encoded.queries, encoded.documents, text))
        wanted = []
        for query, row in zip(pool.queries, scores, strict=True):
            # Equal scores go to the greater name, as trec_eval has it.
            order = names[np.lexsort((-np.argsort(np.argsort(names)), -row.astype(np.float32)))]
            wanted.append(ndcg(list(order), pool.qrels[query]))
        assert cell(outcome.tables[0], ["words"], column).value == pytest.approx(np.mean(wanted), abs=0.02)


def test_gold_and_lexical_tokens_at_each_rank(lab):
    (pool,) = lab.pools
    encoded = lab.encoded(lab.models[0], pool)
    owner = np.repeat(np.arange(len(encoded.documents)), encoded.documents.lengths)
    gold, same = [], []
    for number, query in enumerate(pool.queries):
        own = real_tokens(encoded, number)
        S = encoded.queries[number][own].astype(np.float32) @ encoded.documents.values.T.astype(np.float32)
        best = np.argmax(S, axis=1)
        relevant = {i for i, name in enumerate(pool.documents) if name in pool.qrels[query]}
        gold.append(np.mean([owner[b] in relevant for b in best]))
        ids = encoded.queries.token_ids[encoded.queries.offsets[number] :][own]
        same.append(np.mean(encoded.documents.token_ids[best] == ids))
    for name, wanted in (("gold-tokens", gold), ("lexical-tokens", same)):
        outcome = find(name).make(["ranks=20"]).run(lab)
        assert cell(outcome.tables[0], ["words", "tiny"], "rank 1").value == pytest.approx(np.mean(wanted))


def test_all_tokens_kept_change_nothing(lab):
    outcome = find("pruning").make(["beta_q=1,0.5", "beta_d=1,0.5", "depth=5"]).run(lab)
    whole = find("adaptation").make(["alignments=top-k:2", "sizes=8"]).run(lab).tables[0]
    rows = [["tiny", "100%", "100%"], ["idf", "100%", "100%"], ["random", "100%", "100%"]]
    first = cell(outcome.tables[0], rows[0], "nDCG@10, pruned").value
    assert first == pytest.approx(cell(whole, ["words"], "default").value)
    # Tokens chosen in another way but not left out: the same, save that only the model's own saliences weigh.
    others = [cell(outcome.tables[0], row, "nDCG@10, pruned").value for row in rows[1:]]
    assert others[0] == pytest.approx(others[1])


def test_pruning_scores_a_model_as_it_was_trained(data, model, tmp_path):
    """It scored all models by the sum of max, whatever Z they were trained with."""
    own = tmp_path / "own"
    shutil.copytree(model, own)
    settings = json.loads((own / "weft_encoder.json").read_text())
    (own / "weft_encoder.json").write_text(json.dumps(settings | {"alignment": "top-k:1"}))
    lab = Lab(Options(work=tmp_path / "work", data=data, models=(("own", str(own)),)))
    outcome = find("pruning").make(["beta_q=1,0.5", "beta_d=1,0.5", "depth=5"]).run(lab)
    (pool,) = lab.pools
    encoded = lab.encoded(lab.models[0], pool)
    values = {}
    for text in ("top-k:1", "sum-of-max"):
        scores = np.asarray(weft.score(encoded.queries, encoded.documents, text))
        values[text] = lab.measure(pool, scores, "nDCG@10").values("nDCG@10").mean()
    assert values["top-k:1"] != pytest.approx(values["sum-of-max"], abs=1e-3)
    assert cell(outcome.tables[0], ["own", "100%", "100%"], "nDCG@10, pruned").value == pytest.approx(values["top-k:1"])
    assert any("own with top-k:1" in note for note in outcome.notes)


def test_differentiable_alignment_at_every_k_and_entropy(lab):
    outcome = find("differentiable").make(["k=1,2", "eps=0.01,1"]).run(lab)
    (table,) = outcome.tables
    (pool,) = lab.pools
    encoded = lab.encoded(lab.models[0], pool)
    columns = {"DA-1": "da:1", "DA-2": "da:2", "top-2": "top-k:2", "DA-1, ε = 1": "da:1,eps=1"}
    for column, text in columns.items():
        scores = np.asarray(weft.score(encoded.queries, encoded.documents, text))
        wanted = lab.measure(pool, scores, "nDCG@10").values("nDCG@10").mean()
        assert cell(table, ["words"], column).value == pytest.approx(wanted, abs=0.02)


def test_tokens_that_are_ever_retrieved(lab):
    outcome = find("retrieved-tokens").make(["k_prime=3", "documents=4"]).run(lab)
    (pool,) = lab.pools
    encoded = lab.encoded(lab.models[0], pool)
    D = encoded.documents.values.astype(np.float32)
    hits = np.zeros(len(D), int)
    for number in range(len(encoded.queries)):
        for row in encoded.queries[number].astype(np.float32) @ D.T:
            hits[np.argsort(-row, kind="stable")[:3]] += 1
    bounds = encoded.documents.offsets
    parts = [hits[a:b] for a, b in itertools.pairwise(bounds)]
    most = sorted(parts, key=lambda part: -part.sum())[:4]
    row = outcome.tables[0].rows[0]
    assert row[:3] == ["words", 3, 20]
    assert row[3] == pytest.approx(100 * (np.concatenate(most) > 0).mean())
    assert row[4] == pytest.approx(100 * (hits > 0).mean())


def test_models_from_small_to_large(lab):
    outcome = find("model-sizes").make(["divisions=1"]).run(lab)
    (pool,) = lab.pools
    encoded = lab.encoded(lab.models[0], pool)
    scores = np.asarray(weft.score(encoded.queries, encoded.documents, "sum-of-max"))
    own = lab.measure(pool, scores, "nDCG@10").values("nDCG@10").mean()
    (row,) = outcome.tables[0].rows
    assert row[:3] == ["tiny", None, "sum of max"]  # a light model, whose parameters are not counted
    assert row[3].value == pytest.approx(own)
    assert any("One model has no sizes" in note for note in outcome.notes)


def test_with_all_tokens_retrieved_every_imputation_is_the_sum_of_max(lab):
    outcome = find("imputation").make(["k_prime=100000", "imputations=zero,kth"]).run(lab)
    values = [row[3].value for row in outcome.tables[0].rows]
    # Saliences weigh the sum of max of this model and no retrieved token: only the imputed ones are alike.
    assert values[1] == values[2]


def test_operations_of_all_collections_together(lab, data, model, tmp_path):
    other = tmp_path / "data"
    for name in ("one", "two"):
        shutil.copytree(data / "words", other / name)
    both = Lab(Options(work=tmp_path / "work", data=other, models=(("tiny", model),)))
    alone, together = (find("flops").make(["k_prime=5"]).run(of) for of in (lab, both))
    assert [table.name for table in alone.tables] == ["formula", "formula-bytes", "engine-words", "scoring"]
    assert [table.name for table in together.tables] == ["formula", "formula-bytes", "engine-all-together", "scoring"]
    assert alone.tables[1].rows[1][1] == pytest.approx(450, abs=1)  # appendix B's 450 MB
    one, whole = (table.tables[2].rows[-1][1] for table in (alone, together))
    assert whole == pytest.approx(2 * one)  # twice the documents, the same queries
    assert cell(together.tables[3], ["all together"], "m̄") == pytest.approx(cell(alone.tables[3], ["words"], "m̄"))


def test_idf():
    documents = TokenVectors.from_list([np.ones((2, 1)), np.ones((1, 1))], token_ids=[[4, 7], [4]])
    found = idf(documents, documents)
    assert found.tolist() == pytest.approx([0.0, np.log(3 / 2), 0.0])


def test_two_trainings_are_compared_query_by_query():
    one, other = np.array([0.5, 0.7]), np.array([0.4, 0.6])
    found = {
        "top-1": {"words": {"top-1": one, "top-4": one}},
        "top-4": {"words": {"top-1": other, "top-4": other - 0.1}},
    }
    made = find("training-alignments").make()
    own = {"top-1": "top-1", "top-4": "top-4"}
    said = made._against("top-1", "top-4", own, found)
    assert said == (
        "Trained with top-4 less trained with top-1: -20.0 [-20.0, -20.0] points, each with its own, "
        "-10.0 [-10.0, -10.0] where both are scored with top-1."
    )
    assert "where both" not in replace(made, inferred=("top-k:4",))._against("top-1", "top-4", own, found)


def test_settings():
    made = find("k-prime").make(["k_prime=5,50", "recall=20"])
    assert (made.k_prime, made.recall) == ((5, 50), 20)
    listed = find("training-alignments").make(["trained=sum-of-max,z=query,top-k:2"])
    assert listed.trained == ("sum-of-max,z=query", "top-k:2")
    for bad, kind in (
        ("k_primes=5", NeedsError),
        ("k_prime", NeedsError),
        ("k_prime=x", InvalidParameterError),
        ("k_prime=", InvalidParameterError),
    ):
        with pytest.raises(kind, match="k_prime"):
            find("k-prime").make([bad])
    assert all(kind.settings() for kind in EXPERIMENTS.values())


def test_some_collections_are_left_out(data, tmp_path):
    other = tmp_path / "data"
    for name in ("one", "two"):
        shutil.copytree(data / "words", other / name)
    assert [pool.name for pool in Lab(Options(work=tmp_path, data=other, without=("one",))).pools] == ["two"]
    with pytest.raises(NeedsError, match="'three' cannot be left out: there are one, two"):
        _ = Lab(Options(work=tmp_path, data=other, without=("three",))).pools
    with pytest.raises(NeedsError, match="no collection is left"):
        _ = Lab(Options(work=tmp_path, data=other, without=("one", "two"))).pools


def test_unknown_names(lab, data, model, tmp_path):
    with pytest.raises(NeedsError, match="no experiment 'alignment'; there are alignments"):
        find("alignment")
    with pytest.raises(DataError):
        _ = Lab(Options(work=tmp_path, data=data, collections=("none",))).pools
    with pytest.raises(NeedsError, match="--data FOLDER"):
        _ = Lab(Options(work=tmp_path)).pools
    with pytest.raises(NeedsError, match="same name"):
        _ = Lab(Options(work=tmp_path, models=(("a", model), ("a", model)))).models
    with pytest.raises(NeedsError, match="--recipe FILE"):
        find("k-train").make().run(Lab(Options(work=tmp_path, data=data)))
    with pytest.raises(NeedsError, match="name it by its alignment"):
        find("training-alignments").make().run(lab)


def test_a_word_that_is_not_in_the_query(lab):
    with pytest.raises(NeedsError, match="'moon' is not a token of 'red planet'"):
        find("token-table").make(["query=red planet", "token=moon"]).run(lab)
    outcome = find("token-table").make(["query=red planet", "token=planet", "ranks=1,3"]).run(lab)
    table = outcome.tables[0]
    assert [row[0] for row in table.rows] == [1, 3]
    assert all(row[5] == "–" for row in table.rows)  # nobody judged this query
    assert "‹" in table.rows[0][2]


def test_an_experiment_on_disk(lab, tmp_path):
    page = run(find("imputation").make(["k_prime=3,30"]), lab, tmp_path / "out", command="weft experiment <imputation>")
    folder = page.parent
    text = page.read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "://" not in text
    assert "weft experiment &lt;imputation&gt;" in text
    config = json.loads((folder / "config.json").read_text())
    assert config["settings"]["k_prime"] == [3, 30]
    assert config["models"][0]["name"] == "tiny"
    assert config["collections"][0]["queries"] == 20
    rows = list(csv.DictReader((folder / "imputation.csv").read_text(encoding="utf-8").splitlines()))
    assert float(rows[0]["MRR@10 low"]) <= float(rows[0]["MRR@10"]) <= float(rows[0]["MRR@10 high"])
    assert (folder / "imputation.md").read_text(encoding="utf-8").count("|") > 20
    assert (folder / "imputation-tiny.png").read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(folder / "imputation-tiny.svg").getroot().tag.endswith("svg")
    again = run(find("imputation").make(["k_prime=3,30"]), lab, tmp_path / "again")
    assert (again.parent / "imputation.csv").read_bytes() == (folder / "imputation.csv").read_bytes()
    assert (again.parent / "imputation-tiny.svg").read_bytes() == (folder / "imputation-tiny.svg").read_bytes()


def test_every_axis_must_have_its_label():
    drawn = []
    with pytest.raises(AssertionError, match="label"), plots.drawing("a", "", drawn) as axes:
        axes[0, 0].plot([1, 2], [3, 4])
    assert drawn == []
    with plots.drawing("a", "", drawn) as axes:
        plots.lines(axes[0, 0], [1, 2], {"x": [Interval(1, 0, 2), None]}, xlabel="k", ylabel="share")
    assert drawn[0].png.startswith(b"\x89PNG")


def test_encodings_are_kept(lab, data, model, tmp_path, monkeypatch):
    first = lab.encoded(lab.models[0], lab.pools[0])
    other = Lab(Options(work=lab.options.work, data=data, models=(("tiny", model),)))
    monkeypatch.setattr("weft.encoders.encoder.Encoder._forward", None)  # nothing may be encoded
    again = other.encoded(other.models[0], other.pools[0])
    assert np.array_equal(first.documents.values, again.documents.values)


def test_a_table_of_all_experiments_names_its_paper():
    for kind in EXPERIMENTS.values():
        assert re.search(r"(ALIGNER|XTR|GR as MVDR) (table|figure|Lemma|§)", kind.reproduces)
        assert len(kind.paper) > 80
    assert isinstance(Table("a", "b", ["c"], [["d"]]).html(), str)
