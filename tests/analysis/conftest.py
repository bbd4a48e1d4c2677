"""A tiny model and a small collection for the experiments."""

import json

import numpy as np
import pytest

for package in ("ir_measures", "scipy", "matplotlib", "bm25s"):
    pytest.importorskip(package, reason="needs the eval extra: pip install 'weft-search[eval]'")

WORDS = ["red", "planet", "mars", "sky", "blue", "rain", "fall", "quick", "fox", "lazy", "dog", "why"]


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The folder of a tiny light model, with saliences."""
    pytest.importorskip("onnx")
    from encoders import light_models

    return str(light_models.write(tmp_path_factory.mktemp("light") / "tiny"))


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A folder with one collection: 40 documents of 6 words, 20 queries of 3."""
    folder = tmp_path_factory.mktemp("data") / "words"
    (folder / "qrels").mkdir(parents=True)
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(40)]
    corpus = [json.dumps({"_id": f"d{i}", "title": "", "text": text}) for i, text in enumerate(texts)]
    queries = [json.dumps({"_id": f"q{i}", "text": " ".join(texts[i].split()[:3])}) for i in range(20)]
    (folder / "corpus.jsonl").write_text("\n".join(corpus))
    (folder / "queries.jsonl").write_text("\n".join(queries))
    judged = [f"q{i}\td{i}\t2\nq{i}\td{(i + 7) % 40}\t1" for i in range(20)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))
    return folder.parent


@pytest.fixture
def lab(data, model, tmp_path):
    from weft.analysis.lab import Lab, Options

    return Lab(Options(work=tmp_path / "work", data=data, models=(("tiny", model),)))
