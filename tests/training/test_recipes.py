"""Recipes are checked whole, before anything starts."""

import re
from pathlib import Path

import pytest

from weft.errors import DataError, InvalidParameterError
from weft.training.query_towers.recipes import build_tower_recipe, is_tower_recipe
from weft.training.recipes import RecipeError, build_recipe, read_recipe
from weft.training.tables import read_tables

RECIPES = Path(__file__).parents[2] / "recipes"
MODEL = {"base": "bert"}
TRAINING = {"output": "out", "steps": 3}
DATA = [{"path": "folder"}]


def tables(**changes):
    return {"model": MODEL, "training": TRAINING, "data": DATA} | changes


def test_a_small_recipe():
    recipe = build_recipe(tables())
    assert recipe.loss.alignment == "sum-of-max"
    assert recipe.data[0].label == "folder"


def test_collections_are_left_out():
    recipe = build_recipe(tables(data=[{"path": "a/one"}, {"path": "two", "name": "second"}, {"path": "three"}]))
    assert recipe.without([]) == recipe
    assert [source.label for source in recipe.without(["second", "one"]).data] == ["three"]
    with pytest.raises(RecipeError, match="no collection 'two' to leave out; it has one, second, three"):
        recipe.without(["two"])
    with pytest.raises(RecipeError, match="at least one"):
        recipe.without(["one", "second", "three"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modle": {}}, "unknown key modle; did you mean 'model'"),
        ({"training": TRAINING | {"stepz": 1}}, "unknown key training.stepz; did you mean 'steps'"),
        ({"training": {"output": "out"}}, "missing key training.steps"),
        ({"training": TRAINING | {"steps": "many"}}, "training.steps must be int, got 'many'"),
        ({"training": TRAINING | {"steps": True}}, "training.steps must be int, got True"),
        ({"data": []}, r"at least one \[\[data\]\]"),
        ({"data": {"path": "x"}}, r"under its own \[\[data\]\]"),
        ({"data": [{"path": "x", "spilt": "train"}]}, "unknown key data.spilt; did you mean 'split'"),
        ({"training": TRAINING | {"remember_frozen": "x"}}, "needs model.frozen_layers"),
    ],
)
def test_mistakes(changes, message):
    with pytest.raises(RecipeError, match=message):
        build_recipe(tables(**changes))


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("model", {"projection": "pcs"}),
        ("model", {"query_gate": "lp:0.5"}),
        ("model", {"query_gate": "lp:5", "document_gate": "lp:0.4"}),
        ("model", {"dim": 0}),
        ("loss", {"alignment": "top-q:3"}),
        ("loss", {"alignment": "xtr:100"}),  # searches a corpus: xtr-in-batch trains
        ("loss", {"alignment": "attention"}),
        ("loss", {"scale": -1.0}),
        ("loss", {"teacher": "base"}),
        ("loss", {"token_distillation": 1.0}),
        ("loss", {"token_distillation": -1.0, "teacher": "base"}),
        ("training", {"batch_size": 1}),
        ("training", {"warmup": 1.0}),
        ("training", {"precision": "fp8"}),
        ("training", {"interpolation": 0.0}),
        ("training", {"max_document_length": -5}),
        ("training", {"head_learning_rate": -1.0}),
        ("training", {"weight_decay": -0.1}),
        ("model", {"dropout": 3.0}),
        ("loss", {"scale": float("inf")}),
    ],
)
def test_values_out_of_range(table, values):
    base = {"model": MODEL, "training": TRAINING, "loss": {}}[table]
    with pytest.raises(InvalidParameterError):
        build_recipe(tables(**{table: base | values}))


@pytest.mark.parametrize(
    "source",
    [
        {"format": "csv"},
        {"negatives": 2},
        {"negatives_from": "index"},
        {"repeat": 0},
        {"documents": "("},
        {"limit": -1},
    ],
)
def test_sources_out_of_range(source):
    with pytest.raises(InvalidParameterError):
        build_recipe(tables(data=[{"path": "x"} | source]))


class TestFiles:
    def write(self, tmp_path, text):
        path = tmp_path / "recipe.toml"
        path.write_text(text)
        return path

    TEXT = '[model]\nbase = "{models}/bert"\n[training]\noutput = "out"\nsteps = 3\n[[data]]\npath = "{data}/x"\n'

    def test_folders_and_changes(self, tmp_path):
        path = self.write(tmp_path, self.TEXT)
        changes = ["training.steps=5", "loss.alignment=top-k:2", "training.learning_rate=1e-3"]
        recipe = read_recipe(path, changes, {"data": "/d", "models": "/m"})
        assert recipe.model.base == "/m/bert"
        assert recipe.data[0].path == "/d/x"
        assert (recipe.training.steps, recipe.loss.alignment, recipe.training.learning_rate) == (5, "top-k:2", 1e-3)

    def test_a_folder_that_is_not_given(self, tmp_path):
        with pytest.raises(RecipeError, match="give --models or set WEFT_MODELS"):
            read_recipe(self.write(tmp_path, self.TEXT), folders={"data": "/d"})

    @pytest.mark.parametrize("change", ["steps=3", "training.steps", "data=x"])
    def test_a_change_that_is_none(self, tmp_path, change):
        with pytest.raises(RecipeError, match=r"table\.key=value"):
            read_recipe(self.write(tmp_path, self.TEXT), [change], {"data": "", "models": ""})

    def test_collections_are_changed_all_or_one(self, tmp_path):
        path = self.write(tmp_path, self.TEXT + '[[data]]\npath = "{data}/y"\n')
        folders = {"data": "/d", "models": "/m"}
        recipe = read_recipe(path, ["data.limit=7", "data.2.path={data}/z"], folders)
        assert [(source.path, source.limit) for source in recipe.data] == [("/d/x", 7), ("/d/z", 7)]
        for change in ("data.3.path=x", "data.0.path=x", "data.x.path=x"):
            with pytest.raises(RecipeError, match=r"2 \[\[data\]\] tables, data.1 the first"):
                read_recipe(path, [change], folders)
        with pytest.raises(RecipeError, match=r"unknown key data.spilt"):
            read_recipe(path, ["data.spilt=train"], folders)

    def test_a_change_of_what_is_no_table(self, tmp_path):
        path = self.write(tmp_path, 'notes = "x"\n' + self.TEXT)
        with pytest.raises(RecipeError, match="not a table"):
            read_recipe(path, ["notes.x=1"], {"data": "", "models": ""})

    def test_not_toml(self, tmp_path):
        with pytest.raises(RecipeError, match="not a TOML file"):
            read_recipe(self.write(tmp_path, "[model\n"))

    def test_no_file(self, tmp_path):
        with pytest.raises(DataError, match="no such recipe"):
            read_recipe(tmp_path / "nothing.toml")


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_recipes_we_ship(path):
    tables = read_tables(path, folders={"data": "/data", "models": "/models"})
    recipe = build_tower_recipe(tables) if is_tower_recipe(tables) else build_recipe(tables)
    assert recipe.training.output == f"runs/{path.stem}"
    launch = r"experiment [a-z-]+ --recipe" if path.stem.startswith("experiments") else "train"
    assert re.match(rf"# weft {launch} recipes/{re.escape(path.name)} ", path.read_text())
