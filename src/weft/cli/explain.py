"""``weft explain``: why documents were found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.answers import AlignmentOption, BetaQ, Exact, FilterOption, Session, Settings, begin, console, readable
from weft.cli.opening import IndexPath, Json, Model, open_index
from weft.errors import DataError

if TYPE_CHECKING:
    from weft.explain import Explanation
    from weft.search import Index


def explain(
    index: IndexPath,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What was looked for.")],
    doc: Annotated[
        str | None, typer.Option("--doc", "-d", metavar="ID", help="A document; by default the best one.")
    ] = None,
    k: Annotated[int, typer.Option("-k", "--top", min=1, help="How many of the best documents.")] = 1,
    alignment: AlignmentOption = "sum-of-max",
    filter_: FilterOption = None,
    exact: Exact = False,
    beta_q: BetaQ = None,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of words to list in the terminal.")] = 12,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page that needs nothing else.")
    ] = None,
    json_: Json = False,
    model: Model = None,
) -> None:
    """Show why documents were found.

    Which words of QUERY met which words of a document, and what each pair added to its score.
    """
    from weft.explain import to_html, to_json
    from weft.explain.terminal import print_explanations

    query, doc = readable(query, "query"), None if doc is None else readable(doc, "document's id")
    settings = Settings(k, alignment, filter_, exact, beta_q, None)
    settings.check()
    with open_index(index) as opened, opened.view():
        wanted = None if doc is None else _documents(opened, doc, index)
        found = _explanations(begin(opened, model), query, settings, doc, wanted)
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


def _documents(opened: Index, doc: str, path: Path) -> list[str]:
    """Return the ids that ``--doc`` may mean: the document itself, or the passages that it was split into."""
    from weft.index.families import family

    ids = [doc] if doc in opened else [passage.id for passage in family(opened, doc)]
    if not ids:
        raise DataError(f"no document {doc!r} in {path}")
    return ids


def _explanations(
    session: Session, query: str, settings: Settings, doc: str | None, wanted: list[str] | None
) -> list[Explanation]:
    (answer,) = session.answers([query], settings)
    if wanted is None:
        ranked = enumerate(answer.ranking.ids, 1)
        made = [session.explained(answer, settings, name, rank) for rank, name in ranked]
        return [explanation for explanation in made if explanation is not None]
    ranks = {name: rank for rank, name in enumerate(answer.ranking.ids, 1)}
    found = [session.explained(answer, settings, name, ranks.get(name)) for name in wanted]
    scored = sorted((e for e in found if e is not None), key=lambda e: -e.score)
    if not scored:
        why = (
            "no query token retrieved one of its tokens" if settings.alignment.startswith("xtr") else "it has no tokens"
        )
        raise DataError(f"{doc!r} has no score under {settings.alignment}: {why}")
    return scored[: settings.k]
