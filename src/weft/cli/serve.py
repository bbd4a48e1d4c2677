"""``weft serve``: indexes over HTTP, with a search page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.opening import Model
from weft.errors import missing_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.text_index import TextIndex

Indexes = Annotated[list[Path], typer.Argument(metavar="INDEX...", help="Indexes, named by the stem of their folder.")]
Host = Annotated[str, typer.Option("--host", help="Where to listen. Other machines can be let in only with --keys.")]
Port = Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0 chooses a free one.")]
KeysFile = Annotated[
    Path | None,
    typer.Option("--keys", metavar="FILE", help="Lines of: name scope key; the scope read, write or admin."),
]
ENVIRONMENT = "WEFT_KEYS"


def serve(
    indexes: Indexes,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    keys: KeysFile = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse to add and delete.")] = False,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Serve the search page at /.")] = True,
    origins: Annotated[
        list[str] | None, typer.Option("--cors", metavar="ORIGIN", help="A site whose pages may call the API.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Requests a second for each key, with bursts of twice as many.")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--timeout", help="Seconds until a request is given up.")] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Searches that run at a time.")] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log/--no-access-log", help="A line of JSON on stderr for each request.")
    ] = False,
    model: Model = None,
) -> None:
    """Serve indexes: an HTTP API, and a search page for the browser.

    Without keys only this machine can reach it. Ctrl-C or SIGTERM ends it: what was begun is answered first.
    """
    from weft.serving.naming import named, open_indexes

    running = server_room()
    start(
        open_indexes(named(indexes), model),
        host=host,
        port=port,
        keys=keys,
        writable=not read_only,
        page=page,
        origins=origins or (),
        limits=running.options(rate=rate, seconds=seconds),
        threads=threads,
        access_log=access_log,
    )


def server_room() -> Any:
    """Import what serving needs, or say how to install it."""
    try:
        from weft.serving import running
    except ModuleNotFoundError as error:
        raise missing_extra(str(error.name), "serve", "weft serve") from None
    return running


def start(
    indexes: Mapping[str, TextIndex],
    *,
    host: str,
    port: int,
    keys: Path | None,
    limits: Mapping[str, Any],
    access_log: bool = False,
    also: Callable[[str], object] | None = None,
    **options: Any,
) -> None:
    """Serve open indexes until the end; `also` is called with the address once searches are answered."""
    running = server_room()
    try:
        from weft.serving.api import Server
        from weft.serving.keys import Keys
        from weft.serving.limits import Limits
        from weft.serving.naming import listening

        known = Keys.read(keys) if keys is not None else None
        if known is None and os.environ.get(ENVIRONMENT):
            known = Keys.parse(os.environ[ENVIRONMENT].replace(";", "\n").splitlines(), ENVIRONMENT)
        running.check_exposed(host, known)
        bounds = Limits(**limits)
        listener = listening(host, port)
    except BaseException:
        for texts in indexes.values():
            texts.close()
        raise
    if access_log:
        running.log_as_json()
    server = Server(indexes, keys=known, limits=bounds, **options)

    def told(address: str) -> None:
        names = ", ".join(f"{name} ({len(texts):,} passages)" for name, texts in indexes.items())
        typer.echo(f"weft: serving {names} at {address}", err=True)
        if also is not None:
            also(address)

    running.run(server, listener, ready=told)
