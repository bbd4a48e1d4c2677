"""Experiments with generative models: what they are trained on, what they refuse, that a second run trains nothing."""

import json

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the generative extra: pip install 'weft-search[generative]'")
pytest.importorskip("rapidfuzz", reason="needs the generative extra: pip install 'weft-search[generative]'")

from weft.analysis.base import NeedsError
from weft.analysis.experiments.exact_match import Rates
from weft.analysis.generative import D_TO_Q, SEAL, Workshop, over_seeds
from weft.analysis.lab import Lab, Options
from weft.cli.main import main

pytestmark = pytest.mark.torch

RECIPE = """
[model]
vocabulary = 60
[identifiers]
method = "seal"
[training]
output = "out"
steps = 2
batch_size = 4
[[data]]
path = "{data}/words"
splits = "test"
heldout = 0.3
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


def test_the_full_form_trains_once_on_what_it_does_not_measure(data, recipe, tmp_path, capsys):
    arguments = ["experiment", "gr-rerank", "seeds=1", "depth=5", "--recipe", str(recipe), "--data", str(data)]
    assert main([*arguments, "-o", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    work = tmp_path / "out" / "work" / "generative"
    (corpus,) = work.glob("corpus-*")
    train, test = (
        {line.split("\t")[0] for line in (corpus / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]}
        for split in ("train", "test")
    )
    assert train
    assert test
    assert not train & test
    table = (tmp_path / "out" / "gr-rerank" / "table-5.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in table[1:4]] == ["BM25", "MVDR (q→d)", "MVDR (q←d)"]
    weights = {path: path.stat().st_mtime_ns for path in work.glob("*/model/model.safetensors")}
    assert len(weights) == 3
    assert main([*arguments, "-o", str(tmp_path / "out")]) == 0
    assert weights == {path: path.stat().st_mtime_ns for path in work.glob("*/model/model.safetensors")}
    # The trained models can be given instead; what is not given and cannot be trained is said.
    seal = next(work.glob("seal-1-*")) / "model"
    again = ["experiment", "low-rank", "-m", f"seal={seal}", "candidates=1", "tokens=3", "-o", str(tmp_path / "given")]
    (seal.parent / "collection" / "qrels" / "test.tsv").write_bytes((corpus / "qrels" / "test.tsv").read_bytes())
    (seal.parent / "collection" / "queries.jsonl").write_bytes((corpus / "queries.jsonl").read_bytes())
    assert main(again) == 0, capsys.readouterr().err
    config = json.loads((tmp_path / "given" / "low-rank" / "config.json").read_text())
    assert config["collections"][0]["queries"] == len(test)
    lab = Lab(Options(work=tmp_path / "other", models=(("seal", str(seal)),)))
    shop = Workshop(lab, (1,))
    assert len(shop.trained(SEAL)) == 1
    with pytest.raises(NeedsError, match="mvdr-d-q is needed"):
        shop.trained(D_TO_Q)


def test_what_is_missing_is_said(tmp_path, recipe):
    with pytest.raises(NeedsError, match="models to compare are needed"):
        _ = Workshop(Lab(Options(work=tmp_path)), (1,)).pool
    recipe.write_text('[model]\nbase = "x"\n')
    with pytest.raises(NeedsError, match="models to compare are needed"):  # a recipe for encoders is none for these
        _ = Workshop(Lab(Options(work=tmp_path, recipe=recipe)), (1,)).pool


def test_one_command_takes_a_recipe_for_each_kind_of_model(data, recipe, tmp_path, monkeypatch, capsys):
    """Both kinds in one command: with one recipe alone, half of the page's experiments could not be made."""
    seen = {}

    def note(options, output, *, command):
        seen.update(encoders=options.recipe, generative=options.generative)
        return []

    monkeypatch.setattr("weft.analysis.run.run_all", note)
    encoders = tmp_path / "encoders.toml"
    encoders.write_text('[model]\nbase = "x"\n[training]\noutput = ""\nsteps = 1\n[[data]]\npath = "{data}/words"\n')
    arguments = ["experiment", "all", "--data", str(data), "-o", str(tmp_path / "out")]
    assert main([*arguments, "--recipe", str(recipe), "--recipe", str(encoders)]) == 0, capsys.readouterr().err
    assert seen == {"encoders": encoders, "generative": recipe}
    assert main([*arguments, "--recipe", str(recipe)]) == 0
    assert seen == {"encoders": None, "generative": recipe}
    models = ["--models", str(tmp_path)]
    assert main([*arguments, *models, "--recipe", "experiments", "--recipe", "recipes/generative/seal-small.toml"]) == 0
    assert [path.stem for path in seen.values()] == ["experiments", "seal-small"]
    capsys.readouterr()
    assert main([*arguments, "--recipe", str(recipe), "--recipe", str(recipe)]) == 1
    assert "are both recipes for generative models" in capsys.readouterr().err
    assert main([*arguments, "--recipe", str(tmp_path / "none.toml")]) == 1
    assert "no such recipe" in capsys.readouterr().err
    # An experiment that compares encoders does not read a recipe of the other kind.
    assert main(["experiment", "k-train", "--data", str(data), "--recipe", str(recipe), "-o", str(tmp_path / "k")]) == 1
    assert "models trained with different k_train are needed" in capsys.readouterr().err


def test_intervals_over_seeds():
    from scipy.stats import t

    seeds = [np.array([0.0, 1.0]), np.array([1.0, 1.0]), np.array([0.5, 0.5])]
    means = np.array([0.5, 1.0, 0.5])
    found = over_seeds(seeds)
    low, high = t.interval(0.95, 2, means.mean(), means.std(ddof=1) / np.sqrt(3))
    assert tuple(found) == pytest.approx((means.mean(), low, high))
    assert over_seeds(seeds[:1]).value == 0.5


def test_rates_are_means_over_tokens_then_queries():
    rates = Rates(2, 2)
    rates.add(0, np.array([0, 0, 1, -1]), np.array([1.0, 0.0, 0.5, 9.0]), np.array([True, False, True, True]))
    rates.add(1, np.array([0]), np.array([0.2]), np.array([False]))
    assert rates.of(0).tolist() == [0.5, 0.2]
    assert rates.of(0, there=True).tolist() == [1.0]
    assert rates.of(1).tolist() == [0.5]
    assert rates.of(None).tolist() == [0.5, 0.2]
