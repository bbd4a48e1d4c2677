"""A field to build filters from in Python."""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import invalid
from weft.storage.filters.nodes import Compare, Contains, Exists, In, Not, StartsWith
from weft.storage.filters.parser import parse_path
from weft.storage.filters.values import Path, Scalar


class Field:
    """A field to build filters from: ``Field(("odd.key", "name"))`` takes raw keys, `field` takes text.

    Examples
    --------
    >>> print((Field(("a.b",)) == 1) | Field(("tags",)).contains("x"))
    `a.b` == 1 or tags contains "x"
    """

    def __init__(self, path: Path) -> None:
        self.path = Exists(path).path  # which checks it

    def __eq__(self, value: Scalar) -> Compare:  # type: ignore[override]
        return Compare(self.path, "==", value)

    def __ne__(self, value: Scalar) -> Compare:  # type: ignore[override]
        return Compare(self.path, "!=", value)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, value: Scalar) -> Compare:
        return Compare(self.path, "<", value)

    def __le__(self, value: Scalar) -> Compare:
        return Compare(self.path, "<=", value)

    def __gt__(self, value: Scalar) -> Compare:
        return Compare(self.path, ">", value)

    def __ge__(self, value: Scalar) -> Compare:
        return Compare(self.path, ">=", value)

    def is_true(self) -> Compare:
        """Build what a bare field means in text: ``field == true``."""
        return Compare(self.path, "==", True)

    def in_(self, values: Iterable[Scalar]) -> In:
        """Build ``field in [...]``."""
        return In(self.path, values)  # type: ignore[arg-type]  # In makes the tuple

    def not_in(self, values: Iterable[Scalar]) -> Not:
        """Build ``field not in [...]``."""
        return Not(self.in_(values))

    def contains(self, value: Scalar) -> Contains:
        """Build ``field contains value``."""
        return Contains(self.path, value)

    def startswith(self, prefix: str) -> StartsWith:
        """Build ``field startswith "prefix"``."""
        return StartsWith(self.path, prefix)

    def exists(self) -> Exists:
        """Build ``field exists``."""
        return Exists(self.path)

    def missing(self) -> Not:
        """Build ``field missing``."""
        return Not(self.exists())


def field(text: str) -> Field:
    """Name a field as in the text form: ``year``, ``author.name``, ``@id``, or odd keys in backticks.

    Examples
    --------
    >>> print(field("author.`first name`") == "Ada")
    author.`first name` == "Ada"
    """
    if not isinstance(text, str):
        raise invalid("text", "field", "a string (Field takes raw keys)", text)
    return Field(parse_path(text))
