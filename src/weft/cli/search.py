"""``weft search``: one query, a file of queries, or a prompt."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.answers import (
    AlignmentOption,
    BetaQ,
    Context,
    Exact,
    FilterOption,
    Full,
    Fusion,
    FusionOption,
    Hybrid,
    Passages,
    QueryFile,
    Settings,
    Tag,
    Top,
    Trec,
    Tsv,
    Weights,
    as_json,
    check_one_format,
    console,
    print_answer,
    print_run,
    readable,
    warn_of_missing,
)
from weft.cli.opening import Damage, IndexPath, Json, Model, OnDamage, Queries, QueryEncoder, shown
from weft.cli.unknown_fields import warn_of_unknown_fields
from weft.errors import DataError, WeftError, counted
from weft.text_index import TextIndex

if TYPE_CHECKING:
    from weft.cli.grouping import Group
    from weft.search import Answer

_AT_ONCE = 64
_HELP = "A question, or the number of a result to see why it was found; :help, :quit."


def search(
    index: IndexPath,
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="What to look for; without it you get a prompt.")
    ] = None,
    k: Top = 10,
    alignment: AlignmentOption = None,
    filter_: FilterOption = None,
    exact: Exact = False,
    hybrid: Hybrid = False,
    fusion: FusionOption = Fusion.blend,
    weights: Weights = None,
    beta_q: BetaQ = None,
    passages: Passages = False,
    context: Context = 240,
    full: Full = False,
    queries: QueryFile = None,
    json_: Json = False,
    tsv: Tsv = False,
    trec: Trec = False,
    tag: Tag = "weft",
    model: Model = None,
    query_encoder: Queries = QueryEncoder.full,
    on_damage: OnDamage = Damage.stop,
) -> None:
    """Search INDEX, and show the words that counted.

    One query, a file of them, or a prompt.
    """
    from weft.sources.queries import Query, read_query_file

    check_one_format(json_=json_, tsv=tsv, trec=trec)
    if query is not None and queries is not None:
        raise DataError("a query and --queries: choose one")
    query = None if query is None else readable(query, "query")
    flat = passages or json_ or tsv or trec  # programs group for themselves
    width = None if full else context
    settings = Settings(k, alignment, filter_, exact, beta_q, fusion.value if hybrid else None, flat, width, weights)
    settings.check()
    with TextIndex.open(index, model=model, query=query_encoder.value, on_damage=on_damage.value) as opened:
        asked = [] if queries is None else read_query_file(queries, sys.stdin)
        if query is not None:
            asked = [Query("1", query)]
        interactive = not asked
        if interactive and not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise DataError("no query: give one, or --queries FILE (- for stdin)")
        if interactive:
            _prompt(opened, settings)
            return
        many = queries is not None
        for start in range(0, len(asked), _AT_ONCE):
            part = asked[start : start + _AT_ONCE]
            with opened.view():
                answers = opened.answers([q.text for q in part], settings.depth, **settings.searched)
                if start == 0:
                    warn_of_missing(answers[0].ranking.missing, index)
                if not any(len(answer.ranking) for answer in answers) and start == 0:
                    warn_of_unknown_fields(opened, filter_)
                for one, answer in zip(part, answers, strict=True):
                    if json_:
                        typer.echo(as_json(opened, answer, settings, one.id))
                    elif tsv or trec:
                        print_run(answer.ranking, one.id, tag if trec else None)
                    else:
                        out = console()
                        if many:
                            out.print(f"{shown(one.id)}  {shown(one.text)}", style="bold underline")
                        print_answer(opened, answer, settings, out)
                        if many:
                            out.print()


def _prompt(texts: TextIndex, settings: Settings) -> None:
    """Ask until the end of input; after an error, print one line and go on."""
    from contextlib import suppress

    from weft.explain.terminal import print_explanations

    with suppress(ImportError):
        import readline  # noqa: F401 (arrow keys and history for input())
    out = console()
    _ = texts.encoder  # loaded now, so that the first answer does not wait for it
    out.print(f"{counted(len(texts), 'document')}. {_HELP}", style="dim")
    with texts.index.view() as view:
        warn_of_missing(view.missing, texts.index.folder)
    last: Answer | None = None
    groups: list[Group] = []
    while True:
        try:
            text = input("? ").strip()
        except EOFError:
            out.print()
            return
        except KeyboardInterrupt:  # as in a shell: forget the line
            out.print()
            continue
        if text in (":quit", ":q", ":exit"):
            return
        if text in (":help", "?"):
            out.print(_HELP, style="dim")
            continue
        if not text:
            continue
        try:
            with texts.view():
                if text.isdecimal() and last is not None and 1 <= int(text) <= len(groups):
                    rank = int(text)
                    name = groups[rank - 1].passages[0].result.id
                    found = texts.explain_answer(last, name, rank, **settings.explained) if name in texts else None
                    if found is None:
                        raise DataError(f"{name} no longer has a score by token vectors")
                    print_explanations(out, [found])
                    continue
                (last,) = texts.answers([text], settings.depth, **settings.searched)
                groups = print_answer(texts, last, settings, out)
        except WeftError as error:
            typer.echo(f"weft: {shown(str(error))}", err=True)
