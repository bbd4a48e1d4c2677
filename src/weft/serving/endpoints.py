"""From an HTTP request to a handler: key, rate, body, JSON, in this order; each can refuse before the next costs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.types import Receive, Scope, Send

from weft.serving.forwarding import forward
from weft.serving.keys import Key
from weft.serving.pool import Deadline
from weft.serving.problems import RefusedError

if TYPE_CHECKING:
    from weft.serving.api import Server

JSON = b"application/json"
LINES = (b"application/x-ndjson", b"application/jsonl")
PACKED = b"application/msgpack"
_encoder = msgspec.json.Encoder()
_packer = msgspec.msgpack.Encoder()


class GoneError(Exception):
    """The client went away before its request had arrived."""


@dataclass(frozen=True)
class Call:
    """One request, as a handler sees it."""

    server: Server
    path: Mapping[str, Any]
    query: bytes
    body: Any
    deadline: Deadline
    key: Key | None


Handler = Callable[[Call], Awaitable[Any]]


class Text:
    """An answer that is not JSON."""

    def __init__(self, data: bytes, kind: bytes) -> None:
        self.data, self.kind = data, kind


class Endpoint:
    """An ASGI application for one route and method.

    Parameters
    ----------
    server : Server
    handler : function of a Call, returning what is sent as JSON
    needs : str or None
        The scope that a key must have; None for everybody.
    body : type, optional
        What the body is read as; bytes for a handler that reads it itself.
    lines : bool
        Whether lines of JSON are taken too; the handler gets ``(bytes, is_lines)``.
    seconds : float, optional
        A deadline other than the server's.
    writer : bool
        Whether only the process that writes can answer.
    packed : bool
        Whether body and answer are msgpack and not JSON.
    """

    def __init__(
        self,
        server: Server,
        handler: Handler,
        needs: str | None,
        body: Any = None,
        *,
        lines: bool = False,
        seconds: float | None = None,
        writer: bool = False,
        packed: bool = False,
    ) -> None:
        self._server, self._handler, self._needs, self._lines = server, handler, needs, lines
        self._seconds = seconds or server.limits.seconds
        self._reads, self._writer, self._kind = body is not None, writer, PACKED if packed else JSON
        self._decoder: msgspec.json.Decoder[Any] | msgspec.msgpack.Decoder[Any] | None = None
        if self._reads and not lines:
            self._decoder = msgspec.msgpack.Decoder(body) if packed else msgspec.json.Decoder(body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server, headers = self._server, scope["weft.headers"]
        key = server.authorise(scope, self._needs)
        scope["weft.key"] = None if key is None else key.name
        if self._writer and server.writer is not None:
            data = await server.bodies.read(headers, receive)
            found = await forward(server.writer, scope, headers, data, self._seconds)
            await send_bytes(send, found.status, found.data, found.kind, found.headers)
            return
        deadline = Deadline(self._seconds)
        body: Any = None
        if self._reads:
            kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
            if kind != self._kind and not (self._lines and kind in LINES):
                name = "JSON" if self._kind == JSON else "msgpack"
                raise RefusedError(415, f"the body must be {name}: content-type {self._kind.decode()}")
            data = await server.bodies.read(headers, receive)
            body = (data, kind in LINES) if self._decoder is None else decoded(self._decoder, data)
        call = Call(server, scope.get("path_params", {}), scope.get("query_string", b""), body, deadline, key)
        answer = await self._handler(call)
        if isinstance(answer, Text):
            await send_bytes(send, 200, answer.data, answer.kind)
        elif self._kind == PACKED:
            await send_bytes(send, 200, _packer.encode(answer), PACKED)
        else:
            await send_json(send, 200, answer)


def decoded(decoder: msgspec.json.Decoder[Any] | msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    """Read a body; what cannot be read is 400, what has the wrong fields or types 422."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise RefusedError(422, f"the body is not as it should be: {error}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise RefusedError(400, f"the body cannot be read: {str(error)[:200]}") from None


async def send_json(send: Send, status: int, answer: Any, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    """Send an answer."""
    data = answer if isinstance(answer, bytes) else _encoder.encode(answer)
    kind = JSON if status < 400 else b"application/problem+json"
    await send_bytes(send, status, data, kind, headers)


async def send_bytes(
    send: Send, status: int, data: bytes, kind: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send bytes of a content type."""
    always = ((b"content-type", kind), (b"content-length", b"%d" % len(data)))
    await send({"type": "http.response.start", "status": status, "headers": [*always, *headers]})
    await send({"type": "http.response.body", "body": data})


class Bodies:
    """Reads bodies within bounds: each one's bytes and seconds, and the bytes of all together.

    Parameters
    ----------
    most : int
        Bytes of one body.
    seconds : float
        Until it must be here.
    together : int
        Bytes of all bodies that are being received or worked on at a time.
    """

    def __init__(self, most: int, seconds: float, together: int) -> None:
        self._most, self._seconds, self._together = most, seconds, together
        self._held = 0

    async def read(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """Return the whole body."""
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or int(length[:20]) > self._most):
            raise self._too_large()
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise GoneError
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    self._held += len(chunk)
                    if size > self._most:
                        raise self._too_large()
                    if self._held > self._together:
                        raise RefusedError(503, "the server is receiving too much at once", retry=1)
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        except TimeoutError:
            raise RefusedError(408, f"the body did not arrive within {self._seconds:g} seconds") from None
        finally:
            self._held -= size

    def _too_large(self) -> RefusedError:
        return RefusedError(413, f"the body has more than {self._most:,} bytes")
