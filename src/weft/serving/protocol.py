"""uvicorn's HTTP protocol with a deadline and a bound for headers, and connections that can be taken over.

A client that opens a connection and sends a header line now and then would otherwise hold it for ever.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weft.serving.streams import take

HEADER_BYTES = 65_536


class Protocol(HttpToolsProtocol):
    """`HttpToolsProtocol` that closes connections whose headers are late or too long."""

    header_seconds = 10.0
    _timer: asyncio.TimerHandle | None = None
    _received = 0
    _in_headers = True

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._received += len(data)
            before = self.cycle
            super().data_received(data)
            if self._in_headers and self.cycle is before and self._received > HEADER_BYTES:
                self._refuse(b"431 Request Header Fields Too Large")
            return
        super().data_received(data)

    def on_message_begin(self) -> None:
        if self._timer is None:  # another request on a connection that was kept
            self._expect_headers()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._in_headers = False
        if self.parser.should_upgrade():
            self.scope["weft.take"] = self._taken  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_headers, self._received = True, 0

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: a route may support it, and otherwise it is an ordinary request."""

    def _taken(self) -> socket.socket:
        return take(self.transport)

    def _expect_headers(self) -> None:
        self._timer = self.loop.call_later(self.header_seconds, self._late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()


def protocol(header_seconds: float) -> type[Protocol]:
    """Return the protocol with another deadline."""
    return type("Protocol", (Protocol,), {"header_seconds": header_seconds})
