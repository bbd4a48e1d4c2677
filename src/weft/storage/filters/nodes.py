"""The nodes of a filter: small frozen dataclasses that print themselves and evaluate themselves in Python."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from weft.storage.filters.values import (
    MAX_KEYS,
    MAX_NESTING,
    MAX_TERMS,
    FilterError,
    Path,
    Scalar,
    brief,
    comparable,
    kind,
    literal,
    path_text,
    scalar,
    string,
)

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Filter(ABC):
    """Base of the nodes: combine with ``&``, ``|``, ``~``; print with `str`; equal when they print the same.

    Examples
    --------
    >>> recent = Compare(("year",), ">=", 2020) & ~Compare(("lang",), "==", "en")
    >>> print(recent)
    year >= 2020 and not lang == "en"
    >>> recent.matches({"year": 2021}, id="a")
    True
    """

    height: int = 0  # And, Or and Not above the deepest leaf
    terms: int = 1  # leaves below

    @abstractmethod
    def matches(self, metadata: Mapping[str, Any], id: str) -> bool:  # noqa: A002
        """Evaluate the filter in Python on one document's metadata and id."""

    def to_sql(self, column: str = "metadata", id_column: str = "id") -> tuple[str, list[str | int | None]]:
        """Compile to an SQLite expression that is 0 or 1, never NULL, and the values of its ``?`` in order.

        Parameters
        ----------
        column : str
            Column that holds the metadata, as `json.dumps` writes it (NULL counts as ``{}``).
        id_column : str
            Column that holds the document's id.

        Examples
        --------
        >>> Compare((), "==", "doc-7").to_sql(id_column="d.id")
        ('(d.id IS NOT NULL AND d.id = ?)', ['doc-7'])
        """
        from weft.storage.filters.sql import compile_sql  # it imports the nodes of this file

        return compile_sql(self, column, id_column)

    def __and__(self, other: Filter) -> And:
        return And((self, other)) if isinstance(other, Filter) else NotImplemented

    def __or__(self, other: Filter) -> Or:
        return Or((self, other)) if isinstance(other, Filter) else NotImplemented

    def __invert__(self) -> Not:
        return Not(self)

    def __bool__(self) -> bool:
        # Python's `and`, `or`, `not` and chained comparisons would silently drop half of the filter.
        raise FilterError("a filter has no truth value: combine with & | ~ (in parentheses), test with .matches()")

    # By text, because Python holds 1 == True == 1.0 while the language does not.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


@dataclass(frozen=True, eq=False)
class _Leaf(Filter):
    """A condition on one field."""

    path: Path

    def __post_init__(self) -> None:
        if not isinstance(self.path, tuple) or not all(isinstance(key, str) for key in self.path):
            raise FilterError(f"a path is a tuple of strings, found {brief(self.path)}")
        if len(self.path) > MAX_KEYS:
            raise FilterError(f"a path has at most {MAX_KEYS} keys, found {len(self.path)}")
        object.__setattr__(self, "path", tuple(string(key) for key in self.path))

    def matches(self, metadata: Mapping[str, Any], id: str) -> bool:  # noqa: A002
        value: Any = metadata if self.path else id
        for key in self.path:
            if not isinstance(value, Mapping) or key not in value:
                return self._test_missing()
            value = value[key]
        return self._test(value)

    @abstractmethod
    def _test(self, value: Any) -> bool:
        """Evaluate the leaf on the value its field has."""

    def _test_missing(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class Compare(_Leaf):
    """``field op value``, with op one of ``== != < <= > >=``; ``!=`` is exactly not ``==``.

    Examples
    --------
    >>> Compare(("author", "name"), "==", "Ada").matches({"author": {"name": "Ada"}}, id="a")
    True
    """

    op: str
    value: Scalar

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.op not in _COMPARE:
            raise FilterError(f"expected one of {' '.join(_COMPARE)}, found {brief(self.op)}")
        object.__setattr__(self, "value", scalar(self.value))
        if self.op not in ("==", "!=") and kind(self.value) not in ("text", "number"):
            raise FilterError(f"{self.op!r} needs a number or a string, found {literal(self.value)}")

    def _test(self, value: Any) -> bool:
        if kind(value) != kind(self.value):
            return self.op == "!="
        return _COMPARE[self.op](comparable(value), self.value)

    def _test_missing(self) -> bool:
        return self.op == "!="

    def __str__(self) -> str:
        if self.value is True and self.op == "==":
            return path_text(self.path)
        return f"{path_text(self.path)} {self.op} {literal(self.value)}"


@dataclass(frozen=True, eq=False)
class In(_Leaf):
    """``field in [value, ...]``: equal to one of them.

    Examples
    --------
    >>> In(("tag",), ("a", "b")).matches({"tag": "b"}, id="1")
    True
    """

    values: tuple[Scalar, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.values, str) or not isinstance(self.values, Iterable):
            raise FilterError(f"'in' needs a list of values, found {brief(self.values)}")
        object.__setattr__(self, "values", tuple(scalar(value) for value in self.values))

    def _test(self, value: Any) -> bool:
        return any(_same(value, wanted) for wanted in self.values)

    def __str__(self) -> str:
        return self._text("in")

    def _text(self, word: str) -> str:
        return f"{path_text(self.path)} {word} [{', '.join(map(literal, self.values))}]"


@dataclass(frozen=True, eq=False)
class Contains(_Leaf):
    """``field contains value``: the field is an array and one of its items equals the value.

    Examples
    --------
    >>> Contains(("tags",), "x").matches({"tags": ["x", "y"]}, id="1")
    True
    """

    value: Scalar

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "value", scalar(self.value))

    def _test(self, value: Any) -> bool:
        return isinstance(value, list | tuple) and any(_same(item, self.value) for item in value)

    def __str__(self) -> str:
        return f"{path_text(self.path)} contains {literal(self.value)}"


