"""Running a server: sockets, signals, logs."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

from weft.errors import InvalidParameterError, missing_extra
from weft.serving.naming import CONNECTIONS, address_of, is_loopback

try:
    import uvicorn
except ImportError as error:
    raise missing_extra("uvicorn", "serve", "weft serve") from error

from weft.serving.api import AccessFormatter, Server
from weft.serving.protocol import protocol

DRAIN_SECONDS = 30


def check_exposed(host: str, keys: object) -> None:
    """Refuse to serve other machines without keys."""
    if keys is None and not is_loopback(host):
        raise InvalidParameterError(f"{host} can be reached by others: give --keys FILE, or serve on 127.0.0.1")


def run(
    server: Server,
    listener: socket.socket,
    *,
    also: Sequence[socket.socket] = (),
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; then finish requests in progress, write what is queued, and close the indexes."""
    config = uvicorn.Config(
        server,
        http=protocol(server.limits.header_seconds),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    address = address_of(listener)

    if ready is not None:
        server.announce = lambda: ready(address)

    class Calm(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            self._captured_signals.clear()  # it was asked to stop and did: that is no failure

    calm = Calm(config)
    server.give_up = lambda: setattr(calm, "should_exit", True)
    calm.run(sockets=[listener, *also])
    if server.failure is not None:
        raise server.failure


def log_as_json(level: int = logging.INFO) -> None:
    """Write what the server says, requests included, as lines of JSON on stderr."""
    logger = logging.getLogger("weft.serving")
    handler = logging.StreamHandler()
    handler.setFormatter(AccessFormatter())
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False


def options(**given: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in given.items() if value is not None}
