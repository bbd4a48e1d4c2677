"""Steps of searches on connections of their own: frames, each answered by the thread that reads it.

A router asks every shard for every query. Beside a search of a millisecond or two, an HTTP request through the event
loop costs as much again: three threads are woken and much code is run. Here one thread waits for a connection, and it
does all of the work.

    GET /v1/indexes/NAME/parts        with ``upgrade: weft-parts``; key, index and readiness are checked as ever
    101                               and from then on frames:
    request   length (4 bytes), step (1): see `weft.serving.parts.NUMBERS`; msgpack
    answer    length (4 bytes), status (2); msgpack, or a problem as JSON

Numbers are little-endian. A connection carries one request at a time.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.types import Receive, Scope, Send

from weft.serving import parts
from weft.serving.endpoints import decoded
from weft.serving.keys import Key
from weft.serving.pool import Deadline
from weft.serving.problems import RefusedError, as_problem
from weft.serving.telemetry import span

if TYPE_CHECKING:
    from weft.serving.api import Server

PATH = "/v1/indexes/{name}/parts"
PROTOCOL = b"weft-parts"
ACCEPTED = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: weft-parts\r\n\r\n"
REQUEST = struct.Struct("<IB")
ANSWER = struct.Struct("<IH")
MOST = 512
"""Connections of this kind, each with a thread that waits."""
IDLE_SECONDS = 75
"""A connection on which nothing comes for so long is closed."""
SEND_SECONDS = 10
_CHUNK = 65_536
_log = logging.getLogger("weft.serving")
_packer = msgspec.msgpack.Encoder()


class _Step:
    def __init__(self, name: str, step: parts.Step) -> None:
        self.route = f"{PATH}/{name}"
        self.decoder = msgspec.msgpack.Decoder(step.request)
        self.answer = step.answer


_STEPS = [_Step(name, step) for name, step in parts.STEPS.items()]


class Streams:
    """The ASGI application that takes connections over, and the threads that answer on them.

    Parameters
    ----------
    server : Server
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._guard = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = self._server
        key = server.authorise(scope, "read")
        scope["weft.key"] = None if key is None else key.name
        name = scope["path_params"]["name"]
        server.served(name)
        take = scope.get("weft.take")
        if take is None or scope["weft.headers"].get(b"upgrade", b"").lower() != PROTOCOL:
            raise RefusedError(400, f"this must be an upgrade of HTTP/1.1 to {PROTOCOL.decode()}")
        if self._closing or len(self._open) >= MOST:
            raise RefusedError(503, "too many connections", retry=1)
        connection = take()
        while (await receive())["type"] != "http.disconnect":  # uvicorn has let go of it
            pass
        await send({"type": "http.response.start", "status": 101, "headers": []})  # counted, and sent to nobody
        thread = threading.Thread(target=self._run, args=(connection, name, key), name="weft-stream", daemon=True)
        with self._guard:
            self._open[connection] = thread
        thread.start()

    def close(self) -> None:
        """Finish what is being answered, and close all connections."""
        self._closing = True
        with self._guard:
            waiting = list(self._open.items())
            for connection, _ in waiting:
                with suppress(OSError):  # it is closed already
                    connection.shutdown(socket.SHUT_RD)
        for _, thread in waiting:
            thread.join()

    def _run(self, connection: socket.socket, name: str, key: Key | None) -> None:
        try:
            connection.sendall(ACCEPTED)
            while not self._closing and (request := self._received(connection)) is not None:
                status, data = self._answered(name, key, *request)
                connection.sendall(ANSWER.pack(len(data), status) + data)
        except OSError:  # the router is gone
            pass
        except Exception:
            _log.exception("a connection of a router")
        finally:
            with self._guard:
                self._open.pop(connection, None)
                connection.close()

    def _received(self, connection: socket.socket) -> tuple[int, bytes] | None:
        """Return the next step and its request; None if the connection ends."""
        data = connection.recv(_CHUNK)
        while data:
            if len(data) >= REQUEST.size:
                size, number = REQUEST.unpack_from(data)
                if size > self._server.limits.body or number >= len(_STEPS):
                    return None  # no router of ours
                if len(data) >= REQUEST.size + size:
                    return number, data[REQUEST.size :]
            more = connection.recv(_CHUNK)
            data = data + more if more else b""
        return None

    def _answered(self, name: str, key: Key | None, number: int, data: bytes) -> tuple[int, bytes]:
        begun, server, step = time.perf_counter(), self._server, _STEPS[number]
        status = 200
        try:
            with span(f"POST {step.route}", http__request__method="POST"):
                wait = server.rate.wait("" if key is None else key.name)
                if wait:
                    raise RefusedError(429, "too many requests for this key", retry=wait)
                served, request, deadline = server.served(name), decoded(step.decoder, data), self._deadline()
                answer = server.pool.call(lambda: step.answer(served, request, deadline), deadline)
                found = _packer.encode(answer)
        except Exception as error:
            problem = as_problem(error)
            status, found = problem.status, msgspec.json.encode({"detail": problem.detail})
        server.metrics.count(step.route, "POST", status, time.perf_counter() - begun)
        return status, found

    def _deadline(self) -> Deadline:
        return Deadline(self._server.limits.seconds)


def take(transport: Any) -> socket.socket:
    """Take a connection away from an event loop; reading and writing block from now on."""
    transport.pause_reading()
    mine = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
    transport.abort()  # closes the loop's descriptor; the connection stays
    mine.setblocking(True)
    seconds = struct.Struct("@ll")
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds.pack(IDLE_SECONDS, 0))
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds.pack(SEND_SECONDS, 0))
    mine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return mine
