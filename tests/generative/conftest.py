"""A tiny random T5 and a corpus small enough to enumerate."""

import json

import pytest

WORDS = ["red", "green", "blue", "cat", "dog", "bird", "tree", "river", "stone", "house", "boat", "moon"]
SHAPE = {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_kv": 8, "d_ff": 32}


@pytest.fixture(scope="session")
def tokenizer():
    pytest.importorskip("transformers", reason="needs the generative extra: pip install 'weft-search[generative]'")
    from weft.generative.checkpoints import train_tokenizer

    return train_tokenizer([" ".join(WORDS), "the of in , ."], 60)


@pytest.fixture(scope="session")
def tiny_model(tokenizer):
    from weft.generative.checkpoints import new_t5
    from weft.generative.model import GenerativeModel

    return GenerativeModel(new_t5(len(tokenizer), SHAPE, seed=3), tokenizer).eval()


@pytest.fixture(scope="session")
def collection(tmp_path_factory):
    """Twenty-four passages with a title, and two questions for each."""
    folder = tmp_path_factory.mktemp("collection")
    corpus, queries, qrels = [], [], ["query-id\tcorpus-id\tscore"]
    for number in range(24):
        one, two, three = WORDS[number % 12], WORDS[(5 * number + 1) % 12], WORDS[(7 * number + number // 12) % 12]
        text = f"the {one} of the {two} in the {three} . {three} {two} , the {one} ."
        corpus.append({"_id": f"d{number}", "title": f"{one} {two}", "text": text})
        for kind, asked in enumerate((f"{one} {two}", f"the {two} in the {three}")):
            queries.append({"_id": f"q{number}-{kind}", "text": asked})
            qrels.append(f"q{number}-{kind}\td{number}\t1")
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)))
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (folder / "qrels").mkdir()
    (folder / "qrels" / "train.tsv").write_text("\n".join(qrels))
    return folder
