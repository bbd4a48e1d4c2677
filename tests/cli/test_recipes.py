"""Recipes are found by name, and come with the package."""

import tomllib
from pathlib import Path

import pytest

from weft.cli.main import main
from weft.cli.recipes import find_recipe
from weft.errors import DataError

ROOT = Path(__file__).parents[2]


def test_by_name_and_by_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_recipe("xtr-small").read_bytes() == (ROOT / "recipes" / "xtr-small.toml").read_bytes()
    assert find_recipe("recipes/xtr-small.toml") == find_recipe("xtr-small")
    assert find_recipe("seal-small", "generative").parent.name == "generative"
    (tmp_path / "xtr-small").write_text("mine")
    assert find_recipe("xtr-small").read_text() == "mine"


def test_unknown_names_list_the_known(capsys):
    assert main(["train", "nothing"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("weft: no such recipe: nothing; recipes by name: ")
    assert "xtr-small" in said
    with pytest.raises(DataError, match="no such recipe"):
        find_recipe("../xtr-small")


def test_the_wheel_has_them():
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["wheel"]["packages"]
    assert packages["weft/recipes"] == "recipes"


def test_an_unknown_model_is_one_line(tmp_path, capsys, monkeypatch):
    # The hub is a port of this machine that nobody listens at.
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    (tmp_path / "a.txt").write_text("the fox")
    assert main(["index", str(tmp_path / "a.txt"), "-o", str(tmp_path / "n.weft"), "-m", "nosuchmodel"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(
        "weft: nosuchmodel is neither a folder nor a model in the cache, and the hub did not provide it"
    )
