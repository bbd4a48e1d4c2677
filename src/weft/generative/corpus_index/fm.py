"""The corpus as an FM-index: about 3 bytes a token, from which the text itself can be read back."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.generative.corpus_index.base import NGramIndex
from weft.generative.corpus_index.corpus import Corpus, suffix_array

RATE = 32
"""One in this many positions of the text is stored; others are found in at most as many steps."""


class FMIndex(NGramIndex):
    """Wavelet matrix over the Burrows-Wheeler transform of the text read backwards.

    An FM-index makes an n-gram longer at its beginning. Decoding makes it longer at its end: hence backwards.
    """

    kind: ClassVar[str] = "fm-index"
    heads: ClassVar[int] = 8192
    _extra: ClassVar[tuple[str, ...]] = ("lines", "zeros", "leaves", "marks", "values", "rows")

    @classmethod
    def _sorted(cls, corpus: Corpus) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        order = suffix_array(np.ascontiguousarray(corpus.text[::-1]))
        lines, zeros, leaves, marks, values, origin = _native.corpus_index_fm(
            corpus.text, order, len(corpus.alphabet), RATE
        )
        # Suffixes that begin with 0 come first, among them the separators before the documents.
        places = len(corpus.text) - 1 - order[: int(corpus.first[1])].astype(np.int64)
        row_of = np.zeros(len(corpus.text), np.uint32)
        row_of[places] = np.arange(len(places))
        own: dict[str, NDArray[Any]] = {"lines": lines, "zeros": zeros, "leaves": leaves, "marks": marks}
        own |= {"values": values, "rows": row_of[corpus.starts[:-1] - 1]}
        return own, {"rate": RATE, "origin": origin}

    def _make(self, tables: _native.CorpusIndexTables) -> _native.CorpusIndex:
        arrays = {name: self._arrays[name] for name in self._extra}
        return _native.CorpusIndex.fm(tables, **arrays, rate=self._info["rate"], origin=self._info["origin"])
