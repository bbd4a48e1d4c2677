"""Documents to be merged, and all that an index stores of them: shared by the tests of merges."""

import numpy as np
import pytest

from weft import Document, TokenVectors
from weft.storage import merger

DIM = 8


def made(seed, count=40, *, saliences=True, ids=True, spans=True, topics=0, centre=0.0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 9, count)
    means = np.random.default_rng(topics).standard_normal((5, DIM))
    texts = [
        (means[rng.integers(0, 5, m)] + 0.3 * rng.standard_normal((m, DIM)) + centre).astype(dtype) for m in lengths
    ]
    return TokenVectors.from_list(
        texts,
        [rng.integers(0, 1000, m) for m in lengths] if ids else None,
        [rng.random(m) for m in lengths] if saliences else None,
        [[(int(3 * t), int(3 * t + rng.integers(0, 400))) for t in range(m)] or np.zeros((0, 2)) for m in lengths]
        if spans
        else None,
        dim=DIM,
    )


def named(start, stop, version=0):
    return [Document(f"d{i}", f"text {i} of {version}", {"n": i, "v": version}) for i in range(start, stop)]


def contents(index):
    """Everything that is stored of every document, by id."""
    found = {}
    for id in index.matching("id != ''"):  # noqa: A001
        vectors, read = index.vectors(id), index.reading(id)
        parts = (vectors.values, read.token_ids, read.salience, read.spans)
        found[id] = index.get(id), [None if part is None else (part.dtype.str, part.tolist()) for part in parts]
    assert len(found) == len(index)
    return found


def documents_of(found):
    return {id: document for id, (document, _) in found.items()}  # noqa: A001


def kinds_of(index):
    with index.view() as view:
        return [s.segment.coded for s in view.segments]


def files(index):
    return {path.name for path in (index.folder / "segments").iterdir()}


def committed_files(index):
    with index.view() as view:
        return {s.segment.path.name for s in view.segments}


@pytest.fixture
def coded_from(monkeypatch):
    """Say from how many tokens on segments are coded."""

    def set_to(tokens):
        monkeypatch.setattr(merger, "CODED_TOKENS", tokens)
        monkeypatch.setattr(merger, "CODED_SHARE", 1)

    return set_to
