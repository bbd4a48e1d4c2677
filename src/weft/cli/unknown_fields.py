"""A filter on a field that no document has is most often a typing error, so it is pointed out."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

import typer

from weft.cli.opening import shown
from weft.storage.filters import Exists, Filter, Not, parse
from weft.storage.filters.values import Path, path_text

if TYPE_CHECKING:
    from weft.text_index import TextIndex


def fields_of(filter: Filter) -> Iterator[Path]:  # noqa: A002
    """Yield the fields that a filter asks about.

    Examples
    --------
    >>> list(fields_of(parse("year > 2000 and not (a.b exists or @id == 'x')")))
    [('year',), ('a', 'b')]
    """
    terms = getattr(filter, "filters", (filter.term,) if isinstance(filter, Not) else ())
    for term in terms:
        yield from fields_of(term)
    path = getattr(filter, "path", ())
    if path:
        yield path


def warn_of_unknown_fields(texts: TextIndex, filter: str | None) -> None:  # noqa: A002
    """Say on stderr which fields of a filter no document has."""
    if filter is None:
        return
    for path in dict.fromkeys(fields_of(parse(filter))):
        if not texts.matching(Exists(path)):
            name = path_text(path)
            known = {found.removesuffix("[]") for found in texts.value_counts(most=1)}  # [] marks lists
            close = get_close_matches(name, sorted(known), n=1) if len(path) == 1 else []
            hint = f": did you mean {close[0]}?" if close else ""
            typer.echo(shown(f"weft: no document has the field {name}{hint}"), err=True)
