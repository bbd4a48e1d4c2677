"""What ``weft search`` and ``weft explain`` share: options and printing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.opening import shown
from weft.errors import DataError, counted
from weft.explain.printable import json_line
from weft.ingest import own_metadata

if TYPE_CHECKING:
    from rich.console import Console

    from weft.cli.grouping import Group, Shown
    from weft.explain import Explanation
    from weft.explain.snippet import Fragment
    from weft.search import Answer
    from weft.text_index import TextIndex
    from weft.types import Document, Ranking, Result

Top = Annotated[int, typer.Option("-k", "--top", min=1, help="The maximum number of documents.")]
AlignmentOption = Annotated[
    str | None,
    typer.Option(
        "--alignment",
        "-a",
        help="The alignment: sum-of-max, top-k:4, top-p:0.02, xtr, da:2, exact-match, …; by default the index's own.",
    ),
]
FilterOption = Annotated[
    str | None,
    typer.Option(
        "--filter", "-f", help="Only documents whose metadata match, as in 'year >= 2020 and lang == \"en\"'."
    ),
]
Exact = Annotated[
    bool, typer.Option("--exact", help="Score every document; the ranking is then certain, except under xtr.")
]
BetaQ = Annotated[
    float | None, typer.Option("--beta-q", help="Search with this share of the query's tokens, the most salient ones.")
]
Passages = Annotated[bool, typer.Option("--passages", help="List single passages instead of documents.")]
Context = Annotated[int, typer.Option("--context", min=20, help="Characters of each passage to show.")]
Full = Annotated[bool, typer.Option("--full", help="Show passages whole, with their lines.")]
QueryFile = Annotated[
    Path | None,
    typer.Option(
        "--queries",
        metavar="FILE",
        help="A file of queries: .jsonl, .tsv (id, query) or one per line.",
    ),
]
Tsv = Annotated[bool, typer.Option("--tsv", help="Print query id, document id, rank, score.")]
Trec = Annotated[bool, typer.Option("--trec", help="Print a TREC run.")]
Tag = Annotated[str, typer.Option(help="The run's name, for --trec.")]
PairsListed = Annotated[int, typer.Option(min=1, help="Pairs of words to list in the terminal.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained page.")]
Hybrid = Annotated[bool, typer.Option("--hybrid", help="Blend with BM25 over the texts.")]


class Fusion(StrEnum):
    """How ``--hybrid`` fuses."""

    blend = "blend"
    rrf = "rrf"
    scores = "scores"


FusionOption = Annotated[
    Fusion,
    typer.Option(
        "--fusion",
        help="How --hybrid combines: a blend, reciprocal ranks, or normalised scores.",
    ),
]


Weights = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--weights",
        metavar="VECTORS BM25",
        help="The weights of vectors and BM25 in --hybrid; 1 0.5 by default for a blend.",
    ),
]


@dataclass(frozen=True)
class Settings:
    """How to search, as the command line says."""

    k: int
    alignment: str | None
    filter: str | None
    exact: bool
    beta_q: float | None
    hybrid: str | None
    passages: bool = True
    """Show passages one by one, not by document."""
    width: int | None = 240
    """Characters of a passage to show; None: all."""
    weights: tuple[float, float] | None = None
    """Of the two sides of a hybrid search."""

    @property
    def depth(self) -> int:
        """How many passages to look for."""
        from weft.checks import MOST_COUNT  # it imports NumPy
        from weft.cli.grouping import DEPTH

        # A number that is too large is refused as the user wrote it.
        return self.k if self.passages else min(DEPTH * self.k, max(self.k, MOST_COUNT))

    @property
    def searched(self) -> dict[str, Any]:
        """Options of `TextIndex.answers` beside k."""
        return {"alignment": self.alignment, "hybrid": self.hybrid, "weights": self.weights, **self.explained}

    @property
    def explained(self) -> dict[str, Any]:
        """Options of `TextIndex.snippet` and `TextIndex.explain_answer`: those of the search, without the alignment."""
        return {"filter": self.filter, "exact": self.exact, "beta_q": self.beta_q}

    def check(self) -> None:
        """Refuse a wrong alignment or filter before a model is loaded."""
        from weft.alignment import Alignment
        from weft.search.hybrid import checked_weights
        from weft.storage.filters import parse

        if self.alignment is not None:
            Alignment.parse(self.alignment)
        if self.filter is not None:
            parse(self.filter)
        if self.weights is not None:
            checked_weights(self.weights, 2)
            if self.hybrid is None:
                raise DataError("--weights without --hybrid: there is only one side to weigh")


def readable(text: str, what: str) -> str:
    """Return a text that was typed, with bytes that are not UTF-8 replaced; refuse an empty one."""
    if not text.strip():
        raise DataError(f"the {what} is empty")
    return text.encode("utf-8", "replace").decode("utf-8")


def check_one_format(*, json_: bool, tsv: bool, trec: bool) -> None:
    """Refuse two formats at once."""
    if json_ + tsv + trec > 1:
        raise DataError("--json, --tsv and --trec: choose one")


def console() -> Console:
    """Return the console of stdout: colours and widths for people, plain text for pipes."""
    from rich.console import Console

    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 100)


def print_answer(texts: TextIndex, answer: Answer, settings: Settings, out: Console) -> list[Group]:
    """Print results for people: documents, scores, and the words that counted. Return what was printed."""
    from weft.cli.grouping import grouped, print_groups

    groups = grouped(_shown(texts, answer, settings), settings.k, not settings.passages)
    print_groups(groups, out)
    return groups


def _shown(texts: TextIndex, answer: Answer, settings: Settings) -> Iterator[Shown]:
    from weft.cli.grouping import Shown, is_code

    for result in answer.ranking:
        document = texts.index.get(result.id)
        assert document is not None
        show = partial(texts.snippet, answer, document, width=settings.width, **settings.explained)
        lines = partial(_lines, texts, answer, document, settings) if is_code(document) else None
        parts = answer.parts.get(result.id)
        named = {} if parts is None else {name: part for name, part in parts._asdict().items() if part}
        yield Shown(result, document, show, " + ".join(f"{part:.2f} {name}" for name, part in named.items()), lines)


def _lines(texts: TextIndex, answer: Answer, document: Document, settings: Settings) -> tuple[int, list[Fragment]]:
    from weft.explain.snippet import excerpt

    why = texts.explain_answer(answer, document.id, **settings.explained) if answer.behind(document.id) else None
    if why is None:  # BM25 alone found it
        return 0, texts.snippet(answer, document, width=settings.width, **settings.explained)
    return excerpt(why, settings.width)


def warn_of_missing(missing: int, index: Path) -> None:
    """Say on stderr how many documents could not be searched, whatever the format of the results."""
    if missing:
        typer.echo(
            f"weft: {counted(missing, 'passage')} could not be searched: that part of the index is damaged; "
            f"weft check {shown(str(index))} says where",
            err=True,
        )


def print_results(results: Sequence[tuple[Result, Document, Sequence[Fragment]]], out: Console) -> None:
    """Print results for people, each with the part of its text to show."""
    from weft.cli.grouping import Shown, grouped, print_groups

    shown = (Shown(result, document, partial(list, found)) for result, document, found in results)
    print_groups(grouped(shown, len(results), by_document=False), out)


def _retrieval(answer: Answer) -> dict[str, Any]:
    """How tokens were retrieved, under XTR."""
    found = answer.semantic[0].retrieval
    return {} if found is None else {"retrieval": {"k_prime": found.k_prime, "how": found.how}}


def as_json(texts: TextIndex, answer: Answer, settings: Settings, query_id: str) -> str:
    """Return one line of JSON for a query and its results."""
    found = enumerate(_shown(texts, answer, settings), 1)
    results = [json_result(rank, one.result, one.document, one.fragments()) for rank, one in found]
    for result in results:
        if result["id"] in answer.parts:
            result["parts"] = answer.parts[result["id"]]._asdict()
    row = {
        "schema": "weft.search/1",
        "query_id": query_id,
        "query": answer.query,
        "alignment": str(answer.alignment),
        "fusion": settings.hybrid,
        "certified": answer.ranking.certified,
        **_retrieval(answer),
        "missing": answer.ranking.missing,
        "results": results,
    }
    return json_line(row)


def json_result(rank: int, result: Result, document: Document, fragments: Sequence[Fragment]) -> dict[str, Any]:
    """Return one result as an object of JSON."""
    return {
        "rank": rank,
        "id": result.id,
        "score": result.score,
        "snippet": "".join(fragment.text for fragment in fragments),
        "text": document.text,
        "metadata": own_metadata(document),
    }


def print_run(ranking: Ranking, query_id: str, tag: str | None) -> None:
    """Print the lines of a run: TREC's with a tag, tab-separated without."""
    for rank, result in enumerate(ranking, 1):
        cells = [query_id, result.id, str(rank), f"{result.score:.6f}"]
        if tag is None:
            typer.echo("\t".join(shown(cell) for cell in cells))
            continue
        for cell in (query_id, result.id, tag):
            if len(cell.split()) != 1:
                raise DataError(f"{cell!r} has spaces, which a TREC run cannot hold: use --tsv or --json")
        typer.echo(shown(" ".join((query_id, "Q0", *cells[1:], tag))))


def show_explanations(found: Sequence[Explanation], html: Path | None, json_: bool, pairs: int) -> None:
    """Write a page, print JSON, or, where neither is asked for, print for people."""
    from weft.explain import to_html, to_json
    from weft.explain.terminal import print_explanations

    if html is not None:
        html.write_text(to_html(found), encoding="utf-8")
        typer.echo(f"wrote {html}", err=True)
    if json_:
        typer.echo(to_json(found), nl=False)
    elif html is None:
        out = console()
        print_explanations(out, found, pairs)
        if not found:
            out.print("nothing found", style="dim")
