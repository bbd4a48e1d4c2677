"""Multilingual XTR: a tiny mT5 trained by the recipe for MS MARCO and MIRACL, measured on the miracl suite."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
pytest.importorskip("ir_measures", reason="needs the eval extra: pip install 'weft-search[eval]'")

from pathlib import Path

from encoders import checkpoints
from weft.cli.main import main
from weft.evaluation.suites import suite

pytestmark = [
    pytest.mark.torch,
    # The trainer's own: no accelerator here, and what its dependencies deprecate.
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

RECIPE = Path(__file__).parents[2] / "recipes" / "mxtr-miracl.toml"
WORDS = ["red", "planet", "mars", "sky", "blue", "rain", "fox", "dog"]


def texts(language, count):
    """Texts of four words, other ones in each language."""
    shift = sum(map(ord, language))
    return [" ".join(WORDS[(shift + i * j + j) % 8] for j in range(1, 5)) + f" {language}{i}" for i in range(count)]


@pytest.fixture
def data(tmp_path):
    """MS MARCO and the eighteen languages of MIRACL, six documents each."""
    folder = tmp_path / "data"
    marco = folder / "msmarco"
    marco.mkdir(parents=True)
    (marco / "collection.tsv").write_text("".join(f"{i}\t{text}\n" for i, text in enumerate(texts("marco", 6))))
    (marco / "queries.train.tsv").write_text("".join(f"{i}\t{WORDS[i]} what\n" for i in range(4)))
    (marco / "rocketqa.hard.tsv").write_text("".join(f"{i}\t{i}\t{i + 1}\n" for i in range(4)))
    for dataset in suite("miracl").datasets:
        language = folder / dataset.folder
        (language / "qrels").mkdir(parents=True)
        corpus = [json.dumps({"_id": f"d{i}", "text": text}) for i, text in enumerate(texts(dataset.name, 6))]
        (language / "corpus.jsonl").write_text("\n".join(corpus))
        asked = [json.dumps({"_id": f"q{i}", "text": texts(dataset.name, 6)[i]}) for i in range(4)]
        (language / "queries.jsonl").write_text("\n".join(asked))
        for split, queries in (("train", (0, 1)), ("dev", (2, 3))):
            rows = [f"q{i}\td{i}\t1" for i in queries]
            (language / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]))
    return folder


def test_trained_and_measured(data, tmp_path, capsys):
    base = tmp_path / "mt5"
    checkpoints.plain(base, "mt5")
    changes = [
        f"model.base={base}",
        "model.dim=8",
        "model.query_length=16",
        "model.document_length=16",
        "loss.alignment=xtr-in-batch:8",
        "loss.mini_batch_size=4",
        f"training.output={tmp_path / 'run'}",
        "training.steps=2",
        "training.batch_size=2",
        "training.precision=fp32",
        "training.log_every=1",
    ]
    arguments = ["train", str(RECIPE), *changes, "--data", str(data)]
    assert main([*arguments, "--check"]) == 0
    checked = capsys.readouterr().out
    assert checked.count("data      ") == 17
    assert "data      miracl-te: 2 rows, of 6 documents, 1 negatives each (bm25)" in checked
    assert main(arguments) == 0
    model = Path(capsys.readouterr().out.split()[-1])
    assert json.loads((model / "weft_alignment.json").read_text())["search"] == "xtr"
    out = ["evaluate", "miracl", "--data", str(data), "-m", f"mxtr={model}", "--no-bm25"]
    assert main(out) == 0
    table = capsys.readouterr().out
    for dataset in suite("miracl").datasets:
        assert dataset.name in table
    assert "mxtr, xtr" in table
