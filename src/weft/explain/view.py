"""What the terminal and the page both show: words, pairs of words, and which query word a document word answers."""

from __future__ import annotations

from dataclasses import dataclass

from weft.explain.explanation import Explanation, Side
from weft.explain.words import Word, WordPair, word_pairs, words

COLOURS = 8
"""This many query words have a colour of their own; all others share one more."""


@dataclass(frozen=True)
class View:
    """An explanation in words."""

    explanation: Explanation
    query: list[Word]
    document: list[Word]
    pairs: list[WordPair]
    """The largest contribution first."""
    colour: dict[int, int]
    """Query word → number of its colour, 0 for the one that adds the most."""
    owner: dict[int, int]
    """Document word → the query word that adds the most through it."""

    @property
    def repeats(self) -> dict[int, int]:
        """Query word → how many tokens outside the text it stands for ([MASK] expansions)."""
        return {i: len(w.tokens) for i, w in enumerate(self.query) if w.span is None and len(w.tokens) > 1}


def view(explanation: Explanation, like: View | None = None) -> View:
    """Arrange an explanation for people; with the colours of another one for the same query, if given."""
    query, document = _shown(explanation.query), _shown(explanation.document)
    pairs = word_pairs(explanation, query, document)
    order = sorted(range(len(query)), key=lambda i: (_outside(explanation.query, query[i]), -query[i].contribution))
    colour = {
        word: COLOURS if _outside(explanation.query, query[word]) else min(number, COLOURS)
        for number, word in enumerate(order)
    }
    if like is not None and [word.tokens for word in like.query] == [word.tokens for word in query]:
        colour = like.colour
    owner: dict[int, int] = {}
    for pair in pairs:
        if pair.document is not None:
            owner.setdefault(pair.document, pair.query)
    return View(explanation, query, document, pairs, colour, owner)


def _outside(side: Side, word: Word) -> bool:
    return side.placed and word.span is None


def _shown(side: Side) -> list[Word]:
    """Join equal tokens that are not of the text, expansions as a rule, to one word."""
    listed = words(side)
    if not side.placed:
        return listed
    shown: list[Word] = []
    first: dict[str, int] = {}
    for word in listed:
        if word.span is None and word.text in first:
            shown[first[word.text]] = _merged(shown[first[word.text]], word)
            continue
        if word.span is None:
            first[word.text] = len(shown)
        shown.append(word)
    return shown


def _merged(a: Word, b: Word) -> Word:
    saliences = [s for s in (a.salience, b.salience) if s is not None]
    tokens, contribution = a.tokens + b.tokens, a.contribution + b.contribution
    return Word(tokens, a.text, None, contribution, max(saliences) if saliences else None)
