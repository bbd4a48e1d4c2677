"""Matched spans: the characters of a document that its score came from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.serving.schemas import Span
from weft.types import Ranking


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
    if spans is None or ranking.hits is None:
        return []
    hits = ranking.hits[position]
    adds = ranking.contributions(position).tolist()
    by_word: dict[tuple[int, int], dict[int, float]] = {}
    for i, j, added in zip(hits.query_token.tolist(), hits.document_token.tolist(), adds, strict=True):
        if j < 0 or added <= 0:
            continue
        start, stop = spans[j].tolist()
        if not 0 <= start < stop <= len(text):
            continue
        word = by_word.setdefault(_word(text, start, stop), {})
        word[i] = word.get(i, 0.0) + added
    return [
        Span(start, stop, round(sum(tokens.values()), 6), sorted(tokens, key=lambda i: -tokens[i]))
        for (start, stop), tokens in sorted(by_word.items())
    ]


def _word(text: str, start: int, stop: int) -> tuple[int, int]:
    """Widen a word piece to the run of letters and digits around it; other characters stay as they are."""
    if text[start:stop].isalnum() and text[start:stop].isascii():
        while start > 0 and text[start - 1].isalnum() and text[start - 1].isascii():
            start -= 1
        while stop < len(text) and text[stop].isalnum() and text[stop].isascii():
            stop += 1
    return start, stop
