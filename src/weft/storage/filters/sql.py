r"""Compiling filters to SQLite: every value and every JSON path is a bound parameter, the result is 0 or 1.

Three habits of SQLite's JSON functions shape the code.

- A path such as ``$."key"`` cannot name every key (a quote, an empty key), and before 3.45 it is compared with the key
  as escaped in the text. So only plain keys go through paths; for others `json_each`, which decodes keys, walks down.
- Before 3.45 a string is cut at its first ``\u0000``; since then a path finds keys that go on after one. So in the
  document and in what it is compared with, U+0000 and U+0001 become the pairs U+0001 U+0001 and U+0001 U+0002:
  distinct, in the same order, and free of U+0000.
- Its reader of decimals may be off by one unit in the last place. So float literals are read by that same reader.
"""

from __future__ import annotations

import json
import re
from typing import Final

from weft.errors import invalid
from weft.storage.filters.nodes import And, Compare, Contains, Exists, Filter, In, Not, Or, StartsWith
from weft.storage.filters.values import ID, Path, Scalar

Parameter = str | int | None
Sql = tuple[str, list[Parameter]]

_COLUMN: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", re.ASCII)
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER: Final = "('integer', 'real')"
# Beyond this height, operators that need no parentheses: SQLite's parser has a stack of 100 entries.
_DEEP: Final = 6


def compile_sql(filter: Filter, column: str = "metadata", id_column: str = "id") -> Sql:  # noqa: A002
    """Compile a filter; see `Filter.to_sql`.

    Examples
    --------
    >>> compile_sql(Exists(("year",)))[1]
    ['$."year"']
    """
    for name, value in (("column", column), ("id_column", id_column)):
        if not _COLUMN.fullmatch(value):
            raise invalid(name, "to_sql", "a column's name, with or without its table's", value)
    return _Compiler(column, id_column).operand(filter, negate=False)


class _Compiler:
    def __init__(self, column: str, id_column: str) -> None:
        self._id = id_column
        # The replacements act on JSON text; the first one makes sure that what follows a backslash is its escape.
        self._document = (
            rf"CASE WHEN instr({column}, '\u000') THEN replace(replace(replace({column}, '\\', '\u005c'),"
            rf" '\u0001', '\u0001\u0002'), '\u0000', '\u0001\u0001') ELSE {column} END"
        )

    def operand(self, node: Filter, negate: bool) -> Sql:
        """Compile to something that stands beside any operator."""
        sql = self._compile(node, negate)
        return sql if node.terms == 1 else _wrap(sql)

    def _compile(self, node: Filter, negate: bool) -> Sql:
        """Compile with every `not` pushed down to the leaves, so that it needs no parentheses on the way."""
        match node:
            case Not(term):
                return self._compile(term, not negate)
            case And(filters) | Or(filters):
                return self._group(filters, isinstance(node, And) is not negate, negate, node.height > _DEEP)
            case Compare(path, "!=", value):
                return self._compile(Compare(path, "==", value), not negate)
        sql, parameters = self._leaf(node)
        return (f"(NOT {sql})" if negate else sql), parameters

    def _group(self, filters: tuple[Filter, ...], conjunction: bool, negate: bool, deep: bool) -> Sql:
        if not deep:
            return _join(" AND " if conjunction else " OR ", [self.operand(term, negate) for term in filters])
        # & and | of 0 and 1 are equally strong and group to the left: with the deepest operand in front there is
        # nothing to put in parentheses, however deep. They do not skip what need not be evaluated; AND and OR do.
        first, *others = sorted(filters, key=lambda term: -term.height)
        start = self._compile(first, negate) if _without_not(first).height > _DEEP else self.operand(first, negate)
        return _join(" & " if conjunction else " | ", [start, *(self.operand(term, negate) for term in others)])

    def _leaf(self, node: Filter) -> Sql:
        match node:
            case Exists(path):
                return self._exists(path)
            case Compare(path, op, value):
                return self._test(path, (value,), op)
            case In(path, values):
                return self._test(path, values, "in")
            case StartsWith(path, prefix):
                return self._test(path, (prefix,), "startswith")
            case Contains(path, value):
                return self._contains(path, value)
        raise AssertionError(node)

    def _test(self, path: Path, values: tuple[Scalar, ...], op: str) -> Sql:
        if path == ID:
            texts = [value for value in values if isinstance(value, str)]
            return _wrap(_join(" AND ", [(f"{self._id} IS NOT NULL", []), _text(self._id, [], texts, op)]))
        if all(_PLAIN_KEY.fullmatch(key) for key in path):
            place: list[Parameter] = [_json_path(path)]
            type_ = f"ifnull(json_type({self._document}, ?), '')"  # '' for missing: no NULL may enter the logic
            return _condition((type_, place), (f"json_extract({self._document}, ?)", place), values, op)
        tables, where, keys = self._walk(path)
        last = f"j{len(path) - 1}"
        condition, parameters = _condition((f"{last}.type", []), (f"{last}.value", []), values, op)
        return f"EXISTS (SELECT 1 FROM {tables} WHERE {where} AND {condition})", keys + parameters

    def _exists(self, path: Path) -> Sql:
        if path == ID:
            return "(1)", []
        if all(_PLAIN_KEY.fullmatch(key) for key in path):
            return f"(json_type({self._document}, ?) IS NOT NULL)", [_json_path(path)]
        tables, where, keys = self._walk(path)
        return f"EXISTS (SELECT 1 FROM {tables} WHERE {where})", keys

    def _contains(self, path: Path, value: Scalar) -> Sql:
        if path == ID:
            return "(0)", []
        condition, parameters = _condition(("item.type", []), ("item.value", []), (value,), "==")
        if all(_PLAIN_KEY.fullmatch(key) for key in path):
            array = f"CASE WHEN json_type({self._document}, ?) = 'array' THEN json_extract({self._document}, ?) END"
            twice = [_json_path(path)] * 2
            return f"EXISTS (SELECT 1 FROM json_each({array}) item WHERE {condition})", [*twice, *parameters]
        tables, where, keys = self._walk(path)
        last = f"j{len(path) - 1}"
        tables += f" CROSS JOIN json_each(CASE WHEN {last}.type = 'array' THEN {last}.value END) item"
        return f"EXISTS (SELECT 1 FROM {tables} WHERE {where} AND {condition})", keys + parameters

    def _walk(self, path: Path) -> tuple[str, str, list[Parameter]]:
        """Join one json_each per key; j0, j1, ... are the entries on the way down."""
        tables = [f"json_each({self._document}) j0"]
        # CASE, because a string may look like an object, and to join it would walk into it.
        tables += [
            f"json_each(CASE WHEN j{i}.type = 'object' THEN j{i}.value END) j{i + 1}" for i in range(len(path) - 1)
        ]
        where = " AND ".join(f"j{i}.key = ?" for i in range(len(path)))
        return " CROSS JOIN ".join(tables), where, [_free_of_nul(key) for key in path]


