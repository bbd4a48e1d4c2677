"""The collection that the server is measured on: real texts, synthetic vectors, so that 100,000 are made in minutes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from weft import Document, Encoder, Index, TokenVectors
from weft.sources.beir import DEMO, read_corpus

TOKENS = 48
CENTRES = 8192
BATCH = 1000


def build(folder: Path, documents: int) -> None:
    """Make the index, unless it is there."""
    if folder.exists():
        return
    encoder = Encoder.load()
    partial = folder.with_suffix(".partial")
    index = Index.create(
        partial,
        encoder.dim,
        encoder_fingerprint=encoder.fingerprint,
        salience_weighs=encoder.salience_weighs,
        merge="off",
    )
    with index:
        for rows, vectors in batches(documents, encoder.dim):
            index.add(rows, vectors)
        index.compact()
        index.remember_alignment(encoder.alignment or index.alignment)  # as an index made from texts does
    partial.rename(folder)


def batches(documents: int, dim: int) -> Iterator[tuple[list[Document], TokenVectors]]:
    """Yield documents with vectors around common centres, as tokens of a language have them."""
    rng = np.random.default_rng(0)
    centres = _unit(rng.standard_normal((CENTRES, dim), dtype=np.float32))
    weights = 1 / np.arange(1, CENTRES + 1)
    texts = [document.full_text for document in read_corpus(DEMO)]
    for start in range(0, documents, BATCH):
        number = min(BATCH, documents - start)
        rows, spans, lengths = [], [], []
        for n in range(start, start + number):
            text = texts[n % len(texts)]
            words = [match.span() for match in re.finditer(r"\w+", text)][:TOKENS]
            rows.append(Document(f"d{n}", text, {"year": 1900 + n % 120, "part": n % 10}))
            spans += words
            lengths.append(len(words))
        tokens = sum(lengths)
        chosen = centres[rng.choice(CENTRES, tokens, p=weights / weights.sum())]
        values = _unit(chosen + 0.35 * _unit(rng.standard_normal((tokens, dim), dtype=np.float32)))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        yield rows, TokenVectors(values.astype(np.float16), offsets, spans=np.array(spans, dtype=np.int32))


def text_queries(number: int) -> list[str]:
    """Return queries of eight words in a row, each one once: the server's memory of queries is of no use."""
    rng = np.random.default_rng(1)
    words = [document.full_text.split() for document in read_corpus(DEMO)]
    found: dict[str, None] = {}
    while len(found) < number:
        text = words[rng.integers(len(words))]
        start = rng.integers(max(len(text) - 8, 1))
        found[f"{' '.join(text[start : start + 8])} {rng.integers(10_000)}"] = None
    return list(found)


def vector_queries(number: int, dim: int, tokens: int = 16) -> list[np.ndarray]:
    """Return queries of 16 vectors near the centres."""
    rng = np.random.default_rng(2)
    centres = _unit(np.random.default_rng(0).standard_normal((CENTRES, dim), dtype=np.float32))
    return [
        _unit(centres[rng.integers(0, CENTRES, tokens)] + 0.35 * _unit(rng.standard_normal((tokens, dim))))
        for _ in range(number)
    ]


def _unit(values: np.ndarray) -> np.ndarray:
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
