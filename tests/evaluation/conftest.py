"""Small collections for evaluation."""

import importlib.util
import json

import pytest

NEED_EVAL = [
    "test_adaptation.py",
    "test_collections.py",
    "test_indexes.py",
    "test_measures.py",
    "test_pools.py",
    "test_verbs.py",
]
collect_ignore = [] if all(map(importlib.util.find_spec, ("ir_measures", "bm25s", "Stemmer"))) else NEED_EVAL


def write_collection(folder, documents, queries, qrels, split="test"):
    """Write BEIR's layout; `queries` may be {id: text} or rows."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    rows = [{"_id": name, "title": "", "text": text} for name, text in documents.items()]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = [{"_id": q, "text": text} for q, text in queries.items()] if isinstance(queries, dict) else queries
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, asked)))
    lines = [
        "query-id\tcorpus-id\tscore",
        *(f"{q}\t{d}\t{g}" for q, grades in qrels.items() for d, g in grades.items()),
    ]
    (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


WORDS = ["amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "hazel", "ivory", "jade", "kelp", "lilac"]


@pytest.fixture
def collection(tmp_path):
    """Thirty documents of five words; twenty queries of three words of one document."""
    documents, queries, qrels = {}, {}, {}
    for i in range(30):
        words = [WORDS[(i * 7 + j * (i % 5 + 1)) % len(WORDS)] for j in range(5)]
        documents[f"d{i}"] = " ".join(words)
        if i < 20:
            queries[f"q{i}"] = " ".join(words[:3])
            qrels[f"q{i}"] = {f"d{i}": 2, f"d{(i + 9) % 30}": 1}
    return write_collection(tmp_path / "tiny", documents, queries, qrels)


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The folder of a tiny light model."""
    pytest.importorskip("onnx")
    from encoders import light_models

    return str(light_models.write(tmp_path_factory.mktemp("light") / "tiny"))


@pytest.fixture(scope="session")
def encoder(model):
    from weft import Encoder

    return Encoder.load(model)


@pytest.fixture
def run(capsys):
    """A command's exit code, stdout and stderr."""
    from weft.cli.main import main

    def run(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run
