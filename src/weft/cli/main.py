"""``weft VERB …``: results on stdout, messages on stderr.

Exit codes: 0 done, 1 a `WeftError` or a failing file (one line says what), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from weft.cli import (
    adapt,
    add,
    check,
    cluster,
    compact,
    delete,
    demo,
    evaluate,
    experiment,
    explain,
    export,
    generative,
    generative_explain,
    get,
    grep,
    index,
    info,
    mcp,
    repair,
    search,
    serve,
    train,
)
from weft.cli.opening import shown
from weft.errors import WeftError

app = typer.Typer(
    name="weft",
    help="Semantic search over your own documents that shows its work.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

# One line a verb.
app.command("demo")(demo.demo)
app.command("index")(index.index)
app.command("search")(search.search)
app.command("explain")(explain.explain)
app.command("grep")(grep.grep)
app.command("serve")(serve.serve)
app.command("mcp")(mcp.mcp)
app.command("add")(add.add)
app.command("delete")(delete.delete)
app.command("get")(get.get)
app.command("info")(info.info)
app.command("check")(check.check)
app.command("repair")(repair.repair)
app.command("compact")(compact.compact)
app.command("export")(export.export)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("adapt")(adapt.adapt)
app.command("experiment")(experiment.experiment)
generative.generative.command("explain")(generative_explain.explain)
app.add_typer(generative.generative)
app.add_typer(cluster.cluster)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"weft {version('weft-search')}")
        raise typer.Exit


@app.callback()
def _common(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print more on stderr.")] = False,
    version: Annotated[  # noqa: ARG001 (typer acts on it)
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    logging.basicConfig(format="weft: %(message)s", stream=sys.stderr, level=logging.WARNING)
    logging.getLogger("weft").setLevel(logging.INFO if verbose else logging.WARNING)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="weft")
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # the reader of our output has closed it: write nothing more, not at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except (WeftError, OSError) as error:
        typer.echo(f"weft: {shown(str(error)) or type(error).__name__}", err=True)
        return getattr(error, "exit_code", 1)
    if code == 130:
        typer.echo("weft: interrupted", err=True)
    return code
