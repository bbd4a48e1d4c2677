"""BM25 over texts that are in no index: the field's lexical baseline (bm25s, k1 0.9, b 0.4, stemmed English)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.errors import missing_extra
from weft.types import Ranking

K1 = 0.9
B = 0.4
"""Anserini's values, which published figures for BEIR use."""


class BM25:
    """BM25 with English stop words and stemmer.

    Parameters
    ----------
    corpus : {id: text}
    extra : str
        Which extra of weft to name if bm25s is missing.

    Examples
    --------
    >>> import pytest; _ = pytest.importorskip("bm25s"); _ = pytest.importorskip("Stemmer")
    >>> BM25({"a": "a red boat", "b": "green trees and boats", "c": "stones"}).search(["tree"], 1)[0].ids
    ('b',)
    """

    def __init__(self, corpus: Mapping[str, str], *, extra: str = "eval") -> None:
        try:
            import bm25s
            import Stemmer
        except ImportError:
            raise missing_extra("bm25s", extra, "BM25") from None
        logging.getLogger("bm25s").setLevel(logging.WARNING)  # its logger is set to DEBUG and reports every index
        self.ids = list(corpus)
        self._stemmer = Stemmer.Stemmer("english")
        self._retriever = bm25s.BM25(k1=K1, b=B)
        self._empty = True
        if any(text.strip() for text in corpus.values()):
            tokens = self._tokens(list(corpus.values()))
            if any(len(text) for text in tokens.ids):  # a corpus of stop words has nothing to find
                self._retriever.index(tokens, show_progress=False)
                self._empty = False

    def search(self, queries: Sequence[str], depth: int) -> list[Ranking]:
        """Return the best `depth` documents for each query, filled up with documents that have none of its words."""
        if self._empty or not queries:
            return [Ranking([], np.zeros(0, np.float32)) for _ in queries]
        depth = min(depth, len(self.ids))
        found, scores = self._retriever.retrieve(self._tokens(list(queries)), k=depth, show_progress=False)
        return [
            Ranking([self.ids[i] for i in row], np.asarray(of_row, dtype=np.float32))
            for row, of_row in zip(np.asarray(found), scores, strict=True)
        ]

    def _tokens(self, texts: list[str]) -> Any:
        import bm25s

        return bm25s.tokenize(texts, stopwords="en", stemmer=self._stemmer, show_progress=False)
