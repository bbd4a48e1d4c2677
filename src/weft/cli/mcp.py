"""``weft mcp``: indexes as tools for assistants."""

from __future__ import annotations

from typing import Annotated

import typer

from weft.cli.opening import Damage, Model, OnDamage
from weft.cli.serve import Host, Indexes, Port
from weft.errors import InvalidParameterError, missing_extra


def mcp(
    indexes: Indexes,
    http: Annotated[
        bool,
        typer.Option(
            "--http",
            help="Serve streamable HTTP at /mcp instead of stdin and stdout.",
        ),
    ] = False,
    host: Host = "127.0.0.1",
    port: Port = 8081,
    model: Model = None,
    on_damage: OnDamage = Damage.stop,
) -> None:
    """Let an assistant search INDEX: an MCP server with read-only tools.

    The assistant starts it; register it with: claude mcp add notes -- weft mcp notes.weft
    """
    from importlib.metadata import version

    from weft.serving.naming import address_of, is_loopback, listening, named, open_indexes

    try:
        from weft.serving.tools import mcp_server
    except ModuleNotFoundError as error:
        raise missing_extra(str(error.name), "mcp", "weft mcp") from None
    if http and not is_loopback(host):
        raise InvalidParameterError(f"{host} can be reached by others, and MCP over HTTP has no keys: use 127.0.0.1")
    opened = open_indexes(named(indexes), model, on_damage.value)
    try:
        for texts in opened.values():
            _ = texts.encoder  # loaded now, so that the first question does not wait for it
        server = mcp_server(opened, version("weft-search"))
        if http:
            import uvicorn

            listener = listening(host, port)
            app = server.streamable_http_app(stateless_http=True, json_response=True, host=host)
            typer.echo(f"weft: tools at {address_of(listener)}/mcp", err=True)
            uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none")).run(sockets=[listener])
        else:
            server.run("stdio")
    finally:
        for texts in opened.values():
            texts.close()
