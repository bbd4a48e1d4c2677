"""Several processes behind one port: all of them search, the first writes, and one that dies is started again.

Each listens at the port by itself (SO_REUSEPORT), so the system spreads connections. Writes are forwarded to the first,
over a socket in a private folder; a search sees everything committed before it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from weft.errors import WeftError
from weft.serving.keys import Keys
from weft.serving.metrics import MULTIPROCESS
from weft.serving.naming import CONNECTIONS, address_of, listening

_log = logging.getLogger("weft.serving")


@dataclass(frozen=True)
class Settings:
    """What every worker is started with."""

    indexes: Mapping[str, Path]
    host: str
    port: int
    model: str | None = None
    keys: Keys | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    access_log: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of `Server`."""
    on_damage: str = "raise"
    query: str = "full"


def supervise(number: int, settings: Settings, ready: Callable[[str], None]) -> None:
    """Run some processes until SIGTERM or Ctrl-C; readers end first, so that the writer answers what they forwarded."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise WeftError("--workers needs a system whose processes can share a port (SO_REUSEPORT); this one cannot")
    folder = Path(tempfile.mkdtemp(prefix="weft-serve-"))
    (folder / "metrics").mkdir()
    os.environ[MULTIPROCESS] = str(folder / "metrics")
    placeholder = listening(settings.host, settings.port, shared=True, listen=False)  # keeps the port ours
    try:
        port = placeholder.getsockname()[1]
        _Workers(number, replace(settings, port=port), folder, lambda: ready(address_of(placeholder))).run()
    finally:
        placeholder.close()
        shutil.rmtree(folder, ignore_errors=True)


class _Workers:
    def __init__(self, number: int, settings: Settings, folder: Path, ready: Callable[[], None]) -> None:
        self._settings, self._folder, self._ready = settings, folder, ready
        self._context = multiprocessing.get_context("spawn")
        self._waiting = set(range(number))
        self._running: dict[int, tuple[BaseProcess, Connection]] = {}
        self._told = False

    def run(self) -> None:
        woken, wake = os.pipe()
        before = {
            number: signal.signal(number, lambda *_: os.write(wake, b"x")) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            for position in sorted(self._waiting):
                self._start(position)
            while True:
                pipes = {pipe: position for position, (_, pipe) in self._running.items()}
                found = wait([woken, *pipes])
                if woken in found:
                    return
                for pipe in found:
                    assert isinstance(pipe, Connection)
                    self._hear(pipes[pipe], pipe)
        finally:
            self._stop()
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(woken)
            os.close(wake)

    def _start(self, position: int) -> None:
        ours, theirs = self._context.Pipe()
        arguments = (position, self._settings, self._folder, theirs)
        process = self._context.Process(target=_work, args=arguments, name=f"weft-worker-{position}")
        process.start()
        theirs.close()
        self._running[position] = process, ours

    def _hear(self, position: int, pipe: Connection) -> None:
        """A worker says that it is ready, or its pipe closes because it has ended."""
        try:
            pipe.recv()
        except (EOFError, OSError):
            process, _ = self._running.pop(position)
            process.join()
            pipe.close()
            if position in self._waiting and not self._told:
                raise WeftError("a worker could not start; its message is above") from None
            _log.error("worker %d ended with %s and is started again", position, process.exitcode)
            self._start(position)
            return
        self._waiting.discard(position)
        if not self._waiting and not self._told:
            self._told = True
            self._ready()

    def _stop(self) -> None:
        """Readers first: the writer answers what they have forwarded."""
        for positions in ([n for n in self._running if n], [n for n in self._running if not n]):
            for position in positions:
                self._running[position][0].terminate()
            for position in positions:
                process, pipe = self._running.pop(position)
                process.join()
                pipe.close()


def _work(position: int, settings: Settings, folder: Path, pipe: Connection) -> None:
    """Be one worker; the first is the one that writes."""
    os.setpgid(0, 0)  # Ctrl-C is for the parent, which stops its workers in order
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until the server takes it
    try:
        from weft.serving import running
        from weft.serving.api import Server
        from weft.serving.limits import Limits
        from weft.serving.naming import open_indexes

        if settings.access_log:
            running.log_as_json()
        writer = folder / "writer.sock"
        opened = open_indexes(settings.indexes, settings.model, settings.on_damage, settings.query)
        server = Server(
            opened,
            keys=settings.keys,
            limits=Limits(**settings.limits),
            writer=writer if position else None,
            **settings.options,
        )
        listeners = [listening(settings.host, settings.port, shared=True)]
        if not position:
            listeners.append(_private(writer))
        threading.Thread(target=_outlive, args=(pipe,), daemon=True).start()
        running.run(server, listeners[0], also=listeners[1:], ready=lambda _: pipe.send(position))
    except WeftError as error:
        print(f"weft: {error}", file=sys.stderr, flush=True)
        sys.exit(1)


def _outlive(pipe: Connection) -> None:
    """End when the parent has ended: nobody else would stop this process."""
    try:
        pipe.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)


def _private(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)  # of a writer that died
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(str(path))
    made.listen(CONNECTIONS)
    return made
