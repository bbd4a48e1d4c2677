"""``weft serve``: indexes over HTTP, with a search page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.cli.opening import Damage, Model, OnDamage, Queries, QueryEncoder
from weft.errors import counted, missing_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.serving.keys import Keys
    from weft.text_index import TextIndex

Indexes = Annotated[
    list[Path],
    typer.Argument(
        metavar="INDEX",
        help="Indexes; each is served under its folder's name.",
    ),
]
Host = Annotated[str, typer.Option("--host", help="The address to listen on. Other machines need --keys.")]
Port = Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="The port; 0 picks a free one.")]
KeysFile = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        help="A file with lines of: name scope key; scopes are read, write and admin.",
    ),
]
ENVIRONMENT = "WEFT_KEYS"


def serve(
    indexes: Indexes,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    keys: KeysFile = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse writes.")] = False,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Serve the search page at /.")] = True,
    origins: Annotated[
        list[str] | None,
        typer.Option(
            "--cors",
            metavar="ORIGIN",
            help="A site whose pages may call the API; may be repeated.",
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Requests per second for each key; bursts may be twice that.")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--timeout", help="Seconds before a request times out.")] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Searches that run at the same time.")] = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=64, help="Processes that search; the first also writes.")
    ] = 1,
    access_log: Annotated[
        bool, typer.Option("--access-log/--no-access-log", help="A line of JSON on stderr for each request.")
    ] = False,
    model: Model = None,
    query_encoder: Queries = QueryEncoder.full,
    on_damage: OnDamage = Damage.stop,
) -> None:
    """Serve indexes: an HTTP API, and a search page for the browser.

    Without keys only this machine can reach it. Ctrl-C or SIGTERM stops it after the requests in progress.
    """
    from weft.serving.naming import named, open_indexes

    running, paths, query = server_room(), named(indexes), query_encoder.value
    options: dict[str, Any] = {"writable": not read_only, "page": page, "origins": tuple(origins or ())}
    limits = running.options(rate=None if rate is None else rate / workers, seconds=seconds)
    if workers == 1:
        opened = open_indexes(paths, model, on_damage.value, query)
        start(opened, host=host, port=port, keys=keys, limits=limits, threads=threads, access_log=access_log, **options)
        return
    from weft.encoders.backend import usable_cpus
    from weft.serving.limits import Limits
    from weft.serving.workers import Settings, supervise

    known = known_keys(keys)
    running.check_exposed(host, known)
    Limits(**limits)
    sizes = {}
    # Report mistakes once, before there are workers.
    for name, texts in open_indexes(paths, model, on_damage.value, query).items():
        sizes[name] = len(texts)
        texts.close()
    options["threads"] = threads or max(1, -(-usable_cpus() // workers))
    settings = Settings(paths, host, port, model, known, limits, access_log, options, on_damage.value, query)
    supervise(workers, settings, lambda address: tell(sizes, f"{address} with {workers} workers"))


def known_keys(file: Path | None) -> Keys | None:
    """Return the keys of a file, or of the environment."""
    from weft.serving.keys import Keys

    if file is not None:
        return Keys.read(file)
    lines = os.environ.get(ENVIRONMENT)
    return Keys.parse(lines.replace(";", "\n").splitlines(), ENVIRONMENT) if lines else None


def tell(sizes: Mapping[str, int], address: str) -> None:
    """Say what is served, and where."""
    names = ", ".join(f"{name} ({counted(size, 'passage')})" for name, size in sizes.items())
    typer.echo(f"weft: serving {names} at {address}", err=True)


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
    """Serve open indexes until told to stop; `also` is called with the address once searches are answered."""
    running = server_room()
    try:
        from weft.serving.api import Server
        from weft.serving.limits import Limits
        from weft.serving.naming import listening

        known = known_keys(keys)
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
        tell({name: len(texts) for name, texts in indexes.items()}, address)
        if also is not None:
            also(address)

    running.run(server, listener, ready=told)
