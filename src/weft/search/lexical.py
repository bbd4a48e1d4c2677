"""The lexical side: BM25 over the documents' texts, by the FTS5 table that the catalogue keeps beside the documents.

The table is written in the same transaction as the documents (see `weft.storage.catalogue`), so both sides of a search
see one committed state.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from weft.checks import MOST_COUNT, check_count
from weft.storage.filters import Filter
from weft.storage.filters import parse as parse_filter
from weft.storage.store import Store
from weft.types import Ranking

_WORD = re.compile(r"\w+")
_QUOTED = re.compile(r"[\"“”«»]([^\"“”«»]{2,200})[\"“”«»]")
_AROUND = ".,;:!?()[]{}<>'`"
_LONGEST = 10_000
MOST_STRINGS = 8
MOST_WORDS = 256
"""A longer query is cut: SQLite's expressions have a limited depth, and BM25 gains nothing from more."""
K1 = 1.2
"""FTS5's k₁ of BM25: however often a word occurs, it counts at most K1 + 1 times."""
LEAST_IDF = 1e-6
"""FTS5's weight of a word that more than half of the documents have."""


def match_any(text: str) -> str:
    """Return the FTS5 expression that matches any word of a text; empty if it has none.

    Everything in the text is a word, quotes and operators of FTS5 included.

    Examples
    --------
    >>> match_any('red AND "planet*" red')
    '"red" OR "and" OR "planet"'
    """
    return " OR ".join(terms_of(text))


def terms_of(text: str) -> list[str]:
    """Return the words of a query, each once, as FTS5 expressions."""
    words = dict.fromkeys(word.lower() for word in _WORD.findall(text))
    return [f'"{word}"' for word in list(words)[:MOST_WORDS]]


def exact_strings(text: str) -> list[str]:
    """Return the strings of a query that must match exactly: part numbers, error codes, names in code, quotes.

    Examples
    --------
    >>> exact_strings('why does ERR_CONN_404 come with "full moon" and getUserId in 1969 on BX-12?')
    ['full moon', 'ERR_CONN_404', 'getUserId', 'BX-12']
    """
    quoted = [found for found in _QUOTED.findall(text[:_LONGEST]) if _WORD.search(found)]
    plain = _QUOTED.sub(" ", text[:_LONGEST])
    names = [word.strip(_AROUND) for word in plain.split()]
    return list(dict.fromkeys([*quoted, *(name for name in names if _is_name(name))]))[:MOST_STRINGS]


def _is_name(word: str) -> bool:
    letters, digits = any(c.isalpha() for c in word), any(c.isdigit() for c in word)
    inner = "_" in word or any(a.islower() and b.isupper() for a, b in pairwise(word))
    return len(word) > 2 and letters and (digits or inner)


def search_exact(index: Store, text: str, most: int = 20, *, filter: Filter | str | None = None) -> set[str]:  # noqa: A002
    """Return the documents that hold every exact string of a query; none if it has none, or if they are not rare.

    Parameters
    ----------
    index : Index or Store
    text : str
        The query.
    most : int
        If more documents than this hold the strings, they tell nothing and none is returned.
    filter : Filter or str, optional
        Only documents whose metadata match.
    """
    strings = exact_strings(text)
    phrases = [" ".join(_WORD.findall(string)) for string in strings]
    if not phrases:
        return set()
    found = _matching(index, " AND ".join(f'"{phrase}"' for phrase in phrases), most + 1, filter)
    return set() if len(found) > most else {id for id, _ in found}  # noqa: A001


def search_lexical(index: Store, text: str, k: int = 10, *, filter: Filter | str | None = None) -> Ranking:  # noqa: A002
    """Rank documents by BM25 of the query's words (stemmed by Porter's rules), any of which may match.

    Parameters
    ----------
    index : Index or Store
    text : str
        The query, as a person writes it; FTS5's operators have no meaning here.
    k : int
        The maximum number of documents. Documents that share no word with the query are not ranked.
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
    check_count(k, "k", "search_lexical", MOST_COUNT)
    match = match_any(text)
    found = _matching(index, match, k, filter) if match else []
    return Ranking([id for id, _ in found], np.array([score for _, score in found], dtype=np.float32))  # noqa: A001


def most_score(index: Store, text: str) -> float:
    """Return the highest score that BM25 could give a document for a query: every word of it, very often.

    That is (k₁ + 1) · Σ ln((N − n + ½) / (n + ½)), with N documents, of which n have the word.

    Examples
    --------
    >>> import tempfile
    >>> from weft.types import Document, TokenVectors
    >>> with Store.create(tempfile.mkdtemp(), dim=1) as store:
    ...     texts = [Document(name, name) for name in "abcd"]
    ...     store.add(texts, TokenVectors.from_list([[[1.0]]] * 4))
    ...     [round(most_score(store, query), 3) for query in ("a", "a b", "a unheard")]
    [1.864, 3.728, 6.698]
    """
    number = len(index)
    with index.reading_catalogue() as catalogue:
        holders = [catalogue.lexical_count(term) for term in terms_of(text)]
    idf = (max(math.log((number - n + 0.5) / (n + 0.5)), LEAST_IDF) for n in holders)
    return (K1 + 1) * sum(idf)


def _matching(index: Store, match: str, k: int, filter: Filter | str | None) -> list[tuple[str, float]]:  # noqa: A002
    condition: str = "1"
    parameters: Sequence[object] = ()
    if filter is not None:
        condition, parameters = parse_filter(filter).to_sql("documents.metadata", "documents.id")
    with index.reading_catalogue() as catalogue:
        found = catalogue.lexical(match, f"({condition})", parameters, k)
        if filter is not None:
            catalogue.verify(id for id, _ in found)  # noqa: A001
        return found
