"""``weft adapt``: the alignment that suits an index, from a few judged queries."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli.opening import IndexPath, Json, Model
from weft.errors import DataError
from weft.explain.printable import json_line

if TYPE_CHECKING:
    from weft.evaluation.adaptation import Choice

QueriesOption = Annotated[
    Path | None, typer.Option("--queries", metavar="FILE", help="Queries: .jsonl, or .tsv (id, query).")
]
QrelsOption = Annotated[
    Path | None, typer.Option("--qrels", metavar="FILE", help="Relevance judgements in TREC's or BEIR's form.")
]


class Rule(StrEnum):
    """How an alignment is chosen."""

    CAREFUL = "careful"
    PAPER = "paper"


def adapt(
    index: IndexPath,
    examples: Annotated[
        Path | None,
        typer.Argument(
            metavar="EXAMPLES",
            help="Lines of: query, relevant document's id and optionally a grade, separated by tabs.",
        ),
    ] = None,
    alignment: Annotated[
        list[str] | None,
        typer.Option(
            "--alignment",
            "-a",
            metavar="ALIGNMENT",
            help="An alignment to compare; may be repeated; by default the paper's.",
        ),
    ] = None,
    rule: Annotated[
        Rule, typer.Option(help="careful: change only on clear evidence; paper: take the best on the examples.")
    ] = Rule.CAREFUL,
    certainty: Annotated[
        float | None, typer.Option(help="How certain it must be that a change helps; default 0.95.")
    ] = None,
    candidates: Annotated[int, typer.Option(min=10, help="Documents to re-rank for each query.")] = 100,
    queries: QueriesOption = None,
    qrels: QrelsOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be chosen, and change nothing.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Go back to the model's own alignment.")] = False,
    as_json: Json = False,
    model: Model = None,
) -> None:
    """Choose INDEX's alignment from a few judged queries; eight are a start.

    No document is encoded again: the best documents of each query are ranked under each alignment. The choice becomes
    the default of searches without --alignment. Without clear evidence nothing changes, unless --rule paper takes the
    best one anyway.
    """
    if rule is Rule.PAPER and certainty is not None:
        raise DataError("--certainty is for --rule careful: the paper's rule takes the best on the examples")
    from weft.text_index import TextIndex

    with TextIndex.open(index, model=model) as opened:
        if reset:
            if examples is not None or queries is not None or qrels is not None:
                raise DataError("--reset takes no examples")
            opened.remember_alignment(None)
            typer.echo(f"weft: {index} uses {opened.index.alignment} again", err=True)
            return
        from weft.evaluation.adaptation import CERTAINTY, alignments_to_compare, best_on_examples, choose
        from weft.evaluation.indexes import Parents, score_examples

        texts, judged = _examples(examples, queries, qrels)
        judged = Parents(opened.index).known(judged, "the examples")
        names = [name for name in texts if name in judged]
        if not names:
            raise DataError("no query has a judgement")
        tokens = opened.encoder.encode_query([texts[name] for name in names])
        wanted = alignment or alignments_to_compare(tokens.salience is not None)
        measured = score_examples(opened.index, tokens, names, judged, wanted, candidates=candidates)
        if rule is Rule.PAPER:
            choice = best_on_examples(measured, opened.index.alignment)
        else:
            choice = choose(measured, opened.index.alignment, certainty=CERTAINTY if certainty is None else certainty)
        if choice.changed and not dry_run:
            opened.remember_alignment(choice.alignment)
    if as_json:
        stored = choice.changed and not dry_run
        row = {"schema": "weft.adapt/1", **asdict(choice), "changed": choice.changed, "stored": stored}
        typer.echo(json_line(row))
        return
    _print(choice)
    if choice.changed:
        typer.echo("weft: dry run, nothing stored" if dry_run else f"weft: stored in {index}", err=True)


def _examples(
    examples: Path | None, queries: Path | None, qrels: Path | None
) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    from weft.evaluation.indexes import read_examples
    from weft.evaluation.runs import read_qrels
    from weft.sources.queries import read_query_file

    if examples is not None and queries is None and qrels is None:
        return read_examples(examples)
    if examples is None and queries is not None and qrels is not None:
        return {query.id: query.text for query in read_query_file(queries)}, read_qrels(qrels)
    raise DataError("give a file of EXAMPLES, or --queries FILE with --qrels FILE")


def _print(choice: Choice) -> None:
    width = max(len(option.alignment) for option in choice.options) + 2
    careful = choice.rule == "careful"
    heading = f"  {'alignment':{width}} nDCG@10   {'expected gain   certainty' if careful else 'difference'}"
    typer.echo(typer.style(heading, dim=True))
    for option in choice.options:
        mark = "→" if option.alignment == choice.alignment else " "
        line = f"{mark} {option.alignment:{width}} {option.score:7.3f}"
        if option.alignment == choice.current:
            line += "   in use"
        elif careful:
            line += f"   {100 * option.gain:+9.1f} pts   {option.certainty:8.0%}"
        else:
            line += f"   {100 * option.gain:+6.1f} pts"
        typer.echo(line)
    typer.echo(choice.reason)
