"""Matched spans: the characters of a document that its score came from."""

from __future__ import annotations

from weft import _native
from weft.serving.schemas import Span
from weft.storage.segments.reading import Places
from weft.types import Ranking


def matched_spans(text: str, places: Places | None, ranking: Ranking, position: int) -> list[Span]:
    """Return the words of a text that add to its score, in the order of the text.

    Word pieces are widened to the run of Latin letters and digits around them: native/spans.hpp.

    Parameters
    ----------
    text : str
    places : Places, optional
        Where the document's tokens stand.
    ranking : Ranking
        With hits.
    position : int
        Which of its results.

    Examples
    --------
    >>> import numpy as np
    >>> from weft.types import Hits
    >>> hits = Hits([0, 1, 1], [0, 0, 0], [1, 2, 0], [0.9, 0.5, 0.25])
    >>> ranking = Ranking(["d"], [1.65], hits=[hits], z=np.ones(1, np.float32))
    >>> matched_spans("red planets", Places.of(np.array([[0, 3], [4, 10], [10, 11]], np.int32)), ranking, 0)
    [Span(start=0, stop=3, contribution=0.25, query=[1]), Span(start=4, stop=11, contribution=1.4, query=[0, 1])]
    """
    if places is None or ranking.hits is None or ranking.z is None:
        return []
    pairs, z = ranking.hits[position], float(ranking.z[position])
    return _native.matched_words(
        Span, text, *places, pairs.query_token, pairs.document_token, pairs.similarity, pairs.weight, z
    )
