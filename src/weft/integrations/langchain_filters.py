"""LangChain's filters as weft's: dictionaries, and the structured queries of its self-querying retrievers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.structured_query import Comparison, FilterDirective, Operation

from weft.errors import invalid
from weft.storage.filters import And, Compare, Contains, Exists, Filter, In, Not, Or, parse

_MEANS: dict[str, Callable[[tuple[str, ...], Any], Filter]] = {
    "eq": lambda path, value: Compare(path, "==", value),
    "ne": lambda path, value: Compare(path, "!=", value),
    "lt": lambda path, value: Compare(path, "<", value),
    "lte": lambda path, value: Compare(path, "<=", value),
    "gt": lambda path, value: Compare(path, ">", value),
    "gte": lambda path, value: Compare(path, ">=", value),
    "in": lambda path, value: In(path, tuple(value)),
    "nin": lambda path, value: Not(In(path, tuple(value))),
    "contain": lambda path, value: Contains(path, value),
    "contains": lambda path, value: Contains(path, value),
    "exists": lambda path, value: Exists(path) if value else Not(Exists(path)),
}


def as_filter(given: Any) -> Filter | None:
    """Return a filter of weft for whatever LangChain's users write.

    Parameters
    ----------
    given : None, str, Filter, dict or FilterDirective
        ``{"lang": "en", "year": {"$gte": 2020}}``, with ``$eq $ne $lt $lte $gt $gte $in $nin $contains $exists`` for a
        field and ``$and $or $not`` around; a `Comparison` or an `Operation` of ``langchain_core.structured_query``; or
        a filter as weft writes it. Dots in a field's name lead into nested metadata.

    Examples
    --------
    >>> print(as_filter({"lang": "en", "$or": [{"year": {"$gte": 2020}}, {"tags": {"$contains": "new"}}]}))
    lang == "en" and (year >= 2020 or tags contains "new")
    """
    if given is None or isinstance(given, (str, Filter)):
        return None if given is None else parse(given)
    if isinstance(given, FilterDirective):
        return _of_directive(given)
    if isinstance(given, Mapping):
        terms = [_of_entry(key, value) for key, value in given.items()]
        return _joined(And, terms) if terms else None
    raise invalid("filter", "search", "a dictionary, a structured query or a filter of weft", given)


def _joined(kind: type[And] | type[Or], terms: list[Filter]) -> Filter:
    return terms[0] if len(terms) == 1 else kind(tuple(terms))


def _of_entry(key: str, value: Any) -> Filter:
    if key in ("$and", "$or"):
        terms = [_inner(term) for term in value]
        return _joined(And if key == "$and" else Or, terms)
    if key == "$not":
        return Not(_inner(value))
    path = tuple(key.split("."))
    if not isinstance(value, Mapping):
        return _MEANS["eq"](path, value)
    return _joined(And, [_means(name)(path, wanted) for name, wanted in value.items()])


def _inner(given: Any) -> Filter:
    made = as_filter(given)
    if made is None:
        raise invalid("filter", "search", "without empty parts", given)
    return made


def _means(name: str) -> Callable[[tuple[str, ...], Any], Filter]:
    if not name.startswith("$") or name[1:] not in _MEANS:
        known = " ".join(f"${known}" for known in _MEANS)
        raise invalid("filter", "search", f"with operators among {known}", name)
    return _MEANS[name[1:]]


def _of_directive(given: FilterDirective) -> Filter:
    if isinstance(given, Comparison):
        name = str(given.comparator.value)
        if name not in _MEANS:
            raise invalid("filter", "search", f"with comparators among {', '.join(_MEANS)}", name)
        return _MEANS[name](tuple(given.attribute.split(".")), given.value)
    assert isinstance(given, Operation)
    terms = [_of_directive(term) for term in given.arguments]
    if given.operator.value == "not":
        return Not(terms[0])
    return _joined(And if given.operator.value == "and" else Or, terms)
