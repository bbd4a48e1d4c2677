"""The keywords of a search, named once for every method that passes them on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypedDict

from weft.alignment import Alignment
from weft.errors import InvalidParameterError
from weft.storage.filters import Filter
from weft.types import TokenRetrieval


class EffortOptions(TypedDict, total=False):
    """What `Index.search` takes beside queries, k, the alignment and the filter."""

    exact: bool
    n_probe: int | None
    k_prime: int | None
    refine: int | None
    beta_q: float | None
    among: Collection[str] | None
    retrieval: TokenRetrieval | None
    hits: bool
    documents: bool
    threads: int


class VectorOptions(EffortOptions, total=False):
    """The same with the filter."""

    filter: Filter | str | None


class SearchOptions(VectorOptions, total=False):
    """What `Searcher.search` and `TextIndex.search` take beside queries and k."""

    alignment: Alignment | str | None
    hybrid: bool | str | None
    weights: tuple[float, float] | None


SEARCH_OPTIONS = SearchOptions.__optional_keys__


def refuse_unknown(options: Mapping[str, Any], known: Iterable[str], owner: str) -> None:
    """Raise for a keyword that a search does not know.

    Examples
    --------
    >>> refuse_unknown({"filtr": "year > 2000"}, SEARCH_OPTIONS, "search")
    Traceback (most recent call last):
    ...
    weft.errors.InvalidParameterError: search has no parameter 'filtr': did you mean 'filter'?
    """
    names = sorted(known)
    for name in options:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(names)}"
            raise InvalidParameterError(f"{owner} has no parameter {name!r}: {hint}")
