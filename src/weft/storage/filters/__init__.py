"""The metadata filter language: which documents may be answered, said once for Python, the CLI and HTTP.

``lang == "en" and year >= 2020 and tag in ["a", "b"] and not draft`` is read by `text` into the `nodes`, or built
from `fields`; the nodes evaluate themselves in Python, and `sql` compiles them for SQLite. Both evaluators agree:
the logic is two-valued, a missing field fails every comparison, and values of different JSON types are never equal
nor ordered.
"""

from weft.storage.filters.fields import Field, field
from weft.storage.filters.nodes import And, Compare, Contains, Exists, Filter, In, Not, Or, StartsWith
from weft.storage.filters.parser import parse
from weft.storage.filters.values import ID, FilterError, Path, Scalar

__all__ = [
    "ID",
    "And",
    "Compare",
    "Contains",
    "Exists",
    "Field",
    "Filter",
    "FilterError",
    "In",
    "Not",
    "Or",
    "Path",
    "Scalar",
    "StartsWith",
    "field",
    "parse",
]
