"""LlamaIndex's metadata filters as weft's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.vector_stores import FilterCondition, MetadataFilter, MetadataFilters

from weft.errors import invalid
from weft.storage.filters import And, Compare, Contains, Exists, Filter, In, Not, Or

_COMPARED = ("==", "!=", "<", "<=", ">", ">=")


def as_filter(given: MetadataFilters | None) -> Filter | None:
    """Return a filter of weft for LlamaIndex's; None where there is nothing to filter by.

    Examples
    --------
    >>> from llama_index.core.vector_stores import FilterOperator
    >>> old = MetadataFilter(key="year", value=2000, operator=FilterOperator.LT)
    >>> new = MetadataFilter(key="tags", value=["new", "hot"], operator=FilterOperator.ANY)
    >>> print(as_filter(MetadataFilters(filters=[old, new], condition=FilterCondition.OR)))
    year < 2000 or tags contains "new" or tags contains "hot"
    """
    if given is None or not given.filters:
        return None
    terms = [as_filter(term) if isinstance(term, MetadataFilters) else _of_one(term) for term in given.filters]
    filled = [term for term in terms if term is not None]
    if given.condition == FilterCondition.NOT:
        return Not(joined(Or, filled))
    return joined(Or if given.condition == FilterCondition.OR else And, filled)


def joined(kind: type[And] | type[Or], terms: Sequence[Filter]) -> Filter:
    """Return filters under one word; a single one as it is."""
    return terms[0] if len(terms) == 1 else kind(tuple(terms))


def _of_one(given: MetadataFilter) -> Filter:
    path, value, name = (given.key,), given.value, given.operator.value
    if name in _COMPARED:
        return Compare(path, name, value)  # type: ignore[arg-type]
    if name == "contains":
        return Contains(path, value)  # type: ignore[arg-type]
    if name == "is_empty":
        return Or((Not(Exists(path)), Compare(path, "==", None), Compare(path, "==", "")))
    values: list[Any] = value if isinstance(value, list) else [value]
    if name in ("in", "nin"):
        return In(path, tuple(values)) if name == "in" else Not(In(path, tuple(values)))
    if name in ("any", "all"):
        return joined(Or if name == "any" else And, [Contains(path, one) for one in values])
    raise invalid("operator", "a metadata filter", "one that asks for values, not for parts of texts", name)