@dataclass(frozen=True, eq=False)
class StartsWith(_Leaf):
    """``field startswith "text"``: the field is a string that begins with the text.

    Examples
    --------
    >>> StartsWith(("url",), "https:").matches({"url": "https://a.example"}, id="1")
    True
    """

    prefix: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.prefix, str):
            raise FilterError(f"'startswith' needs a string, found {brief(self.prefix)}")
        object.__setattr__(self, "prefix", string(self.prefix))

    def _test(self, value: Any) -> bool:
        return isinstance(value, str) and value.startswith(self.prefix)

    def __str__(self) -> str:
        return f"{path_text(self.path)} startswith {literal(self.prefix)}"


@dataclass(frozen=True, eq=False)
class Exists(_Leaf):
    """``field exists``: the key is there, whatever its value, null included.

    Examples
    --------
    >>> Exists(("year",)).matches({"year": None}, id="1")
    True
    """

    def _test(self, value: Any) -> bool:  # noqa: ARG002
        return True

    def __str__(self) -> str:
        return f"{path_text(self.path)} exists"


@dataclass(frozen=True, eq=False)
class Not(Filter):
    """``not filter``.

    Examples
    --------
    >>> print(Not(In(("tag",), ("a",))), "|", Not(Exists(("year",))))
    tag not in ["a"] | year missing
    """

    term: Filter

    def __post_init__(self) -> None:
        _measure(self, (self.term,))

    def matches(self, metadata: Mapping[str, Any], id: str) -> bool:  # noqa: A002
        return not self.term.matches(metadata, id)

    def __str__(self) -> str:
        if isinstance(self.term, In):
            return self.term._text("not in")
        if isinstance(self.term, Exists):
            return f"{path_text(self.term.path)} missing"
        return f"not {_operand(self.term)}"


@dataclass(frozen=True, eq=False)
class _Group(Filter):
    """Two or more filters under one word; groups of the same word are flattened, since the word is associative."""

    word: ClassVar[str]
    filters: tuple[Filter, ...]

    def __post_init__(self) -> None:
        flat: list[Filter] = []
        for term in self.filters:
            flat.extend(term.filters if isinstance(term, _Group) and type(term) is type(self) else (term,))
        if len(flat) < 2:
            raise FilterError(f"{type(self).__name__} needs at least two filters, found {len(flat)}")
        object.__setattr__(self, "filters", tuple(flat))
        _measure(self, self.filters)

    def __str__(self) -> str:
        return f" {self.word} ".join([_operand(term) for term in self.filters])


@dataclass(frozen=True, eq=False)
class And(_Group):
    """All of the filters.

    Examples
    --------
    >>> print(And((Exists(("a",)), Exists(("b",)))))
    a exists and b exists
    """

    word = "and"

    def matches(self, metadata: Mapping[str, Any], id: str) -> bool:  # noqa: A002
        return all(term.matches(metadata, id) for term in self.filters)


@dataclass(frozen=True, eq=False)
class Or(_Group):
    """Any of the filters.

    Examples
    --------
    >>> print(Or((Exists(("a",)), And((Exists(("b",)), Exists(("c",)))))))
    a exists or (b exists and c exists)
    """

    word = "or"

    def matches(self, metadata: Mapping[str, Any], id: str) -> bool:  # noqa: A002
        return any(term.matches(metadata, id) for term in self.filters)


def _operand(term: Filter) -> str:
    return f"({term})" if isinstance(term, _Group) else str(term)


def _same(value: Any, wanted: Scalar) -> bool:
    return kind(value) == kind(wanted) and bool(comparable(value) == wanted)


def _measure(node: Filter, children: tuple[Filter, ...]) -> None:
    """Set height and terms of a node, within the limits; so no walk of a filter can recurse too deep."""
    for child in children:
        if not isinstance(child, Filter):
            raise FilterError(f"expected a filter, found {brief(child)}")
    height = 1 + max(child.height for child in children)
    terms = sum(child.terms for child in children)
    if height > MAX_NESTING:
        raise FilterError(f"expected at most {MAX_NESTING} levels of and, or, not; found {height}")
    if terms > MAX_TERMS:
        raise FilterError(f"expected at most {MAX_TERMS} conditions, found {terms} ('in [...]' counts as one)")
    object.__setattr__(node, "height", height)
    object.__setattr__(node, "terms", terms)
