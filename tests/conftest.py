"""Shared fixtures and Hypothesis profiles."""

import json
import os

import hypothesis
import pytest

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.register_profile("few", deadline=None, derandomize=True, max_examples=20)  # with sanitizers
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session", params=["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def backend(request):
    """A function that turns a NumPy array into this backend's array, once per backend."""
    if request.param == "numpy":
        return lambda array: array
    torch = pytest.importorskip("torch", reason="needs the torch extra: pip install 'weft-search[torch]'")
    return torch.from_numpy


# A tiny BERT with its own vocabulary, and a collection to train it on.

COLOURS = ["red", "green", "blue", "round", "square", "small", "large"]
THINGS = ["cat", "dog", "bird", "fish", "tree", "river", "stone", "house", "boat"]


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory):
    torch = pytest.importorskip("torch", reason="needs the train extra: pip install 'weft-search[train]'")
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("bert")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", *COLOURS, *THINGS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.3,  # random features worth training: with the usual 0.02 all tokens look alike
    )
    BertModel(config).save_pretrained(folder)
    tokenizer = BertTokenizerFast(vocab={word: i for i, word in enumerate(vocabulary)})
    assert tokenizer.convert_ids_to_tokens(tokenizer(f"{COLOURS[0]} {THINGS[0]}")["input_ids"])[1:3] == [
        COLOURS[0],
        THINGS[0],
    ], "the tokenizer does not know its own words"
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def beir_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beir")
    corpus, queries, qrels = [], [], ["query-id\tcorpus-id\tscore"]
    for i, (a, b) in enumerate((a, b) for a in COLOURS for b in THINGS):
        corpus.append({"_id": f"d{i}", "title": a, "text": f"the {b} . {a} {b} , stone"})
        queries.append({"_id": f"q{i}", "text": f"{a} {b}"})
        qrels.append(f"q{i}\td{i}\t1")
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)))
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (folder / "qrels").mkdir()
    (folder / "qrels" / "train.tsv").write_text("\n".join(qrels))
    return folder
