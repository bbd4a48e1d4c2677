"""Indexes by their names, and addresses that only this machine can reach."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from weft.errors import DataError, WeftError
from weft.text_index import TextIndex

CONNECTIONS = 2048
"""Clients that may be connected at a time."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Index names; everything else is refused before it is looked up."""


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


def open_indexes(
    paths: Mapping[str, Path], model: str | None = None, on_damage: str = "raise", query: str = "full"
) -> dict[str, TextIndex]:
    """Open the indexes, all or none."""
    opened: dict[str, TextIndex] = {}
    try:
        for name, path in paths.items():
            opened[name] = TextIndex.open(path, model=model, query=query, on_damage=on_damage)
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


def listening(host: str, port: int, *, shared: bool = False, listen: bool = True) -> socket.socket:
    """Return a socket that listens, or say in one line why it cannot; `shared` with other processes of ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((host, port))
        if listen:
            made.listen(CONNECTIONS)
    except OSError as error:
        made.close()
        raise WeftError(f"cannot listen on {host} port {port}: {error.strerror}; choose another with --port") from None
    return made


def address_of(listener: socket.socket) -> str:
    """Return where a socket can be reached."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
