"""The lexical side: BM25 over the documents' texts, by the FTS5 table that the catalogue keeps beside the documents.

The table is written in the same transaction as the documents (see `weft.storage.catalogue`), so both sides of a search
see one committed state.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from weft.checks import check_count
from weft.storage.filters import Filter
from weft.storage.filters import parse as parse_filter
from weft.storage.store import Store
from weft.types import Ranking

_WORD = re.compile(r"\w+")
MOST_WORDS = 256
"""A longer query is cut: SQLite's expressions have a limited depth, and BM25 gains nothing from more."""


def match_any(text: str) -> str:
    """Return the FTS5 expression that matches any word of a text; empty if it has none.

    Whatever stands in the text, quotes and operators of FTS5 included, is only ever a word.

    Examples
    --------
    >>> match_any('red AND "planet*" red')
    '"red" OR "and" OR "planet"'
    """
    words = dict.fromkeys(word.lower() for word in _WORD.findall(text))
    return " OR ".join(f'"{word}"' for word in list(words)[:MOST_WORDS])


def search_lexical(index: Store, text: str, k: int = 10, *, filter: Filter | str | None = None) -> Ranking:  # noqa: A002
    """Rank documents by BM25 of the query's words (stemmed by Porter's rules), any of which may match.

    Parameters
    ----------
    index : Index or Store
    text : str
        The query, as a person writes it; FTS5's operators have no meaning here.
    k : int
        How many documents at the most. Documents that share no word with the query are not ranked.
    filter : Filter or str, optional
        Only documents whose metadata match.

    Examples
    --------
    >>> import tempfile
    >>> from weft.types import Document, TokenVectors
    >>> with Store.create(tempfile.mkdtemp(), dim=1) as store:
    ...     texts = [Document("a", "The red planet"), Document("b", "A blue whale")]
    ...     store.add(texts, TokenVectors.from_list([[[1.0]], [[1.0]]]))
    ...     search_lexical(store, "which planets are red?").ids
    ('a',)
    """
    check_count(k, "k", "search_lexical")
    condition: str = "1"
    parameters: Sequence[object] = ()
    if filter is not None:
        condition, parameters = parse_filter(filter).to_sql("documents.metadata", "documents.id")
    match = match_any(text)
    with index.reading_catalogue() as catalogue:
        found = catalogue.lexical(match, f"({condition})", parameters, k) if match else []
    return Ranking([id for id, _ in found], np.array([score for _, score in found], dtype=np.float32))  # noqa: A001
