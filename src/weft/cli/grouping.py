"""Results as people read them: documents, each with its best passages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from weft.sources.kinds import CODE, kind_of
from weft.storage.families import parent_of

if TYPE_CHECKING:
    from rich.console import Console

    from weft.explain.snippet import Fragment
    from weft.types import Document, Result

PASSAGES = 3
"""The maximum number of passages shown of a document."""
DEPTH = 4
"""How many times more passages than documents are looked for: some documents have several of the best."""


class Shown(NamedTuple):
    """A passage that was found, and what to show of it."""

    result: Result
    document: Document
    fragments: Callable[[], Sequence[Fragment]]
    """Called for what is shown only: each takes an explanation."""
    note: str = ""
    """What its score is made of."""
    lines: Callable[[], tuple[int, Sequence[Fragment]]] | None = None
    """Of source code: the lines to show instead, and the character that they begin at."""


@dataclass
class Group:
    """A document with its best passages, the best first."""

    id: str
    title: str
    passages: list[Shown] = field(default_factory=list)

    @property
    def score(self) -> float:
        """The score of its best passage."""
        return self.passages[0].result.score


def grouped(found: Iterator[Shown], k: int, by_document: bool = True) -> list[Group]:
    """Put passages of one document together: at most k documents, in the order of their best passages."""
    groups: dict[str, Group] = {}
    for shown in found:
        name = (parent_of(shown.document) if by_document else None) or shown.result.id
        if name not in groups:
            if len(groups) == k:
                continue
            title = shown.document.metadata.get("title")
            groups[name] = Group(name, title if isinstance(title, str) else "")
        if len(groups[name].passages) < PASSAGES:
            groups[name].passages.append(shown)
    return list(groups.values())


def place(document: Document) -> str:
    """Say where in its file a passage is.

    Examples
    --------
    >>> from weft.types import Document
    >>> place(Document("a", "", {"page": 3, "line": 12, "heading": "Foxes"}))
    'page 3, line 12, Foxes'
    """
    known = document.metadata
    parts = [f"{key} {known[key]}" for key in ("page", "line") if isinstance(known.get(key), int)]
    heading = known.get("heading")
    return ", ".join([*parts, *([heading] if isinstance(heading, str) and heading else [])])


def is_code(document: Document) -> bool:
    """Tell whether a document is source code, which is shown line by line."""
    path = document.metadata.get("path")
    return isinstance(path, str) and (kind_of(path) or "").startswith(CODE)


def place_in_code(document: Document, start: int) -> str:
    r"""Say where a character of source code stands, in a form that editors and terminals open.

    Examples
    --------
    >>> from weft.types import Document
    >>> place_in_code(Document("a", "\ndef f():\n    pass", {"path": "a.py", "line": 12, "heading": "f"}), 10)
    'a.py:13: f'
    """
    known, text = document.metadata, document.text
    # The first line of a passage is the first that is not blank.
    first, since = (known["line"], len(text) - len(text.lstrip())) if isinstance(known.get("line"), int) else (1, 0)
    heading = known.get("heading")
    parts = [f"{known['path']}:{first + text.count(chr(10), since, start)}"]
    return ": ".join([*parts, *([heading] if isinstance(heading, str) and heading else [])])


def print_groups(groups: Sequence[Group], out: Console) -> None:
    """Print documents for people, each with the parts of its text that counted."""
    from rich.text import Text

    from weft.explain.printable import printable_line
    from weft.explain.terminal import highlighted

    if not groups:
        out.print(Text("nothing found", "dim"))
    for rank, group in enumerate(groups, 1):
        line = Text()
        line.append(f"{rank:>2}. ", "dim")
        line.append(printable_line(group.id), "bold")
        line.append(f"  {group.score:.4f}", "cyan")
        if group.passages[0].note:
            line.append(f" = {group.passages[0].note}", "dim")
        if group.title:
            line.append(f"  {printable_line(group.title)}", "dim")
        out.print(line, overflow="fold")
        for shown in group.passages:
            start, found = shown.lines() if shown.lines else (0, shown.fragments())
            where = place_in_code(shown.document, start) if shown.lines else place(shown.document)
            if where:
                out.print(Text(f"    {printable_line(where)}", "dim"), overflow="fold")
            if shown.document.text.strip():
                for part in highlighted(found).wrap(out, max(out.width - 4, 20), overflow="fold"):
                    part.rstrip()
                    out.print(Text("    ").append_text(part) if part else "")
