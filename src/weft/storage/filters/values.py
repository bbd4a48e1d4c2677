"""What the filter language is made of: its values, paths, limits and error, shared by nodes, text and SQL."""

from __future__ import annotations

import json
import math
import re
from numbers import Integral
from typing import Any, Final

from weft.errors import WeftError

Scalar = str | int | float | bool | None
Path = tuple[str, ...]

ID: Final[Path] = ()  # the path of `@id`: no key of the metadata, so the document's own id
# SQLite refuses expressions deeper than 1,000 (a chain of n terms is n deep) and texts above 1 MB; the rest keeps every
# recursion of ours, and the parser stack of SQLite (100 entries), far from their ends.
MAX_TERMS: Final = 500
MAX_NESTING: Final = 100
MAX_KEYS: Final = 8
MAX_LENGTH: Final = 65_536

KEYWORDS: Final = frozenset(
    ("and", "or", "not", "in", "contains", "exists", "missing", "startswith", "true", "false", "null")
)
NAME: Final = re.compile(r"[^\W\d][\w-]*")  # a field name that needs no backticks


class FilterError(WeftError, ValueError):
    """A filter that cannot be read or built; one line with the place, what was found and what was expected.

    Parameters
    ----------
    problem : str
        What is wrong.
    position : int, optional
        Character of the text, counted from 1, where it is wrong; None for filters built in Python.
    """

    def __init__(self, problem: str, position: int | None = None) -> None:
        super().__init__(problem, position)
        self.problem = problem
        self.position = position

    def __str__(self) -> str:
        place = "" if self.position is None else f" at character {self.position}"
        return f"bad filter{place}: {self.problem}"


def kind(value: Any) -> str:
    """Return the type that decides whether two values can be compared; ints and floats are one."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "text"
    return "number" if isinstance(value, int | float) else "container"


def literal(value: Scalar) -> str:
    """Write a value as the language, and JSON, read it back."""
    return json.dumps(value, ensure_ascii=False)


def path_text(path: Path) -> str:
    """Write a path as the language reads it back."""
    if path == ID:
        return "@id"
    return ".".join(key if NAME.fullmatch(key) and key not in KEYWORDS else _backticks(key) for key in path)


def _backticks(key: str) -> str:
    return "`" + literal(key)[1:-1].replace("`", "\\`") + "`"


def comparable(value: Any) -> Any:
    """Return the number that SQLite reads: beyond 64 bits an integer is a float, beyond floats infinite."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return value


def scalar(value: object) -> Scalar:
    """Check a literal and strip subclasses (NumPy's floats, enums), which print in ways of their own."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return string(value)
    if isinstance(value, Integral):
        number = int(value)
        if not -(2**63) <= number < 2**63:
            raise FilterError(f"expected an integer of at most 64 bits, found {brief(number)}")
        return number
    if isinstance(value, float):
        if not math.isfinite(value):
            raise FilterError(f"expected a finite number, found {float(value)}")
        return float(value)
    raise FilterError(f"expected a string, number, boolean or null, found {brief(value)}")


def string(value: str) -> str:
    """Check text and strip subclasses; UTF-8, and so SQLite, cannot hold half a surrogate pair."""
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FilterError(f"expected Unicode text, found half a surrogate pair in {brief(text)}") from None
    return text


def brief(value: object) -> str:
    """Show a value in an error message, on one short line."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"one of {value.bit_length()} bits"  # Python refuses to print very long integers
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
