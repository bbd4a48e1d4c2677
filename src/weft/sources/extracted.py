"""`Extracted`: the text of a file, and where its pages and sections begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self


@dataclass(frozen=True)
class Extracted:
    """The text of a file. Places are counted in characters of the text."""

    text: str
    title: str = ""
    page_starts: tuple[int, ...] = ()
    """Where its pages begin, if it has pages."""
    headings: tuple[tuple[int, str], ...] = ()
    """Where its sections begin, and what they are called."""
    first_line: int | None = None
    """The line of the file on which the text begins, if its lines are those of the file."""
    cuts: tuple[int, ...] = ()
    """Where it is best split: functions and classes of code."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What the file says about itself: author, date, tags."""

    def as_json(self) -> dict[str, Any]:
        """Return what JSON can hold, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Undo `as_json`.

        Examples
        --------
        >>> made = Extracted("# A", "A", headings=((0, "A"),))
        >>> Extracted.from_json(made.as_json()) == made
        True
        """
        headings = tuple((int(start), str(title)) for start, title in value["headings"])
        return cls(
            **{
                **value,
                "headings": headings,
                "page_starts": tuple(value["page_starts"]),
                "cuts": tuple(value["cuts"]),
            }
        )


class Builder:
    """Joins parts of a text and notes where pages and sections begin."""

    def __init__(self, between: str = "\n\n") -> None:
        self._parts: list[str] = []
        self._between = between
        self._length = 0
        self.headings: list[tuple[int, str]] = []

    def add(self, part: str, heading: bool = False) -> int:
        """Add a part, unless it is blank; return where it begins."""
        start = self._length + (len(self._between) if self._parts else 0)
        if part.strip():
            if heading:
                self.headings.append((start, one_line(part)))
            self._parts.append(part)
            self._length = start + len(part)
        return start

    @property
    def text(self) -> str:
        """All parts."""
        return self._between.join(self._parts)


def clean_text(text: str) -> str:
    """Replace lone surrogates, which some parsers let through and no file can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def unix_lines(text: str) -> str:
    """Return the text with every line ended by a line feed."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def tidy(text: str) -> str:
    r"""Strip lines, and leave at most one blank line between two.

    Examples
    --------
    >>> tidy(" a  \n\n\n\n b ")
    'a\n\nb'
    """
    kept: list[str] = []
    for line in unix_lines(text).split("\n"):
        stripped = line.strip(" \t\xa0")
        if stripped or (kept and kept[-1]):
            kept.append(stripped)
    return clean_text("\n".join(kept)).strip()


def one_line(text: Any, longest: int = 300) -> str:
    """Return a title as one line of a sensible length; "" for None."""
    return clean_text(" ".join(str(text or "")[: 4 * longest].split()))[:longest]
