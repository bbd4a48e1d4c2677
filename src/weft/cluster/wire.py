"""HTTP to one server over kept connections, with as little work per request as possible.

A general client costs half a millisecond of processor time a request, and a query makes one for each shard.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httptools

from weft.errors import WeftError, invalid

MOST_IDLE = 64
"""Connections that are kept for the next requests."""
CONNECT_SECONDS = 5.0


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


class Wire:
    """Requests to one server.

    Parameters
    ----------
    url : str
        ``http://host:port`` or ``https://host:port``.
    key : str, optional
        Sent with every request.
    """

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
        return await self._on(await self._connect(), data)

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

    async def _connect(self) -> _Connection:
        tls = ssl.create_default_context() if self._tls else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=tls)
        except (OSError, TimeoutError) as error:
            raise UnreachableError(f"{self.url} cannot be reached: {error or 'no answer'}") from None
        return connection

    def close(self) -> None:
        """Close the connections that are kept."""
        while self._idle:
            self._idle.pop().close()
