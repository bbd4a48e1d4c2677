"""Word pieces joined to words, for display."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from weft.explain.explanation import Explanation, Side


@dataclass(frozen=True)
class Word:
    """Some tokens of a side that are shown as one."""

    tokens: tuple[int, ...]
    text: str
    span: tuple[int, int] | None
    """None for what is not of the text: special tokens, markers, expansions; all tokens, if spans are unknown."""
    contribution: float
    salience: float | None
    """The highest of its tokens'."""


@dataclass(frozen=True)
class WordPair:
    """All pairs between two words together; `document` is None for what was imputed."""

    query: int
    document: int | None
    similarity: float
    """The highest of the pairs'."""
    weight: float
    contribution: float


def words(side: Side) -> list[Word]:
    """Join the tokens of a side to words: pieces that touch inside a run of letters and digits.

    Examples
    --------
    >>> from weft.explain.explanation import Token
    >>> pieces = [("[CLS]", None), ("retriev", (0, 7)), ("al", (7, 9)), (",", (9, 10)), ("fast", (11, 15))]
    >>> tokens = tuple(Token(text, span, None, 0.5) for text, span in pieces)
    >>> [(word.text, word.contribution) for word in words(Side("retrieval, fast", tokens))]
    [('[CLS]', 0.5), ('retrieval', 1.0), (',', 0.5), ('fast', 0.5)]
    """
    groups: list[list[int]] = []
    for i in range(len(side.tokens)):
        if i and _one_word(side, i - 1, i):
            groups[-1].append(i)
        else:
            groups.append([i])
    return [_word(side, group) for group in groups]


def _one_word(side: Side, left: int, right: int) -> bool:
    a, b = side.tokens[left], side.tokens[right]
    if a.span is None or b.span is None:
        # No place in the text: BERT's vocabularies mark what continues a word.
        return a.span is None and b.span is None and b.text.startswith("##")
    if a.span[0] <= b.span[0] < a.span[1]:  # several tokens of one character
        return True
    return b.span[0] == a.span[1] and _inner(side.text[a.span[1] - 1]) and _inner(side.text[b.span[0]])


def _inner(character: str) -> bool:
    """Whether words go on through a character; scripts without spaces (wide ones) are left as their tokens are."""
    return (character.isalnum() or unicodedata.combining(character) > 0) and unicodedata.east_asian_width(
        character
    ) not in "WF"


def _word(side: Side, group: list[int]) -> Word:
    tokens = [side.tokens[i] for i in group]
    spans = [token.span for token in tokens if token.span is not None]
    span = (min(a for a, _ in spans), max(b for _, b in spans)) if spans else None
    text = "".join(token.text.removeprefix("##") if i else token.text for i, token in enumerate(tokens))
    if span is not None:
        text = side.text[slice(*span)]
    saliences = [token.salience for token in tokens if token.salience is not None]
    return Word(
        tuple(group), text, span, sum(token.contribution for token in tokens), max(saliences) if saliences else None
    )


def word_pairs(explanation: Explanation, query: list[Word], document: list[Word]) -> list[WordPair]:
    """Sum the pairs between words, the largest contribution first."""
    of_query, of_document = _owners(query), _owners(document)
    found: dict[tuple[int, int | None], WordPair] = {}
    for pair in explanation.pairs:
        key = (of_query[pair.query], None if pair.document is None else of_document[pair.document])
        old = found.get(key)
        found[key] = WordPair(
            *key,
            pair.similarity if old is None else max(old.similarity, pair.similarity),
            pair.weight if old is None else old.weight + pair.weight,
            pair.contribution if old is None else old.contribution + pair.contribution,
        )
    return sorted(found.values(), key=lambda pair: -pair.contribution)


def _owners(listed: list[Word]) -> Mapping[int, int]:
    return {token: number for number, word in enumerate(listed) for token in word.tokens}
