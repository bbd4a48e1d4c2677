"""``weft generative train / index / search``: retrievers that decode identifiers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.answers import (
    QueryFile,
    Tag,
    Top,
    Trec,
    Tsv,
    check_one_format,
    console,
    json_result,
    print_results,
    print_run,
    readable,
)
from weft.cli.opening import Json, stdin_of_texts
from weft.cli.recipes import find_recipe
from weft.errors import DataError, missing_extra
from weft.explain.printable import json_line

if TYPE_CHECKING:
    from weft.explain.snippet import Fragment
    from weft.generative.answers import DecodedRanking
    from weft.generative.retriever import Retriever
    from weft.sources.find import Skipped
    from weft.types import Document, Ranking

generative = typer.Typer(
    name="generative",
    help="Retrieval by decoding identifiers: SEAL, DSI, PAWA, GENRE, NP-decoding.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_AT_ONCE = 64
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, …; by default an accelerator if there is one.", show_default=False)
]
Threads = Annotated[int | None, typer.Option(min=1, help="Processors to use.")]


@generative.command()
def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A TOML file, or a name such as seal-small.")],
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE.KEY=VALUE", help="Changes to the recipe.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Check everything without training.")] = False,
    data: Annotated[str | None, typer.Option(help="What {data} in the recipe stands for.", envvar="WEFT_DATA")] = None,
    models: Annotated[
        str | None, typer.Option(help="What {models} in the recipe stands for.", envvar="WEFT_MODELS")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over; an existing checkpoint is ignored.")] = False,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Train the model of RECIPE; an interrupted run resumes from its last checkpoint."""
    from weft.generative.recipes import read_recipe

    folders = {name: folder for name, folder in (("data", data), ("models", models)) if folder is not None}
    wanted = read_recipe(find_recipe(recipe, "generative"), changes or (), folders)
    begin_torch("training", threads)
    from weft.generative import run

    embed = _embed(wanted.identifiers.embedding) if wanted.identifiers.method == "dsi" else None
    if check:
        typer.echo("\n".join(run.check(wanted, embed)))
    else:
        typer.echo(run.train(wanted, resume=not fresh, embed=embed, device=device))


@generative.command()
def index(
    paths: Annotated[list[str], typer.Argument(help="Files and folders; - reads stdin.", metavar="PATH")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The index, a new folder.")],
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="FOLDER", help="A model that weft generative trained.")
    ],
    form: Annotated[str, typer.Option(help="The corpus index of SEAL: suffix (fast) or fm (small).")] = "suffix",
) -> None:
    """Index the documents under PATH for decoding with MODEL."""
    from weft.sources.files import read_sources
    from weft.sources.find import STDIN, Selection, find
    from weft.sources.records import Fields

    skipped: list[Skipped] = []
    found = find(paths, Selection(), skipped.append)
    begin_torch("generative retrieval")
    from weft.generative.model import GenerativeModel
    from weft.generative.store import GenerativeIndex

    opened = GenerativeModel.load(model)
    stdin = stdin_of_texts() if any(file.name == STDIN for file in found) else None
    sources = read_sources(found, Fields(), skipped.append, stdin=stdin)
    with GenerativeIndex.create(
        output, _documents(sources), opened, reference=os.path.abspath(model), form=form
    ) as made:
        for reason in skipped[:10]:
            typer.echo(f"weft: skipped {reason}", err=True)
        typer.echo(f"{output}: {len(made):,} documents, {made.method}")


@generative.command()
def search(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="The index: a folder made by weft generative index.")],
    query: Annotated[str | None, typer.Argument(metavar="QUERY", help="What to look for.")] = None,
    k: Top = 10,
    beams: Annotated[int, typer.Option(min=1, help="Hypotheses kept while decoding.")] = 15,
    scoring: Annotated[
        str | None,
        typer.Option(
            help="SEAL's scoring: log-odds (default; against the frequency in the corpus) or lm (the model alone).",
        ),
    ] = None,
    queries: QueryFile = None,
    json_: Json = False,
    tsv: Tsv = False,
    trec: Trec = False,
    tag: Tag = "weft",
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="FOLDER", help="The model; by default the one of the index.")
    ] = None,
    device: Device = None,
    precision: Annotated[
        str, typer.Option(help="fp32; bf16 for half the memory; int8 for a fast decoder on a CPU.")
    ] = "fp32",
    threads: Threads = None,
) -> None:
    """Search INDEX by decoding identifiers of documents; one query, or a file of them."""
    from weft.sources.queries import Query, read_query_file

    check_one_format(json_=json_, tsv=tsv, trec=trec)
    if (query is None) == (queries is None):
        raise DataError("give one query, or --queries FILE (- for stdin)")
    asked = [Query("1", readable(query, "query"))] if query is not None else []
    if queries is not None:
        asked = read_query_file(queries, sys.stdin)
    begin_torch("generative retrieval", threads)
    from weft.generative.retriever import Retriever

    with Retriever.open(index, model, device=device, precision=precision) as retriever:
        for start in range(0, len(asked), _AT_ONCE):
            part = asked[start : start + _AT_ONCE]
            rankings = retriever.search([one.text for one in part], k, beams=beams, scoring=scoring)
            for one, ranking in zip(part, rankings, strict=True):
                if tsv or trec:
                    print_run(ranking, one.id, tag if trec else None)
                elif json_:
                    typer.echo(_as_json(retriever, ranking, one))
                else:
                    out = console()
                    if queries is not None:
                        out.print(f"{one.id}  {one.text}", style="bold underline")
                    shown = [(result, *_shown(retriever, ranking, rank)) for rank, result in enumerate(ranking)]
                    print_results(shown, out)
                    if queries is not None:
                        out.print()


def begin_torch(purpose: str, threads: int | None = None) -> None:
    """Import what is heavy, and keep it quiet."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import torch

        from weft.generative.checkpoints import quiet_transformers
    except ImportError as error:
        raise missing_extra(error.name or "torch", "generative", purpose) from error
    quiet_transformers()
    if threads is not None:
        torch.set_num_threads(threads)


def _embed(name: str) -> Callable[[Sequence[str]], Any] | None:
    """Return document vectors by an encoder: the mean of its token vectors."""
    if name == "lsa":
        return None
    import numpy as np

    from weft.encoders import Encoder
    from weft.encoders.loading import BUNDLED

    encoder = Encoder.load(None if name == BUNDLED.name else name)

    def embed(texts: Sequence[str]) -> Any:
        return np.stack([vectors.mean(axis=0) for vectors in encoder.encode_document(list(texts))])

    return embed


def _documents(sources: Iterator[Any]) -> Iterator[Document]:
    for source in sources:
        yield source.read()


def _shown(retriever: Retriever, ranking: Ranking, rank: int) -> tuple[Document, list[Fragment]]:
    from weft.explain.snippet import Fragment

    document = retriever.get(ranking.ids[rank])
    assert document is not None
    pieces = [Fragment(text, strength) for text, strength in retriever.passage(ranking, rank)]
    return document, pieces


def _as_json(retriever: Retriever, ranking: DecodedRanking, asked: Any) -> str:
    results = [
        json_result(rank, result, *_shown(retriever, ranking, rank - 1))
        | {"said": [{"text": one.text, "score": one.score} for one in ranking.said[rank - 1]]}
        for rank, result in enumerate(ranking, 1)
    ]
    row = {
        "schema": "weft.generative.search/1",
        "query_id": asked.id,
        "query": asked.text,
        "method": retriever.index.method,
        "results": results,
    }
    return json_line(row)
