"""Requests to one server over kept connections, with as little work for each as possible.

A query makes one or two for each shard, and a general HTTP client costs half a millisecond of processor time for each.
Steps of searches go as frames over connections that are kept for them (`weft.serving.streams`), all else as HTTP.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import httptools

from weft.errors import WeftError, invalid
from weft.serving.parts import NUMBERS
from weft.serving.streams import ACCEPTED, ANSWER, IDLE_SECONDS, REQUEST

MOST_IDLE = 64
"""Connections that are kept for the next requests."""
MOST_STREAMS = 256
"""Steps that are under way at one server, those included that nobody waits for any more."""
CONNECT_SECONDS = 5.0
"""A machine that takes longer to accept a connection, or to acknowledge what it was sent, is given up."""
KEEP_SECONDS = IDLE_SECONDS - 15
"""A connection that was idle for longer is not used again: the server may be closing it."""
PACKED = "application/msgpack"
Made = TypeVar("Made", bound=asyncio.Protocol)


class UnreachableError(WeftError, ConnectionError):
    """A server does not answer: it is gone, or its connection broke."""


class Response(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.closed = False
        self.keep = True
        self._answer: asyncio.Future[Response] | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._chunks: list[bytes] = []
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:  # asyncio's or uvloop's
        self._transport = transport

    def send(self, data: bytes) -> asyncio.Future[Response]:
        self._answer = asyncio.get_running_loop().create_future()
        self._parser, self._chunks = httptools.HttpResponseParser(self), []
        self._transport.write(data)
        return self._answer

    def data_received(self, data: bytes) -> None:
        if self._parser is None:  # nothing was asked
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(UnreachableError(f"the answer is not HTTP: {error}"))
            self.close()

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        self.keep = self._parser.should_keep_alive()
        made = Response(self._parser.get_status_code(), b"".join(self._chunks))
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(made)
        self._parser = self._answer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._fail(UnreachableError(f"the connection broke: {exc or 'closed by the server'}"))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()


class _Stream(asyncio.Protocol):
    """A connection for steps of searches: see `weft.serving.streams`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._answer: asyncio.Future[Response] | None = None
        self._data = b""
        self._transport: Any = None
        self._accepted = False
        self.closed = False
        self.idle_since = 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._wire.streams += 1

    def write(self, data: bytes) -> asyncio.Future[Response]:
        """Send a request; its answer may be cancelled, then it is awaited here and dropped."""
        self._answer = answer = self._wire.loop.create_future()
        self._transport.write(data)
        return answer

    def data_received(self, data: bytes) -> None:
        self._data = data = self._data + data if self._data else data
        if self._answer is None:  # nothing was asked
            self.close()
        elif not self._accepted:
            if b"\r\n\r\n" in data:
                self._data, self._accepted = b"", data == ACCEPTED
                self._settle(Response(101 if self._accepted else 400, b""))
        elif len(data) >= ANSWER.size:
            size, status = ANSWER.unpack_from(data)
            if len(data) >= ANSWER.size + size:
                self._data = b""
                self._settle(Response(status, data[ANSWER.size :]))
                self._wire.keep(self)

    def _settle(self, made: Response) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(made)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._wire.streams -= 1
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(UnreachableError(f"the connection broke: {exc or 'closed by the server'}"))

    def close(self) -> None:
        self.closed = True
        self._transport.abort()


class Wire:
    """Requests to one server.

    Parameters
    ----------
    url : str
        ``http://host:port`` or ``https://host:port``.
    key : str, optional
        Sent with every request.
    """

    loop: asyncio.AbstractEventLoop

    def __init__(self, url: str, key: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise invalid("url", "Wire", "http://host:port or https://host:port", url)
        self.url = url.rstrip("/")
        self._host, self._tls = parts.hostname, parts.scheme == "https"
        self._port = parts.port or (443 if self._tls else 80)
        lines = [f"host: {parts.netloc}"] + ([] if key is None else [f"authorization: Bearer {key}"])
        self._head = "".join(f"{line}\r\n" for line in lines).encode("latin-1")
        self._idle: deque[_Connection] = deque()
        self._streams: deque[_Stream] = deque()
        self.streams = 0
        self._frames = True
        self.keeps = True
        """Whether connections are kept."""

    async def request(self, method: str, path: str, body: bytes | None = None, kind: str = "") -> Response:
        """Send a request and return its answer; `UnreachableError` if none comes."""
        head = f"{method} {path} HTTP/1.1\r\n".encode("ascii") + self._head
        if body is not None:
            head += f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n".encode("ascii")
        data = head + b"\r\n" + (body or b"")
        while self._idle:
            kept = self._idle.pop()
            if not kept.closed:
                return await self._on(kept, data)
        return await self._on(await self._connect(_Connection), data)

    async def _on(self, connection: _Connection, data: bytes) -> Response:
        try:
            answer = await connection.send(data)
        except BaseException:  # cancelled ones, too: the answer would come to the next request
            connection.close()
            raise
        if self.keeps and connection.keep and not connection.closed and len(self._idle) < MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        return answer

    def step(self, path: str, name: str, body: bytes) -> asyncio.Future[Response]:
        """Send a step of a search, packed; `path` is the index's."""
        data = REQUEST.pack(len(body), NUMBERS[name]) + body
        if self._streams:
            oldest = time.monotonic() - KEEP_SECONDS
            while self._streams:
                kept = self._streams.pop()
                if not kept.closed and kept.idle_since > oldest:
                    return kept.write(data)
                kept.close()
        return asyncio.ensure_future(self._first_step(path, name, data, body))

    async def _first_step(self, path: str, name: str, data: bytes, body: bytes) -> Response:
        if self.streams >= MOST_STREAMS:
            raise UnreachableError(f"{self.url} owes {self.streams} answers")
        if self._frames:
            self.loop = asyncio.get_running_loop()
            stream = await self._connect(lambda: _Stream(self))
            try:
                head = f"GET {path}/parts HTTP/1.1\r\n".encode("ascii") + self._head
                accepted = await stream.write(head + b"connection: upgrade\r\nupgrade: weft-parts\r\n\r\n")
                if accepted.status == 101:
                    return await stream.write(data)
            except BaseException:
                stream.close()
                raise
            stream.close()
        # The server says why, or something between here and there speaks nothing but HTTP.
        found = await self.request("POST", f"{path}/parts/{name}", body, PACKED)
        self._frames = self._frames and found.status >= 300
        return found

    def keep(self, stream: _Stream) -> None:
        """Keep a connection for the next step."""
        if self.keeps and not stream.closed and len(self._streams) < MOST_IDLE:
            stream.idle_since = time.monotonic()
            self._streams.append(stream)
        else:
            stream.close()

    async def _connect(self, protocol: Callable[[], Made]) -> Made:
        tls = ssl.create_default_context() if self._tls else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                transport, connection = await loop.create_connection(protocol, self._host, self._port, ssl=tls)
        except (OSError, TimeoutError) as error:
            raise UnreachableError(f"{self.url} cannot be reached: {error or 'no answer'}") from None
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # otherwise a machine that lost its power is waited for for minutes
            milliseconds = int(1000 * CONNECT_SECONDS)
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        return connection

    def close(self) -> None:
        """Close the connections that are kept."""
        for kept in (self._idle, self._streams):
            while kept:
                kept.pop().close()
