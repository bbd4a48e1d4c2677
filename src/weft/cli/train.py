"""``weft train``: a model from a recipe."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from weft.cli.recipes import find_recipe


def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A TOML file, or a name such as xtr-small.")],
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE.KEY=VALUE", help="Changes to the recipe.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Check everything without training.")] = False,
    data: Annotated[str | None, typer.Option(help="What {data} in the recipe stands for.", envvar="WEFT_DATA")] = None,
    models: Annotated[
        str | None, typer.Option(help="What {models} in the recipe stands for.", envvar="WEFT_MODELS")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Leave out a collection of the recipe, to evaluate on it; may be repeated."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over; existing checkpoints are deleted.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Processors to use.")] = None,
) -> None:
    """Train the model of RECIPE; an interrupted run resumes from its last checkpoint.

    A recipe with a [tower] table makes a query tower for a light model.
    """
    from weft.errors import missing_extra
    from weft.training.query_towers.recipes import build_tower_recipe, is_tower_recipe
    from weft.training.recipes import build_recipe
    from weft.training.tables import read_tables

    folders = {name: folder for name, folder in (("data", data), ("models", models)) if folder is not None}
    tables = read_tables(find_recipe(recipe), changes or (), folders)
    tower = build_tower_recipe(tables).without(without or ()) if is_tower_recipe(tables) else None
    wanted = None if tower is not None else build_recipe(tables).without(without or ())
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import torch

        from weft.training.query_towers.run import check_tower, train_tower
        from weft.training.run import check as check_run
        from weft.training.run import train as run
    except ImportError as error:
        raise missing_extra(error.name or "torch", "train", "training") from error
    if threads is not None:
        torch.set_num_threads(threads)
    if tower is not None:
        typer.echo("\n".join(check_tower(tower)) if check else train_tower(tower, resume=not fresh))
    elif wanted is not None:
        typer.echo("\n".join(check_run(wanted)) if check else run(wanted, resume=not fresh))
