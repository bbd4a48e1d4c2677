"""Reading filters: a tokenizer and a recursive-descent parser, nothing evaluated.

::

    filter    = all {"or" all}
    all       = term {"and" term}
    term      = "not" term | "(" filter ")" | condition
    condition = path [op value | ["not"] "in" "[" [value {"," value}] "]" | "contains" value
                     | "startswith" string | "exists" | "missing"]
    path      = "@id" | key {"." key}              key = name | `any text`
    value     = string | number | "true" | "false" | "null"
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from weft.errors import invalid
from weft.storage.filters.nodes import And, Compare, Contains, Exists, Filter, In, Not, Or, StartsWith
from weft.storage.filters.values import (
    ID,
    KEYWORDS,
    MAX_LENGTH,
    MAX_NESTING,
    NAME,
    FilterError,
    Path,
    Scalar,
    brief,
    string,
)

T = TypeVar("T")

_TOKEN: Final = re.compile(
    rf"""
      (?P<name>{NAME.pattern})
    | (?P<key>`(?:[^`\\]|\\.)*`)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    | (?P<op>==|!=|<=|>=|<(?!>)|>)
    | (?P<symbol>@id\b|[()\[\],.])
    """,
    re.VERBOSE | re.DOTALL,
)
_SPACE: Final = re.compile(r"\s*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", **{c: c for c in "\"'`\\/"}}
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_CONSTANTS: Final[dict[str, Scalar]] = {"true": True, "false": False, "null": None}
# What other languages write, and what to write here.
_HABITS: Final = {
    "=": "==",
    "=>": ">=",
    "=<": "<=",
    "<>": "!=",
    "&&": "and",
    "&": "and",
    "||": "or",
    "|": "or",
    "!": "not",
}


class _Token(NamedTuple):
    kind: str
    text: str
    at: int  # counted from 1

    def __str__(self) -> str:
        return brief(self.text) if self.text else "end of text"


def parse(text: str | Filter) -> Filter:
    """Read a filter from its text; a filter passes through unchanged.

    Examples
    --------
    >>> parse('lang == "en" and not draft').matches({"lang": "en"}, id="a")
    True
    >>> parse("lang == 'en' and year >=")
    Traceback (most recent call last):
    ...
    weft.storage.filters.values.FilterError: bad filter at character 25: expected a value after '>=', found end of text
    """
    if isinstance(text, Filter):
        return text
    if not isinstance(text, str):
        raise invalid("filter", "parse", "a string or a Filter", text)
    parser = _Parser(text)
    found = parser.any_of(0)
    parser.end("'and', 'or' or the end")
    return found


