"""Hard negatives: passages that look right to a retriever and are not known to be relevant.

Two miners: BM25 (bm25s), and weft's own index with the model at hand, which finds what *this* model gets wrong.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.evaluation.bm25 import BM25
from weft.search import Index
from weft.training.data import Row
from weft.types import Document


def mine_bm25(queries: Sequence[str], corpus: Mapping[str, str], depth: int) -> list[list[str]]:
    """Return for each query the ids of the best `depth` passages by BM25, relevant ones included."""
    return [list(ranking.ids) for ranking in BM25(corpus, extra="train").search(queries, depth)]


def mine_index(queries: Sequence[str], corpus: Mapping[str, str], depth: int, encoder: Any) -> list[list[str]]:
    """Return for each query the ids of the best `depth` passages by our own index and the given encoder."""
    with tempfile.TemporaryDirectory(prefix="weft-mining-") as folder:
        ids = list(corpus)
        with Index.create(Path(folder) / "corpus.weft", dim=encoder.dim) as index:
            for begin in range(0, len(ids), 1024):
                part = ids[begin : begin + 1024]
                index.add([Document(name) for name in part], encoder.encode_document([corpus[name] for name in part]))
            index.compact()
            rankings = index.search(encoder.encode_query(list(queries)), k=depth, hits=False)
        return [list(ranking.ids) for ranking in rankings]


def choose(
    rows: Sequence[Row], found: Sequence[Sequence[str]], corpus: Mapping[str, str], count: int, skip: int
) -> None:
    """Give each row its `count` best mined passages that are not known to be relevant, after `skip` of them.

    A passage with the text of the positive (a duplicate under another id) is never a negative.
    """
    for row, ids in zip(rows, found, strict=True):
        wrong = [corpus[name] for name in ids if name not in row.known and corpus[name] != row.positive]
        row.negatives = wrong[skip : skip + count]
