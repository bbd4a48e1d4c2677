"""``weft cluster VERB …``: one index on many machines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.cli.index import Scope
from weft.cli.opening import Model, shown
from weft.cli.serve import ENVIRONMENT, Host, KeysFile, Port, known_keys, server_room
from weft.errors import DataError, counted, missing_extra

cluster = typer.Typer(name="cluster", help="One index on many machines.", no_args_is_help=True, rich_markup_mode=None)
Name = Annotated[str, typer.Option("--name", help="What clients call the index.")]
IdScope = Annotated[
    Scope, typer.Option("--id-scope", help="Whether the ids of rows are unique per file or across all files.")
]
ShardKey = Annotated[
    str | None, typer.Option("--shard-key", envvar="WEFT_SHARD_KEY", help="The key for the servers of the shards.")
]


@cluster.command("replica")
def replica(
    store: Annotated[str, typer.Argument(metavar="STORE", help="A folder or s3://bucket/prefix.")],
    shard: Annotated[int, typer.Option("--shard", min=0, help="Which shard of the version.")],
    folder: Annotated[Path, typer.Option("--folder", help="Where this process keeps its copy.")],
    version: Annotated[int | None, typer.Option("--version", help="By default the newest.")] = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    keys: KeysFile = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Searches that run at the same time.")] = None,
    model: Model = None,
) -> None:
    """Serve one shard of a store; it follows the shard's log, and writes to it."""
    running = server_room()
    from weft.cluster.replica import open_replica
    from weft.cluster.replica import replica as served
    from weft.cluster.store import ShardStore
    from weft.serving.api import Server
    from weft.serving.naming import listening

    known = known_keys(keys)
    running.check_exposed(host, known)
    texts = open_replica(ShardStore(store), shard, folder, version=version, model=None if model is None else str(model))
    name = f"shard{shard}"
    options: dict[str, Any] = {"keys": known, "threads": threads, "page": False}
    server = Server({name: served(name, texts)}, **options)
    running.run(
        server,
        listening(host, port),
        ready=lambda address: typer.echo(
            f"weft: serving {name} ({counted(len(texts), 'passage')}) at {address}", err=True
        ),
    )


@cluster.command("route")
def route(
    shards: Annotated[
        list[str],
        typer.Option("--shard", metavar="URL[,URL…]", help="The servers of one shard; the first one writes."),
    ],
    host: Host = "127.0.0.1",
    port: Port = 8080,
    keys: KeysFile = None,
    name: Name = "index",
    shard_key: ShardKey = None,
    writable: Annotated[
        bool, typer.Option("--writable", help="Allow adding and deleting; the hash of its id tells a document's shard.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Queries that are encoded at the same time.")
    ] = None,
    model: Model = None,
) -> None:
    """Serve shards that are served elsewhere (weft serve) as one index."""
    running = server_room()
    from weft.cluster.routing import ShardAt, router
    from weft.serving.api import Server
    from weft.serving.naming import listening

    known = known_keys(keys)
    running.check_exposed(host, known)
    at = [ShardAt(tuple(url.strip() for url in given.split(",") if url.strip())) for given in shards]
    if not all(shard.urls for shard in at):
        raise DataError("--shard needs at least one address: --shard http://10.0.0.1:8080,http://10.0.0.2:8080")
    made = router(name, at, model=None if model is None else str(model), key=shard_key, writable=writable)
    options: dict[str, Any] = {"keys": known, "threads": threads}
    server = Server({name: made}, **options)
    running.run(
        server,
        listening(host, port),
        ready=lambda address: typer.echo(f"weft: serving {name} ({len(at)} shards) at {address}", err=True),
    )


Store = Annotated[str, typer.Argument(metavar="STORE", help="A folder or s3://bucket/prefix.")]
Address = Annotated[str, typer.Option("--address", envvar="RAY_ADDRESS", help="The address of the Ray cluster.")]


def _control() -> Any:
    from weft.cluster import nodes

    nodes.show_token()
    try:
        from weft.cluster import control
    except ModuleNotFoundError as error:
        raise missing_extra(str(error.name), "cluster", "weft cluster") from None
    return control


