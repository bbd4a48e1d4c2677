"""Models installed as packages, real ones: a distribution with an entry point on the path."""

import logging
import sys

import pytest

from encoders import light_models
from weft import Encoder, TextIndex, WeftError


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install a package of the given model, whose module says the given line."""

    def install(name: str, line: str = 'FOLDER = Path(__file__).parent / "model"') -> None:
        module = name.replace("-", "_")
        light_models.write(tmp_path / module / "model")
        (tmp_path / module / "__init__.py").write_text(f"from pathlib import Path\n\n{line}\n")
        information = tmp_path / f"{module}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[weft.models]\n{name} = {module}:FOLDER\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install


def test_an_installed_model_is_found_by_its_name_in_python_and_in_an_index(package, tmp_path):
    package("weft-tiny-of-tests")
    encoder = Encoder.load("weft-tiny-of-tests")
    assert (encoder.dim, encoder.fingerprint) == (light_models.DIM, "of the tiny model")
    with TextIndex.open(tmp_path / "a.weft", create=True, model="weft-tiny-of-tests") as texts:
        texts.add({"a": "mars"})
    with TextIndex.open(tmp_path / "a.weft") as texts:  # the name is remembered, not the place
        assert texts.info()["model"] == "weft-tiny-of-tests"
        assert [hit.id for hit in texts.search("mars")] == ["a"]


def test_a_model_that_is_not_installed_tells_how_to_get_it(monkeypatch):
    monkeypatch.setattr("weft.encoders.packages.KNOWN", {"weft-other": "everything"})
    with pytest.raises(WeftError, match=r"weft-other is not installed: pip install ./packages/weft-other in"):
        Encoder.load("weft-other")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("raise ValueError('no\\nway')", "is broken: no"),
        ("OTHER = 1", "is broken"),
        ("FOLDER = 3", "is broken"),
        ("FOLDER = Path(__file__)", "names no folder"),
    ],
)
def test_a_broken_package_is_told_in_a_line(package, line, reason):
    package("weft-broken", line)
    with pytest.raises(WeftError, match=reason) as found:
        Encoder.load("weft-broken")
    assert "\n" not in str(found.value)


def test_the_notice_about_other_languages_names_a_model_that_reads_them(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("weft.text_index.languages.KNOWN", {"weft-other": "everything", "weft-small": "English"})
    with TextIndex.open(tmp_path / "a.weft", create=True) as texts, caplog.at_level(logging.WARNING):
        texts.add({"a": "Die Pumpe braucht jeden Monat Öl, und die Dichtung ist nach einem Jahr zu wechseln."})
        texts.search("Wie oft braucht die Pumpe Öl?")
    notices = [record.getMessage() for record in caplog.records if "German" in record.getMessage()]
    assert len(notices) == 2
    assert all("(--model weft-other reads everything)" in notice for notice in notices)
