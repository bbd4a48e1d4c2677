"""A small index of texts, by a tiny light model: no torch, no network."""

import pytest

from encoders import light_models
from weft import Document, TextIndex

TEXTS = {
    "mars": "the red planet mars is known",
    "sky": "the sky is blue.",
    "dog": "the lazy dog",
    "fox": "the quick brown fox jumps",
}


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    model = light_models.write(folder / "tiny")
    with TextIndex.open(folder / "n.weft", create=True, model=model) as index:
        index.add([Document(name, text, {"year": 2000 + n}) for n, (name, text) in enumerate(TEXTS.items())])
        yield index
