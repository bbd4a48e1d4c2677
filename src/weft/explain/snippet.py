"""The part of a document that the score came from."""

from __future__ import annotations

from typing import NamedTuple

from weft.explain.explanation import Explanation
from weft.explain.words import Word, words


class Fragment(NamedTuple):
    """A run of text; `strength` from 0 to 1 is its contribution, relative to the document's strongest word."""

    text: str
    strength: float


def fragments(explanation: Explanation, start: int = 0, stop: int | None = None) -> list[Fragment]:
    """Cut the document's text, or a part of it, at its words; words that add nothing have strength 0."""
    text = explanation.document.text
    return _fragments(text, _placed(explanation), start, len(text) if stop is None else stop)


def _fragments(text: str, placed: list[tuple[Word, tuple[int, int]]], start: int, stop: int) -> list[Fragment]:
    most = max((word.contribution for word, _ in placed), default=0.0)
    made: list[Fragment] = []
    at = start
    for word, (a, b) in placed:
        if a < at or b > stop or most <= 0 or word.contribution <= 0:
            continue
        if a > at:
            made.append(Fragment(text[at:a], 0.0))
        made.append(Fragment(text[a:b], word.contribution / most))
        at = b
    if at < stop:
        made.append(Fragment(text[at:stop], 0.0))
    return made


def snippet(explanation: Explanation, width: int = 240) -> list[Fragment]:
    """Return about `width` characters around the words that add the most, as one line.

    Examples
    --------
    >>> from weft.explain.explanation import Side, Token
    >>> text = "Long ago and far away there was a red planet with two moons."
    >>> document = Side(text, (Token("red", (34, 37), None, 0.5), Token("planet", (38, 44), None, 1.0)))
    >>> found = snippet(Explanation("d", 1, 1.5, 1.0, "", Side("", ()), document, ()), width=30)
    >>> "".join(fragment.text for fragment in found)
    '… was a red planet with two …'
    """
    text, placed = explanation.document.text, _placed(explanation)
    start, stop = _window(text, placed, width)
    found = _fragments(text, placed, start, stop)
    if start > 0:
        found.insert(0, Fragment("… ", 0.0))
    if stop < len(text):
        found.append(Fragment(" …", 0.0))
    return [Fragment(_one_line(fragment.text), fragment.strength) for fragment in found]


def excerpt(explanation: Explanation, width: int | None = 240) -> tuple[int, list[Fragment]]:
    r"""Return the lines around the words that add the most, as they are, and the character that they begin at.

    For source code. About `width` characters; with None, all lines.

    Examples
    --------
    >>> from weft.explain.explanation import Side, Token
    >>> document = Side("def f(x):\n    y = x + 1\n    return y\n", (Token("y", (14, 15), None, 1.0),))
    >>> start, found = excerpt(Explanation("d", 1, 1.0, 1.0, "", Side("", ()), document, ()), width=6)
    >>> start, "".join(fragment.text for fragment in found)
    (10, '    y = x + 1')
    """
    text, placed = explanation.document.text, _placed(explanation)
    start, stop = (0, len(text)) if width is None else _window(text, placed, width)
    start, stop = whole_lines(text, start, stop, width)
    return start, _fragments(text, placed, start, stop)


def whole_lines(text: str, start: int, stop: int, most: int | None = None) -> tuple[int, int]:
    r"""Widen a range to whole lines, by at most `most` characters on each side, without blank lines around them.

    Examples
    --------
    >>> whole_lines("a\n  bc\n\n", 5, 8)
    (2, 6)
    """
    while start < stop and text[start].isspace():
        start += 1
    while stop > start and text[stop - 1].isspace():
        stop -= 1
    first, last = text.rfind("\n", 0, start) + 1, text.find("\n", stop)
    last = len(text) if last < 0 else last
    if most is None or start - first <= most:
        start = first
    return start, last if most is None or last - stop <= most else stop


def _placed(explanation: Explanation) -> list[tuple[Word, tuple[int, int]]]:
    listed = [(word, word.span) for word in words(explanation.document) if word.span is not None]
    return sorted(((word, span) for word, span in listed if span is not None), key=lambda pair: pair[1])


def _window(text: str, listed: list[tuple[Word, tuple[int, int]]], width: int) -> tuple[int, int]:
    """Return the characters to show: the window with the largest sum, moved to whole words."""
    if len(text) <= width:
        return 0, len(text)
    placed = [(span, word.contribution) for word, span in listed if word.contribution > 0]
    best, sums = (0, 0), (-1.0, 0)
    last, total = 0, 0.0
    for first, ((start, _), worth) in enumerate(placed):
        while last < len(placed) and placed[last][0][1] - start <= width:
            total += placed[last][1]
            last += 1
        if last > first and (total, -start) > sums:
            best, sums = (start, placed[last - 1][0][1]), (total, -start)
        total -= worth if last > first else 0.0
        last = max(last, first + 1)
    spare = max(width - (best[1] - best[0]), 0)
    start = max(best[0] - spare // 2, 0)
    stop = min(start + width, len(text))
    start = max(stop - width, 0)
    # Whole words: move inward past a word that is cut.
    while 0 < start < best[0] and not text[start - 1].isspace():
        start += 1
    while best[1] < stop < len(text) and not text[stop].isspace():
        stop -= 1
    while start < best[0] and text[start].isspace():
        start += 1
    while stop > best[1] and text[stop - 1].isspace():
        stop -= 1
    return start, max(stop, start)


def _one_line(text: str) -> str:
    return "".join(" " if character.isspace() else character for character in text)
