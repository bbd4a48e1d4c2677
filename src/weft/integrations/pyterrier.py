"""A PyTerrier transformer: ``pip install 'weft-search[pyterrier]'``. It needs no Java; only PyTerrier's indexes do."""

from __future__ import annotations

from typing import Any

from weft.errors import missing_extra
from weft.text_index import TextIndex

try:
    import pandas as pd
    import pyterrier as pt
except ImportError:
    raise missing_extra("pyterrier", "pyterrier", "weft.integrations.pyterrier") from None


class WeftRetriever(pt.Transformer):
    """Search a weft index from a PyTerrier pipeline: queries in, ranked documents out.

    The input has the columns ``qid`` and ``query``, and any others, which are kept; the output adds ``docno``,
    ``score``, ``rank`` (from 0, as PyTerrier counts) and, if asked for, ``text``.

    Parameters
    ----------
    index : TextIndex
        An open index.
    k : int
        The maximum number of documents for each query.
    text : bool
        Whether to give the documents' texts too, for re-rankers that come after.
    **options
        More of `TextIndex.search`: ``alignment``, ``filter``, ``hybrid``, …

    Examples
    --------
    >>> weft_index = WeftRetriever(TextIndex.open("notes.weft"), k=100, text=True)  # doctest: +SKIP
    >>> pt.Experiment([weft_index, weft_index % 10], topics, qrels, ["ndcg_cut_10"])  # doctest: +SKIP
    """

    def __init__(self, index: TextIndex, k: int = 1000, *, text: bool = False, **options: Any) -> None:
        super().__init__()
        self.index, self.k, self.text, self.options = index, k, text, options

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.query_frame(inp, extra_columns=["query"])
        found = self.index.search_many([str(query) for query in inp["query"]], self.k, **self.options)
        matches = [(position, rank, match) for position, of in enumerate(found) for rank, match in enumerate(of)]
        kept = inp.iloc[[position for position, _, _ in matches]].reset_index(drop=True)
        columns: dict[str, list[Any]] = {
            "docno": [match.id for _, _, match in matches],
            "score": [match.score for _, _, match in matches],
            "rank": [pt.model.FIRST_RANK + rank for _, rank, _ in matches],
        }
        if self.text:
            columns["text"] = [match.text for _, _, match in matches]
        types = {"docno": object, "score": float, "rank": int, "text": object}
        return kept.assign(**{name: pd.Series(values, dtype=types[name]) for name, values in columns.items()})

    def __repr__(self) -> str:
        return f"WeftRetriever({self.index!r}, k={self.k})"