def parse_path(text: str) -> Path:
    """Read a field alone.

    Examples
    --------
    >>> parse_path("author.`last name`")
    ('author', 'last name')
    """
    parser = _Parser(text)
    path = parser.path()
    parser.end("'.' or the end of the field")
    return path


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise FilterError(f"expected at most {MAX_LENGTH} characters, found {len(text)}")
        self._tokens = _tokenize(text)
        self._next = 0

    def any_of(self, depth: int) -> Filter:
        terms = [self._all_of(depth)]
        while self._skip("or"):
            terms.append(self._all_of(depth))
        return self._build(lambda: Or(tuple(terms))) if len(terms) > 1 else terms[0]

    def _all_of(self, depth: int) -> Filter:
        terms = [self._term(depth)]
        while self._skip("and"):
            terms.append(self._term(depth))
        return self._build(lambda: And(tuple(terms))) if len(terms) > 1 else terms[0]

    def _term(self, depth: int) -> Filter:
        negations = 0
        while self._skip("not"):
            negations += 1
        depth += negations
        if depth >= MAX_NESTING and (depth > MAX_NESTING or self._peek().text == "("):
            raise FilterError(f"expected at most {MAX_NESTING} nested 'not' and '('", self._peek().at)
        opening = self._peek()
        if self._skip("("):
            found = self.any_of(depth + 1)
            if not self._skip(")"):
                raise self._expected(f"')' for the '(' at character {opening.at}, 'and' or 'or'")
        else:
            found = self._condition()
        for _ in range(negations):
            found = self._build(lambda inner=found: Not(inner))  # type: ignore[misc]
        return found

    def _condition(self) -> Filter:
        path = self.path()
        token = self._peek()
        if token.kind == "op":
            self._next += 1
            value = self._value(f"a value after {token.text!r}")
            return self._build(lambda: Compare(path, token.text, value))
        if self._skip("exists"):
            return self._build(lambda: Exists(path))
        if self._skip("missing"):
            return Not(self._build(lambda: Exists(path)))
        if self._skip("contains"):
            value = self._value("a value after 'contains'")
            return self._build(lambda: Contains(path, value))
        if self._skip("startswith"):
            if self._peek().kind != "string":
                raise self._expected("a string after 'startswith'")
            prefix = _unquote(self._take())
            return self._build(lambda: StartsWith(path, prefix))
        if self._skip("not"):
            if self._peek().text != "in":
                raise self._expected("'in' after 'not'")
            return Not(self._membership(path))
        if token.text == "in":
            return self._membership(path)
        return self._build(lambda: Compare(path, "==", True))

    def _membership(self, path: Path) -> Filter:
        self._take()
        if not self._skip("["):
            raise self._expected("'[' after 'in'")
        values: list[Scalar] = []
        while not self._skip("]"):
            if values and not self._skip(","):
                raise self._expected("',' or ']' in the list")
            values.append(self._value("a value in the list" if values else "a value or ']' in the list"))
        return self._build(lambda: In(path, tuple(values)))

    def path(self) -> Path:
        if self._skip("@id"):
            return ID
        keys = [self._key("a field")]
        while self._skip("."):
            keys.append(self._key("a key after '.' (in backticks unless it is a plain name)"))
        return tuple(keys)

    def _key(self, expected: str) -> str:
        token = self._peek()
        if token.kind == "name" and token.text not in KEYWORDS:
            return self._take().text
        if token.kind == "key":
            return _unquote(self._take())
        hint = f" (a field of that name needs backticks: `{token.text}`)" if token.kind == "name" else ""
        raise self._expected(expected, hint)

    def _value(self, expected: str) -> Scalar:
        token = self._peek()
        if token.kind == "string":
            return _unquote(self._take())
        if token.kind == "number":
            return _number(self._take())
        if token.kind == "name" and token.text in _CONSTANTS:
            return _CONSTANTS[self._take().text]
        raise self._expected(expected, " (text needs quotes)" if token.kind == "name" else "")

    def end(self, expected: str) -> None:
        token = self._peek()
        if token.text:
            lower = token.text.lower()
            wrong_case = token.kind == "name" and token.text not in KEYWORDS and lower in KEYWORDS
            raise self._expected(expected, f" (write {lower!r})" if wrong_case else "")

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def _skip(self, text: str) -> bool:
        # A string or a backticked key keeps its quotes in `text`, so it is never taken for a word.
        found = self._peek().text == text
        self._next += found
        return found

    def _expected(self, expected: str, hint: str = "") -> FilterError:
        token = self._peek()
        return FilterError(f"expected {expected}, found {token}{hint}", token.at)

    def _build(self, make: Callable[[], T]) -> T:
        """Make a node; what it objects to stands just before here."""
        try:
            return make()
        except FilterError as error:
            raise FilterError(error.problem, self._tokens[max(self._next - 1, 0)].at) from None


def _tokenize(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while True:
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        if at == len(text):
            return [*tokens, _Token("end", "", at + 1)]
        match = _TOKEN.match(text, at)
        if match is None:
            raise FilterError(_unreadable(text, at), at + 1)
        kind = str(match.lastgroup)
        if kind == "number" and re.match(r"[\w.]", text[match.end() : match.end() + 1]):
            whole = re.compile(r"[\w.+-]+").match(text, at)
            raise FilterError(f"expected a number, found {brief(whole and whole.group())} (text needs quotes)", at + 1)
        tokens.append(_Token(kind, match.group(), at + 1))
        at = match.end()


def _unreadable(text: str, at: int) -> str:
    if text[at] in "\"'`":
        return f"expected a closing {text[at]}, found end of text"
    for habit, word in _HABITS.items():
        if text.startswith(habit, at) and (len(habit) == 2 or text[at : at + 2] not in _HABITS):
            return f"expected {word!r}, found {habit!r}"
    if text[at] == "@":
        return f"expected '@id', the only '@' name, found {brief(text[at : at + 10])}"
    return f"expected a field, a value or an operator, found {text[at]!r}"


def _number(token: _Token) -> Scalar:
    digits = token.text.removeprefix("-")
    if digits[0] == "0" and digits[1:2].isdigit():
        raise FilterError(f"expected a number without leading zeros, found {token} (text needs quotes)", token.at)
    if digits.isdigit():
        # Length first: Python refuses to read very long integers.
        if len(digits) > 19 or not -(2**63) <= int(token.text) < 2**63:
            raise FilterError(f"expected an integer of at most 64 bits, found {token}", token.at)
        return int(token.text)
    number = float(token.text)
    if not math.isfinite(number):
        raise FilterError(f"expected a number that a 64-bit float can hold, found {token}", token.at)
    return number


def _unquote(token: _Token) -> str:
    def replace(match: re.Match[str]) -> str:
        escape = match.group(1)
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape not in _ESCAPES:
            at = token.at + 1 + match.start()
            raise FilterError(f"expected an escape of JSON such as \\n or \\u00e9, found {brief(match.group())}", at)
        return _ESCAPES[escape]

    text = _ESCAPE.sub(replace, token.text[1:-1])
    # Two \u escapes may be one character, as in JSON; halves that stay alone are refused.
    text = _PAIR.sub(lambda pair: pair.group().encode("utf-16", "surrogatepass").decode("utf-16"), text)
    try:
        return string(text)
    except FilterError as error:
        raise FilterError(error.problem, token.at) from None