def _condition(type_: Sql, value: Sql, wanted: tuple[Scalar, ...], op: str) -> Sql:
    """Test a JSON value, given by the SQL of its type and of itself, against the literals of each type apart.

    The value comes first, as it decides more often; where it is NULL the type is another, and NULL AND 0 is 0.
    """
    parts: list[Sql] = []
    texts = [_free_of_nul(item) for item in wanted if isinstance(item, str)]
    if texts:
        parts.append(_wrap(_join(" AND ", [_text(*value, texts, op), (f"{type_[0]} = 'text'", type_[1])])))
    numbers = [item for item in wanted if isinstance(item, int | float) and not isinstance(item, bool)]
    if numbers:
        parts.append(_wrap(_join(" AND ", [_number(*value, numbers, op), (f"{type_[0]} IN {_NUMBER}", type_[1])])))
    # Of these the type is the value: 'true', 'false' or 'null', as JSON writes it and as SQLite names it.
    names = {json.dumps(item) for item in wanted if item is None or isinstance(item, bool)}
    if names:
        quoted = ", ".join(f"'{name}'" for name in sorted(names))
        parts.append((f"({type_[0]} IN ({quoted}))", type_[1]))
    if not parts:
        return "(0)", []
    return _wrap(_join(" OR ", parts)) if len(parts) > 1 else parts[0]


def _text(sql: str, parameters: list[Parameter], texts: list[str], op: str) -> Sql:
    if not texts:
        return "0", []
    if op == "in":
        odd = [text for text in texts if "\0" in text]  # only ids: a JSON list would cut them
        listed: Parameter = json.dumps([text for text in texts if "\0" not in text], ensure_ascii=False)
        extra = "".join(" UNION ALL SELECT ?" for _ in odd)
        return f"{sql} IN (SELECT v.value FROM json_each(?) v{extra})", [*parameters, listed, *odd]
    if op == "startswith":
        # A range, which stops at no NUL, knows no wildcard and can use an index.
        end = _after(texts[0])
        if end is None:
            return f"{sql} >= ?", [*parameters, texts[0]]
        return f"{sql} >= ? AND {sql} < ?", [*parameters, texts[0], *parameters, end]
    return f"{sql} {_SQL_OP[op]} ?", [*parameters, texts[0]]


def _number(sql: str, parameters: list[Parameter], numbers: list[int | float], op: str) -> Sql:
    if op == "in":
        return f"{sql} IN (SELECT v.value FROM json_each(?) v)", [*parameters, json.dumps(numbers)]
    number = numbers[0]
    if isinstance(number, float):
        return f"{sql} {_SQL_OP[op]} json_extract(?, '$')", [*parameters, json.dumps(number)]
    return f"{sql} {_SQL_OP[op]} ?", [*parameters, number]


_SQL_OP: Final = {"==": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def _without_not(node: Filter) -> Filter:
    while isinstance(node, Not):
        node = node.term
    return node


def _json_path(path: Path) -> str:
    return "$" + "".join(f'."{key}"' for key in path)


def _free_of_nul(text: str) -> str:
    return text.replace("\1", "\1\2").replace("\0", "\1\1")


def _after(prefix: str) -> str | None:
    r"""Return the least text above every text with this prefix, or None when there is none.

    Examples
    --------
    >>> _after("ab"), _after("a\U0010ffff"), _after("\U0010ffff")
    ('ac', 'b', None)
    """
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    code = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if code == 0xD800 else code)  # surrogates are no characters


def _wrap(sql: Sql) -> Sql:
    return f"({sql[0]})", sql[1]


def _join(word: str, parts: list[Sql]) -> Sql:
    return word.join(text for text, _ in parts), [p for _, parameters in parts for p in parameters]
