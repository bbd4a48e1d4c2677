"""What was decoded for each result: n-grams (SEAL), a title (GENRE, NP-decoding), digits (DSI, PAWA)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from weft.generative.identifiers import FIRST_DIGIT
from weft.generative.seal import NGram
from weft.types import Ranking


class Said(NamedTuple):
    """Something that was decoded, and what it adds to the score of the document that it names."""

    text: str
    score: float
    tokens: tuple[int, ...]
    """In the decoder's vocabulary."""


@dataclass(frozen=True)
class DecodedRanking(Ranking):
    """A ranking with what was decoded: ``said[rank]`` names the document ``ids[rank]``, and adds up to its score.

    Examples
    --------
    >>> DecodedRanking(["d"], np.array([-0.5]), said=[[Said("red planet", -0.5, (7, 9))]]).said[0][0].text
    'red planet'
    """

    said: Sequence[Sequence[Said]] = ()


def said_by_ngrams(ranking: Ranking, keys: Sequence[NGram], tokenizer: Any) -> DecodedRanking:
    """Return SEAL's ranking with the n-grams found in each result, the one that adds most first."""
    said: list[list[Said]] = []
    for rank, hits in enumerate(ranking.hits or ()):
        adds = np.zeros(len(keys))
        np.add.at(adds, hits.query_token, ranking.contributions(rank))
        best = [int(i) for i in np.argsort(-adds, kind="stable") if adds[i] > 0]
        said.append([Said(tokenizer.decode(list(keys[i])), float(adds[i]), keys[i]) for i in best])
    return DecodedRanking(ranking.ids, ranking.scores, ranking.hits, z=ranking.z, said=said)


def digits_of(tokens: Sequence[int], vocabulary: int, positions: int) -> list[int]:
    """Return the digits that tokens of a `DigitVocabulary` stand for.

    Examples
    --------
    >>> digits_of([6, 12, 31], vocabulary=32, positions=3)
    [4, 0, 9]
    """
    width = (vocabulary - FIRST_DIGIT) // positions
    return [(token - FIRST_DIGIT) % width for token in tokens]
