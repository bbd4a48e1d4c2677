"""Matched spans: the characters of a document that its score came from."""

from __future__ import annotations

import re
import string

import numpy as np
from numpy.typing import NDArray

from weft.serving.schemas import Span
from weft.types import Ranking

_INNER = frozenset(string.ascii_letters + string.digits)
_REST = re.compile(r"[A-Za-z0-9]+")


def matched_spans(text: str, spans: NDArray[np.int32] | None, ranking: Ranking, position: int) -> list[Span]:
    """Return the words of a text that add to its score, in the order of the text.

    Parameters
    ----------
    text : str
    spans : array of int, shape (m, 2), or None
        Where the document's tokens stand: `Index.reading` has it.
    ranking : Ranking
        With hits.
    position : int
        Which of its results.

    Examples
    --------
    >>> import numpy as np
    >>> from weft.types import Hits
    >>> hits = Hits([0, 1, 1], [0, 0, 0], [1, 2, 0], [0.9, 0.5, 0.25])
    >>> ranking = Ranking(["d"], [1.65], hits=[hits], z=[1.0])
    >>> matched_spans("red planets", np.array([[0, 3], [4, 10], [10, 11]]), ranking, 0)
    [Span(start=0, stop=3, contribution=0.25, query=[1]), Span(start=4, stop=11, contribution=1.4, query=[0, 1])]
    """
    if spans is None or ranking.hits is None or not len(spans):
        return []
    hits, adds = ranking.hits[position], ranking.contributions(position)
    by_word: dict[tuple[int, int], list[tuple[float, int]]] = {}
    end, tokens = len(text), hits.document_token
    pairs = zip(hits.query_token.tolist(), tokens.tolist(), spans[tokens].tolist(), adds.tolist(), strict=True)
    for i, j, (start, stop), added in pairs:
        if j < 0 or added <= 0 or not 0 <= start < stop <= end:  # imputed, a loss, or not of the text
            continue
        cut = (start and text[start - 1] in _INNER) or (stop < end and text[stop] in _INNER)
        by_word.setdefault(_word(text, start, stop) if cut else (start, stop), []).append((added, i))
    return [
        Span(start, stop, round(parts[0][0], 6), [parts[0][1]])
        if len(parts) == 1
        else Span(start, stop, round(sum(added for added, _ in parts), 6), _most_first(parts))
        for (start, stop), parts in sorted(by_word.items())
    ]


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