@cluster.command("up", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def up(
    context: typer.Context,
    host: Annotated[str, typer.Option("--host", help="This machine's address in the private network.")] = "127.0.0.1",
    join: Annotated[
        str | None, typer.Option("--join", metavar="HOST:PORT", help="The head; without it, be the head.")
    ] = None,
    port: Annotated[int, typer.Option("--port", "-p", min=1, max=65535, help="The head's port.")] = 6379,
    storage: Annotated[
        Path, typer.Option("--storage", help="Where a head keeps what it knows, so that it can be started again.")
    ] = Path("weft-head"),
) -> None:
    """Make this machine a node of a Ray cluster, until Ctrl-C or SIGTERM. Further options go to ray start."""
    _control()
    from weft.cluster import nodes

    nodes.up(host, join=join, port=port, storage=storage.absolute(), more=context.args)


@cluster.command("index")
def index(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE", help="Files and folders all nodes can read.")],
    store: Annotated[str, typer.Option("-o", "--output", metavar="STORE", help="A folder or s3://bucket/prefix.")],
    shards: Annotated[int, typer.Option("--shards", help="How many parts.")] = 4,
    bits: Annotated[int, typer.Option("--bits", help="Bits per coordinate: 8, 4 or 2.")] = 8,
    id_scope: IdScope = Scope.file,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Processes with a model.")] = None,
    gpus: Annotated[float, typer.Option("--gpus", min=0, help="GPUs of each, for models that run on torch.")] = 0.0,
    address: Address = "auto",
    model: Model = None,
) -> None:
    """Build an index on all nodes and publish it as the store's next version.

    Run it again to build only what is missing.
    """
    control = _control()

    def told(done: int, of: int, documents: int) -> None:
        typer.echo(f"weft: {done} of {of} shards, {counted(documents, 'passage')}", err=True)

    named = None if model is None else str(model)
    with control.joined(address):
        options = {"model": named, "bits": bits, "id_scope": id_scope.value, "workers": workers, "gpus": gpus}
        made = control.build(sources, store, shards, told=told, **options)
    typer.echo(f"version {made.version}: {counted(made.documents, 'passage')} in {len(made.shards)} shards")


@cluster.command("serve")
def serve(
    store: Store,
    shards: Annotated[
        int | None, typer.Option("--shards", min=1, help="How many the version must have; by default any number.")
    ] = None,
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="Replicas of each shard, on different nodes.")] = 2,
    version: Annotated[int | None, typer.Option("--version", help="By default the newest.")] = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    keys: KeysFile = None,
    name: Name = "index",
    folder: Annotated[str | None, typer.Option("--folder", help="Where nodes keep copies of shards.")] = None,
    address: Address = "auto",
    model: Model = None,
) -> None:
    """Serve a store on Ray: replicas of every shard, restarted when they die, behind a router."""
    control = _control()
    running = server_room()
    running.check_exposed(host, known_keys(keys))  # bad lines are told here, not by the router
    lines = os.environ.get(ENVIRONMENT, "").replace(";", "\n") or None if keys is None else keys.read_text()
    with control.joined(address):
        made = control.serve(
            name,
            store,
            replicas=replicas,
            shards=shards,
            version=version,
            host=host,
            port=port,
            keys=lines,
            model=None if model is None else str(model),
            folder=folder,
        )
    typer.echo(f"{name}: version {made.version}, {made.shards} shards, {made.replicas} replicas each, at {made.url}")


@cluster.command("roll")
def roll(
    name: Name = "index",
    version: Annotated[int | None, typer.Option("--version", help="By default the newest.")] = None,
    address: Address = "auto",
) -> None:
    """Switch to another version without failing a query; the old one answers until the new one is warm."""
    control = _control()
    with control.joined(address):
        made = control.roll(name, version)
    typer.echo(f"{name}: version {made.version} at {made.url}")


@cluster.command("compact")
def compact(
    store: Store,
    version: Annotated[int | None, typer.Option("--version", help="By default the newest.")] = None,
    scratch: Annotated[Path | None, typer.Option("--scratch", help="Where shards are worked on, one by one.")] = None,
) -> None:
    """Publish a version with all changes so far, so that replicas start fast. Writes go on meanwhile."""
    server_room()
    from weft.cluster.replica import compact as compacted
    from weft.cluster.store import ShardStore

    made = compacted(ShardStore(store), version=version, scratch=scratch)
    typer.echo(f"version {made.version}: {counted(made.documents, 'passage')} in {len(made.shards)} shards")


@cluster.command("status")
def status(name: Name = "index", address: Address = "auto") -> None:
    """Show which version is served, and where its replicas are."""
    control = _control()
    with control.joined(address):
        version, url, rows = control.status(name)
    typer.echo(f"{name}: version {version} at {url}")
    for row in rows:
        lag = "" if row.behind < 1 else f"\t{row.behind} changes behind"
        typer.echo(f"{row.actor}\t{row.state}\t{row.node}\t{row.url}{lag}")


@cluster.command("down")
def down(name: Name = "index", address: Address = "auto") -> None:
    """Stop a cluster's servers; the store stays as it is."""
    control = _control()
    with control.joined(address):
        stopped = control.down(name)
    typer.echo(f"{name}: {stopped} servers stopped")


Url = Annotated[str, typer.Option("--url", help="The router's address, or ray://HOST:PORT/NAME.")]
Key = Annotated[str | None, typer.Option("--key", envvar="WEFT_KEY", help="A key that the router knows.")]


@cluster.command("add")
def add(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE", help="Files and folders, as for weft index.")],
    id_scope: IdScope = Scope.file,
    url: Url = "http://127.0.0.1:8080",
    key: Key = None,
) -> None:
    """Add documents to a cluster; those with an id that is there are replaced."""
    from weft.cluster.connecting import connect
    from weft.sources.files import read_sources
    from weft.sources.find import Selection, find
    from weft.sources.records import Fields

    def skipped(one: object) -> None:
        typer.echo(f"weft: skipped {shown(str(one))}", err=True)

    found = find(sources, Selection(), skipped)
    with connect(url, key=key) as remote:
        done = remote.add(source.read() for source in read_sources(found, Fields(scope=id_scope.value), skipped))
    typer.echo(f"{done.added:,} added, {done.updated:,} updated, {done.unchanged:,} unchanged")


@cluster.command("delete")
def delete(
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Documents.")],
    url: Url = "http://127.0.0.1:8080",
    key: Key = None,
) -> None:
    """Remove documents from a cluster."""
    from weft.cluster.connecting import connect

    with connect(url, key=key) as remote:
        typer.echo(f"{counted(remote.delete(ids), 'passage')} removed")
