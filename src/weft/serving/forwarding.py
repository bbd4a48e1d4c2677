"""Requests that only one process of several may answer: the others forward them over a local socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from starlette.types import Scope

from weft.serving.problems import RefusedError

_ON = (b"host", b"authorization", b"content-type", b"origin")
_BACK = (b"retry-after", b"www-authenticate")


class Forwarded(NamedTuple):
    """What the other process answered."""

    status: int
    kind: bytes
    data: bytes
    headers: tuple[tuple[bytes, bytes], ...]


async def forward(socket: Path, scope: Scope, headers: Mapping[bytes, bytes], body: bytes, seconds: float) -> Forwarded:
    """Ask the process that listens at a socket, and return its answer."""
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    lines = [b"%s %s HTTP/1.1" % (scope["method"].encode(), target)]
    lines += [b"%s: %s" % (name, headers[name]) for name in _ON if name in headers]
    lines += [b"x-request-id: " + scope["weft.request_id"], b"content-length: %d" % len(body), b"connection: close"]
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_unix_connection(socket)
            try:
                writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
                await writer.drain()
                head, _, data = (await reader.read(-1)).partition(b"\r\n\r\n")
            finally:
                writer.close()
        first, *rest = head.split(b"\r\n")
        status = int(first.split()[1])
    except TimeoutError:
        raise RefusedError(504, "the request took too long and was given up") from None
    except (OSError, IndexError, ValueError):  # it is gone, and will be started again
        raise RefusedError(
            503, "the process that writes is starting; send again what was not answered", retry=1
        ) from None
    answered = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in rest)}
    back = tuple((name, answered[name]) for name in _BACK if name in answered)
    return Forwarded(status, answered.get(b"content-type", b"application/json"), data, back)
