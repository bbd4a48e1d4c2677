"""Matched spans: the characters of a document that its score came from."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from weft.serving.schemas import Span
from weft.types import Ranking

_INNER = frozenset(string.ascii_letters + string.digits)
_REST = re.compile(r"[A-Za-z0-9]+")


def matched_spans(
    texts: Sequence[str],
    places: Sequence[NDArray[np.int32] | None],
    scored: Sequence[tuple[Ranking, int] | None],
) -> list[list[Span]]:
    """Return for each text the words that add to its score, in the order of the text.

    Parameters
    ----------
    texts : sequence of str
    places : an array of int, shape (m, 2), or None for each text
        Where the document's tokens stand: `Index.reading` has it.
    scored : a ranking with hits and a position in it, or None for each text
        Whose pairs the score is the sum of.

    Examples
    --------
    >>> import numpy as np
    >>> from weft.types import Hits
    >>> hits = Hits([0, 1, 1], [0, 0, 0], [1, 2, 0], [0.9, 0.5, 0.25])
    >>> ranking = Ranking(["d"], [1.65], hits=[hits], z=[1.0])
    >>> matched_spans(["red planets"], [np.array([[0, 3], [4, 10], [10, 11]])], [(ranking, 0)])[0]
    [Span(start=0, stop=3, contribution=0.25, query=[1]), Span(start=4, stop=11, contribution=1.4, query=[0, 1])]
    """
    words: dict[tuple[int, int, int], tuple[Span, float]] = {}
    met_again: dict[tuple[int, int, int], list[tuple[float, int]]] = {}
    in_order = True
    for owner, start, stop, i, added, rounded in _pairs(texts, places, scored):
        text = texts[owner]
        if (start and text[start - 1] in _INNER) or (stop < len(text) and text[stop] in _INNER):
            start, stop = _word(text, start, stop)
            in_order = False
        word = owner, start, stop
        known = words.get(word)
        if known is None:
            words[word] = Span(start, stop, rounded, [i]), added
        else:
            met_again.setdefault(word, [(known[1], known[0].query[0])]).append((added, i))
    for word, parts in met_again.items():
        span = words[word][0]
        span.contribution, span.query = round(sum(added for added, _ in parts), 6), _most_first(parts)
    made: list[list[Span]] = [[] for _ in texts]
    for word in words if in_order else sorted(words):
        made[word[0]].append(words[word][0])
    return made


def _pairs(
    texts: Sequence[str],
    places: Sequence[NDArray[np.int32] | None],
    scored: Sequence[tuple[Ranking, int] | None],
) -> Iterator[tuple[int, int, int, int, float, float]]:
    """Yield text, start, stop, query token, contribution and the same rounded of pairs that add something, in order."""
    owners, found, tables, adds = [], [], [], []
    for owner, (table, behind) in enumerate(zip(places, scored, strict=True)):
        if table is not None and len(table) and behind is not None and behind[0].hits is not None:
            owners.append(owner)
            found.append(behind[0].hits[behind[1]])
            tables.append(table)
            adds.append(behind[0].contributions(behind[1]))
    if not owners:
        return iter(())
    counts = [len(hits) for hits in found]
    firsts = list(accumulate(map(len, tables), initial=0))[:-1]
    tokens = np.concatenate([hits.document_token for hits in found])
    starts, stops = np.concatenate(tables)[np.repeat(firsts, counts) + tokens].T
    ends = np.repeat([len(texts[owner]) for owner in owners], counts)
    of, added = np.repeat(owners, counts), np.concatenate(adds)
    # Not what was imputed, nor a loss, nor what is not of the text.
    kept = np.flatnonzero((tokens >= 0) & (added > 0) & (starts >= 0) & (starts < stops) & (stops <= ends))
    kept = kept[np.lexsort((stops[kept], starts[kept], of[kept]))]
    query = np.concatenate([hits.query_token for hits in found])
    columns = (of, starts, stops, query, added, added.round(6))
    return zip(*(column[kept].tolist() for column in columns), strict=True)


def _most_first(parts: list[tuple[float, int]]) -> list[int]:
    """The query tokens that met a word, each once, those first that it answers most."""
    by_token: dict[int, float] = {}
    for added, i in parts:
        by_token[i] = by_token.get(i, 0.0) + added
    return sorted(by_token, key=by_token.__getitem__, reverse=True)


def _word(text: str, start: int, stop: int) -> tuple[int, int]:
    """Widen a word piece to the run of Latin letters and digits around it; other characters stay as they are."""
    if text[start] in _INNER and text[stop - 1] in _INNER:
        while start > 0 and text[start - 1] in _INNER:
            start -= 1
        rest = _REST.match(text, stop)
        stop = stop if rest is None else rest.end()
    return start, stop
