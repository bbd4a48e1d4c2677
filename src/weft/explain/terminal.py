"""Explanations and snippets for the terminal, as rich's `Text`; the console chooses the colours (NO_COLOR, pipes)."""

from __future__ import annotations

from collections.abc import Iterable
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from weft.explain.explanation import Explanation
from weft.explain.printable import printable
from weft.explain.snippet import Fragment
from weft.explain.view import COLOURS, View, view
from weft.explain.words import Word, WordPair

_PALETTE = ("cyan", "magenta", "yellow", "green", "blue", "red", "bright_cyan", "bright_magenta")
assert len(_PALETTE) == COLOURS
_BAR = 12


def highlighted(found: Iterable[Fragment]) -> Text:
    """Return fragments as text, the stronger the bolder."""
    text = Text()
    for fragment in found:
        style = ""
        if fragment.strength > 0:
            style = (
                "bold black on cyan" if fragment.strength > 0.66 else "bold cyan" if fragment.strength > 0.2 else "cyan"
            )
        text.append(printable(fragment.text), style)
    return text


def render(explanation: Explanation, pairs: int = 12) -> RenderableType:
    """Return an explanation with its strongest pairs."""
    shown = view(explanation)
    body = Table.grid(padding=(0, 2))
    body.add_column(style="dim", no_wrap=True)
    body.add_column()
    body.add_row("query", _query(shown))
    body.add_row("document", _document(shown))
    return Group(_title(explanation), Padding(body, (1, 2)), Padding(_pairs(shown, pairs), (0, 2)))


def print_explanations(console: Console, explanations: Iterable[Explanation], pairs: int = 12) -> None:
    """Print explanations one after the other."""
    for explanation in explanations:
        console.print(render(explanation, pairs))
        console.print()


def to_text(explanation: Explanation, pairs: int = 12, width: int = 100) -> str:
    """Return an explanation as plain text, without colours."""
    console = Console(file=StringIO(), width=width, color_system=None, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(render(explanation, pairs))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _title(explanation: Explanation) -> Text:
    title = Text()
    if explanation.rank is not None:
        title.append(f"{explanation.rank}. ", "dim")
    title.append(printable(explanation.id), "bold")
    title.append(f"  {explanation.score:.4f}", "bold cyan")
    title.append(f"  {explanation.alignment}, Z = {explanation.z:g}", "dim")
    if explanation.blended:
        title.append(f"\nblended: {explanation.blended}", "dim")
    return title


def _colour(shown: View, query_word: int) -> str:
    number = shown.colour[query_word]
    return _PALETTE[number] if number < COLOURS else "default"


def _name(shown: View, number: int) -> str:
    times = shown.repeats.get(number)
    return printable(shown.query[number].text) + (f" ×{times}" if times else "")


def _query(shown: View) -> Text:
    text = Text()
    for number, word in enumerate(shown.query):
        faint = word.contribution <= 0
        text.append(_name(shown, number), "dim" if faint else f"bold {_colour(shown, number)}")
        if word.salience is not None:
            text.append(f" u={word.salience:.2f}", "dim")
        text.append("  ")
    text.rstrip()
    return text


def _document(shown: View) -> Text:
    source = shown.explanation.document
    text = Text()
    if not source.placed:
        # It is not known where tokens stand: show the tokens themselves.
        for number, word in enumerate(shown.document):
            text.append(printable(word.text), _style(shown, number, word))
            text.append(" ")
        text.rstrip()
        return text
    at = 0
    placed = sorted((word.span, number) for number, word in enumerate(shown.document) if word.span is not None)
    for span, number in placed:
        if span is None or span[0] < at:
            continue
        text.append(printable(source.text[at : span[0]]))
        text.append(printable(source.text[span[0] : span[1]]), _style(shown, number, shown.document[number]))
        at = span[1]
    text.append(printable(source.text[at:]))
    return text


def _style(shown: View, number: int, word: Word) -> str:
    if number not in shown.owner or word.contribution <= 0:
        return ""
    most = max(word.contribution for word in shown.document)
    colour, share = _colour(shown, shown.owner[number]), word.contribution / most
    return f"bold reverse {colour}" if share > 0.66 else f"bold {colour}" if share > 0.2 else f"underline {colour}"


def _pairs(shown: View, number: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for name in ("adds", "", "similarity", "weight"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for name in ("query", "document"):
        table.add_column(name, overflow="fold")
    most = max((pair.contribution for pair in shown.pairs), default=0.0)
    for pair in shown.pairs[:number]:
        table.add_row(*_row(shown, pair, most))
    rest = shown.pairs[number:]
    if rest:
        left = sum(pair.contribution for pair in rest)
        table.add_row(f"{left:.4f}", "", "", "", Text(f"{len(rest)} more pair{'s'[: len(rest) - 1]}", "dim"), "")
    table.add_row(Text(f"{shown.explanation.total:.4f}", "bold"), "", "", "", Text("the score", "bold"), "")
    return table


def _row(shown: View, pair: WordPair, most: float) -> list[RenderableType]:
    colour = _colour(shown, pair.query)
    bar = Text("━" * max(round(_BAR * pair.contribution / most), 1) if most > 0 < pair.contribution else "", colour)
    if pair.document is None:
        other = Text("imputed: not retrieved", "dim italic")
    else:
        other = Text(printable(shown.document[pair.document].text))
    return [
        f"{pair.contribution:.4f}",
        bar,
        f"{pair.similarity:.3f}",
        f"{pair.weight:.3g}",
        Text(_name(shown, pair.query), f"bold {colour}"),
        other,
    ]
