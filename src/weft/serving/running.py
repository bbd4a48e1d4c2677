"""Running a server: sockets, signals, logs."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from weft.errors import DataError, InvalidParameterError, WeftError, missing_extra
from weft.text_index import TextIndex

try:
    import uvicorn
except ImportError as error:
    raise missing_extra("uvicorn", "serve", "weft serve") from error

from weft.serving.api import NAME, AccessFormatter, Server
from weft.serving.protocol import protocol

CONNECTIONS = 2048
DRAIN_SECONDS = 30


def named(paths: list[Path]) -> dict[str, Path]:
    """Return the indexes by the stem of their folders; refuse two of one name.

    Examples
    --------
    >>> named([Path("data/notes.weft")])["notes"].name
    'notes.weft'
    """
    found: dict[str, Path] = {}
    for path in paths:
        stem = path.resolve().name.removesuffix(".weft")
        if not NAME.fullmatch(stem):
            raise DataError(f"{path.name} has no name for an address: use letters, digits, '.', '_' and '-'")
        if stem in found:
            raise DataError(f"two indexes are called {stem}: serve one of them, or rename its folder")
        found[stem] = path
    return found


def open_indexes(paths: Mapping[str, Path], model: str | None = None) -> dict[str, TextIndex]:
    """Open the indexes, all or none."""
    opened: dict[str, TextIndex] = {}
    try:
        for name, path in paths.items():
            opened[name] = TextIndex.open(path, model=model)
    except BaseException:
        for texts in opened.values():
            texts.close()
        raise
    return opened


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or say in one line why it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(CONNECTIONS)
    except OSError as error:
        made.close()
        raise WeftError(f"cannot listen on {host} port {port}: {error.strerror}; choose another with --port") from None
    return made


def check_exposed(host: str, keys: object) -> None:
    """Refuse to be reached by other machines without keys."""
    if keys is None and not is_loopback(host):
        raise InvalidParameterError(f"{host} can be reached by others: give --keys FILE, or serve on 127.0.0.1")


def run(server: Server, listener: socket.socket, *, ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C; then answer what was begun, write what waits, and close the indexes."""
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
    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"

    if ready is not None:
        server.announce = lambda: ready(address)

    class Calm(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            self._captured_signals.clear()  # it was asked to stop and did: that is no failure

    Calm(config).run(sockets=[listener])


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
