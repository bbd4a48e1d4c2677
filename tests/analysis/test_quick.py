"""All experiments in their quick form, with tiny models trained on the way: CI runs this."""

import json

import pytest

pytest.importorskip("torch", reason="needs the train extra: pip install 'weft-search[train]'")
pytest.importorskip("datasets", reason="needs the train extra: pip install 'weft-search[train]'")

from weft.analysis.experiments import EXPERIMENTS
from weft.cli.main import main

pytestmark = [
    pytest.mark.torch,
    # The trainer's own: no accelerator here, and what its dependencies deprecate.
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def test_all_of_them(model, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("WEFT_DATA", raising=False)
    code = main(["experiment", "all", "--quick", "-o", str(tmp_path), "--model", f"tiny={model}"])
    out, err = capsys.readouterr()
    assert code == 0, err
    pages = [tmp_path / name / "report.html" for name in EXPERIMENTS]
    assert out.split() == [str(page) for page in pages] + [str(tmp_path / "index.html")]
    contents = (tmp_path / "index.html").read_text(encoding="utf-8")
    for name, page in zip(EXPERIMENTS, pages, strict=True):
        folder = page.parent
        assert f'href="{name}/report.html"' in contents
        text = page.read_text(encoding="utf-8")
        assert "What was found" in text
        assert "The quick form" in text
        assert json.loads((folder / "config.json").read_text())["quick"] is True
        tables = {path.stem for path in folder.glob("*.csv")}
        assert tables
        assert tables <= {path.stem for path in folder.glob("*.md")}
        drawn = {path.stem for path in folder.glob("*.png")}
        assert drawn
        assert drawn == {path.stem for path in folder.glob("*.svg")}
    # Models that were trained here learnt something: the quick base finds words, and training does not undo it.
    rows = (tmp_path / "training-alignments" / "matrix.csv").read_text().splitlines()
    assert float(rows[1].split(",")[1]) > 0.3


def test_names_and_mistakes(capsys, tmp_path):
    assert main(["experiment", "--list"]) == 0
    out, _ = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines() if not line.startswith(" ")] == list(EXPERIMENTS)
    for arguments, said in (
        (["experiment"], "weft: which experiment?"),
        (["experiment", "none", "--quick"], "weft: there is no experiment 'none'"),
        (["experiment", "alignments", "-m", "folder"], "weft: --model is written NAME=FOLDER"),
        (["experiment", "all", "k_prime=3"], "weft: settings are an experiment's own"),
        (["experiment", "flops", "top=x", "--quick"], "weft: The 'top' parameter of flops must be an integer"),
        (["experiment", "flops", "--data", str(tmp_path / "none")], "weft: no such folder"),
    ):
        assert main(arguments) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(said)
        assert err.count("\n") == 1
