"""``weft experiment``: the papers' experiments, each into a folder with a report."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from weft.errors import DataError, WeftError

ENCODERS, GENERATIVE = "encoders", "generative models"


def experiment(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="The experiment, or all; --list names them.",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="The experiment's settings: key=value; see --list.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments and their settings.")] = False,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="The folder for results.",
        ),
    ] = Path("experiments"),
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Collections in BEIR's layout.", envvar="WEFT_DATA"),
    ] = None,
    suite: Annotated[str, typer.Option(help="A suite of collections: offline (all of --data), beir13, …")] = "offline",
    collections: Annotated[
        list[str] | None,
        typer.Option(
            "--collections",
            "-c",
            metavar="NAME",
            help="Only this collection: NAME or NAME:SPLIT; may be repeated.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="NAME", help="Leave out this collection; may be repeated.")
    ] = None,
    documents: Annotated[int, typer.Option(min=0, help="Documents per pool; 0 for whole collections.")] = 250,
    queries: Annotated[int, typer.Option(min=0, help="Queries per pool; 0 for all.")] = 100,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", metavar="NAME=FOLDER", help="A model; default weft-small."),
    ] = None,
    work: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where encodings and trained models are kept; default DIR/work.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small run on the demo collection.")] = False,
    length: Annotated[int, typer.Option(min=8, help="The maximum number of tokens of a document.")] = 256,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="The recipe for models to compare, where no --model is given; one for encoders and one for generative "
            "models may be given.",
        ),
    ] = None,
    models: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="What {models} in the recipe stands for.", envvar="WEFT_MODELS")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps, instead of the recipe's.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Processors to use.")] = 1,
    seed: Annotated[int, typer.Option(help="The seed of the pools.")] = 5,
) -> None:
    """Run an experiment of the papers: tables, plots, settings and report.html in DIR/NAME."""
    from weft.analysis.lab import Lab, Options
    from weft.analysis.run import find, listing, run, run_all

    if listed or name is None:
        if not listed:
            raise DataError("which experiment? weft experiment --list names them")
        for kind in listing():
            typer.echo(f"{kind.name:20} {kind.title} ({kind.reproduces})")
            for setting in kind.settings():
                typer.echo(f"{'':20}   {setting}")
        return
    folders = {key: str(value) for key, value in (("data", data), ("models", models)) if value is not None}
    recipes = _by_kind(recipe or (), folders)
    options = Options(
        work=work or output / "work",
        data=data,
        suite=suite,
        collections=tuple(collections or ()),
        without=tuple(without or ()),
        documents=documents,
        queries=queries,
        models=tuple(_named(text) for text in model or ()),
        quick=quick,
        length=length,
        recipe=recipes.get(ENCODERS),
        generative=recipes.get(GENERATIVE),
        folders=folders,
        steps=steps,
        threads=threads,
        seed=seed,
    )
    command = "weft " + shlex.join(sys.argv[1:])
    if name == "all":
        if changes:
            raise DataError("settings are an experiment's own: give them with its NAME, not with all")
        for _, page, _ in run_all(options, output, command=command):
            if page is not None:
                typer.echo(output / page)
        typer.echo(output / "index.html")
        return
    made = find(name).make(changes or (), quick=quick)
    typer.echo(run(made, Lab(options), output, command=command))


def _named(text: str) -> tuple[str, str]:
    # The name may be an alignment with options of its own, sum-of-max,z=query=FOLDER: the last = counts.
    name, equals, folder = text.rpartition("=")
    if not equals or not name or not folder:
        raise WeftError(f"--model is written NAME=FOLDER; got {text!r}")
    return name, folder


def _by_kind(names: Iterable[str], folders: Mapping[str, str]) -> dict[str, Path]:
    """Tell recipes of generative retrievers from the others: they say what identifiers are."""
    from weft.cli.recipes import find_recipe
    from weft.training.tables import read_tables

    found: dict[str, Path] = {}
    for name in names:
        path = find_recipe(name, "generative" if "generative" in Path(name).parts else "")
        kind = GENERATIVE if "identifiers" in read_tables(path, folders=folders) else ENCODERS
        if kind in found:
            raise DataError(f"{found[kind]} and {path} are both recipes for {kind}: give one of them")
        found[kind] = path
    return found
