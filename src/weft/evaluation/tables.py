"""Tables of numbers: as Markdown, CSV, HTML and JSON."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, TypeAlias

from weft.evaluation.significance import Interval

Cell: TypeAlias = str | int | float | Interval | None
"""A word, a count, a plain number, a mean with its interval, or nothing."""
FORMATS = ("md", "csv", "html", "json")


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns.

    Parameters
    ----------
    name : str
        For files: a name without ending.
    title : str
        One line.
    columns : sequence of str
    rows : sequence of sequences of cells
        Each as long as `columns`.
    note : str
        What a reader must know, below the table.
    best : str
        ``"rows"`` or ``"columns"`` makes the highest mean of each bold.

    Examples
    --------
    >>> table = Table("ndcg", "nDCG@10", ["collection", "top-1"], [["demo", Interval(0.5, 0.4, 0.62)]])
    >>> print(table.markdown())
    | collection | top-1 |
    | --- | ---: |
    | demo | 0.500 ±0.110 |
    >>> print(table.csv().strip())
    collection,top-1,top-1 low,top-1 high
    demo,0.5,0.4,0.62
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    best: str = ""
    wide: frozenset[str] = field(default_factory=frozenset)
    """Columns of running text, which may be broken into lines."""

    def __post_init__(self) -> None:
        assert self.best in ("", "rows", "columns"), self.best
        for row in self.rows:
            assert len(row) == len(self.columns), (self.name, len(row), len(self.columns))

    def markdown(self) -> str:
        """Return the table as GitHub and MkDocs read it."""
        bold = self._bold()
        lines = [
            "| " + " | ".join(_piped(name) for name in self.columns) + " |",
            "| " + " | ".join("---:" if number else "---" for number in self._numeric()) + " |",
        ]
        for r, row in enumerate(self.rows):
            cells = [_piped(shown(cell)) for cell in row]
            cells = [f"**{cell}**" if (r, c) in bold else cell for c, cell in enumerate(cells)]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def csv(self) -> str:
        """Return every number in full; a mean with an interval fills three columns."""
        spread = [any(isinstance(row[c], Interval) for row in self.rows) for c in range(len(self.columns))]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        head: list[str] = []
        for name, wide in zip(self.columns, spread, strict=True):
            head += [name, f"{name} low", f"{name} high"] if wide else [name]
        writer.writerow(head)
        for row in self.rows:
            cells: list[str | int | float] = []
            for cell, wide in zip(row, spread, strict=True):
                if isinstance(cell, Interval):
                    cells += [_rounded(cell.value), _rounded(cell.low), _rounded(cell.high)]
                else:
                    cells.append("" if cell is None else _rounded(cell))
                    cells += ["", ""] if wide else []
            writer.writerow(cells)
        return out.getvalue()

    def html(self) -> str:
        """Return a ``<table>``; intervals stand in full in the title of their cell."""
        bold = self._bold()
        kinds = [' class="n"' if number else "" for number in self._numeric()]
        kinds = [' class="t"' if name in self.wide else kind for name, kind in zip(self.columns, kinds, strict=True)]
        head = "".join(f"<th{kind}>{escape(name)}</th>" for name, kind in zip(self.columns, kinds, strict=True))
        body = []
        for r, row in enumerate(self.rows):
            cells = []
            for c, (cell, kind) in enumerate(zip(row, kinds, strict=True)):
                text = _html(cell)
                cells.append(f"<td{kind}{_title(cell)}>{f'<b>{text}</b>' if (r, c) in bold else text}</td>")
            body.append(f"<tr>{''.join(cells)}</tr>")
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"

    def data(self) -> dict[str, Any]:
        """Return what JSON can hold: rows as objects, intervals as objects with value, low and high; see `read`."""
        rows = []
        for row in self.rows:
            cells = [
                {key: _or_none(value) for key, value in cell._asdict().items()} if isinstance(cell, Interval) else cell
                for cell in row
            ]
            rows.append(dict(zip(self.columns, cells, strict=True)))
        said = {"name": self.name, "title": self.title, "note": self.note, "best": self.best}
        return {**said, "columns": list(self.columns), "rows": rows}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Table:
        """Return the table that `data` was made of, its columns of running text aside.

        Examples
        --------
        >>> table = Table("a", "A", ["collection", "top-1"], [["demo", Interval(0.5, 0.4, 0.62)]])
        >>> Table.read(table.data()) == table
        True
        """
        nan = float("nan")

        def cell(value: Any) -> Cell:
            if not isinstance(value, Mapping):
                known: Cell = value
                return known
            return Interval(*(nan if value[key] is None else value[key] for key in Interval._fields))

        rows = [[cell(value) for value in row.values()] for row in data["rows"]]
        return cls(data["name"], data["title"], data["columns"], rows, data["note"], data["best"])

    def _numeric(self) -> list[bool]:
        def number(column: int) -> bool:
            cells = [row[column] for row in self.rows if row[column] is not None]
            return bool(cells) and all(not isinstance(cell, str) for cell in cells)

        return [number(c) for c in range(len(self.columns))]

    def _bold(self) -> set[tuple[int, int]]:
        """Return where the highest means are; equals, as they are shown, all count."""
        found: set[tuple[int, int]] = set()
        if not self.best:
            return found
        means = {
            (r, c): round(cell.value, 3)
            for r, row in enumerate(self.rows)
            for c, cell in enumerate(row)
            if isinstance(cell, Interval)
        }
        axis = 0 if self.best == "rows" else 1
        for line in {place[axis] for place in means}:
            here = {place: value for place, value in means.items() if place[axis] == line}
            if len(here) > 1:
                found |= {place for place, value in here.items() if value == max(here.values())}
        return found


def shown(cell: Cell) -> str:
    """Return a cell as people read it: three decimals, and half the width of the interval.

    Examples
    --------
    >>> shown(Interval(0.71234, 0.68, 0.74)), shown(1234), shown(361881600.0), shown(None)
    ('0.712 ±0.030', '1,234', '3.62e+08', '–')
    """
    if cell is None:
        return "–"
    if isinstance(cell, Interval):
        return f"{cell.value:.3f}{_spread(cell)}"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    if cell == 0 or 0.0001 <= abs(cell) < 1000:
        return (
            f"{cell:.3f}" if 0.001 <= abs(cell) < 10 or cell == 0 else f"{cell:.4f}" if abs(cell) < 1 else f"{cell:.1f}"
        )
    return f"{cell:,.0f}" if 1000 <= abs(cell) < 1e6 else f"{cell:.2e}"


def half_width(interval: Interval) -> float:
    """Half the width of an interval: what stands after ±."""
    return (interval.high - interval.low) / 2


def page(tables: Sequence[Table], title: str) -> str:
    """Return a page of tables that needs nothing beside itself."""
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}"
        "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .6rem;border-bottom:1px solid #ddd;"
        "text-align:left}.n{text-align:right;font-variant-numeric:tabular-nums}small,p{color:#666}"
    )
    parts = []
    for table in tables:
        note = f"<p>{escape(table.note)}</p>" if table.note else ""
        parts.append(f"<h2>{escape(table.title)}</h2>{table.html()}{note}")
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{style}</style>'
    body = f"<h1>{escape(title)}</h1>{''.join(parts)}"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rounded(cell: str | int | float) -> str | int | float:
    if isinstance(cell, float):
        return float(f"{cell:.6g}") if math.isfinite(cell) else ""
    return cell


def _piped(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _spread(cell: Interval) -> str:
    width = half_width(cell)
    return f" ±{width:.3f}" if math.isfinite(width) else ""


def _html(cell: Cell) -> str:
    if isinstance(cell, Interval):
        return f"{cell.value:.3f}<small>{_spread(cell)}</small>"
    return escape(shown(cell))


def _title(cell: Cell) -> str:
    if not isinstance(cell, Interval) or not math.isfinite(half_width(cell)):
        return ""
    return f' title="{cell.value:.4f}, 95 % of resamples between {cell.low:.4f} and {cell.high:.4f}"'
