"""Parsers in a separate process, with limits on time and memory: a bad file is skipped, and the others are read.

The process starts with the first file that needs it, reads one file after another, and ends with its parent. A file
that takes too long or too much memory, or crashes the parser, ends it; the next file starts another.
"""

from __future__ import annotations

import atexit
import json
import resource
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from threading import Lock, Timer
from typing import IO, Any

from weft.errors import DataError, invalid
from weft.sources.extract import extract, refuse_missing
from weft.sources.extracted import Extracted

SECONDS = 60
"""Processor time that a file may take."""
MEMORY = 2 * 2**30
"""Bytes of memory that a file may take."""
PATIENCE = 20 * SECONDS
"""Seconds on the clock after which a file is given up, whatever it is waiting for."""
_LENGTH = struct.Struct("<QQ")


class Reader:
    """Reads files in a separate process.

    Parameters
    ----------
    seconds, memory : int
        Processor time and bytes for each file.
    """

    def __init__(self, seconds: int = SECONDS, memory: int = MEMORY) -> None:
        for name, value in (("seconds", seconds), ("memory", memory)):
            if value < 1:
                raise invalid(name, "Reader", "at least 1", value)
        self.seconds, self.memory = seconds, memory
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()

    def read(self, data: bytes, kind: str) -> Extracted:
        """Read a file as `weft.sources.extract.extract` does."""
        refuse_missing(kind)
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            given_up = Timer(PATIENCE, process.kill)
            given_up.daemon = True
            given_up.start()
            try:
                _send(process.stdin, kind.encode(), data)
                found = _receive(process.stdout)
            except OSError:  # it ended before it had read everything
                found = None
            finally:
                given_up.cancel()
            if found is None:
                raise DataError(f"not readable as {kind}: {self._post_mortem(process)}")
        value: dict[str, Any] = json.loads(found[1])
        if "error" in value:
            raise DataError(value["error"])
        return Extracted.from_json(value)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            if self._process is not None:
                _end(self._process)
                self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            _end(self._process)
            self._process = None
        if self._process is None:
            start = f"from weft.sources.isolation import serve; serve({self.seconds}, {self.memory})"
            command = [sys.executable, "-c", start]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        return self._process

    def _post_mortem(self, process: subprocess.Popen[bytes]) -> str:
        _end(process)
        self._process = None
        if process.returncode == -getattr(signal, "SIGXCPU", 24):
            return f"it takes more than {self.seconds} s"
        if process.returncode == -9:
            return "it takes too long, or too much memory"
        return f"the parser crashed (exit code {process.returncode})"


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what it had not read yet
                pipe.close()
    try:
        process.wait(timeout=5)  # it ends by itself where its input does
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


shared = Reader()
"""The reader of all sources of this process."""
atexit.register(shared.close)


def _send(stream: IO[bytes], *parts: bytes) -> None:
    stream.write(_LENGTH.pack(*map(len, parts)))
    for part in parts:
        stream.write(part)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[bytes, bytes] | None:
    """Return two byte strings, or None at the end."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    first, second = (stream.read(size) for size in _LENGTH.unpack(head))
    return first, second


def _limit(seconds: int, memory: int) -> None:
    """Limit this process to this much more memory and processor time than it has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(used.ru_utime + used.ru_stime) + 1
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    soft = spent + seconds if most == resource.RLIM_INFINITY else min(spent + seconds, most)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, most))
    if memory:
        with open("/proc/self/statm", "rb") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        soft = now + memory if most == resource.RLIM_INFINITY else min(now + memory, most)
        resource.setrlimit(resource.RLIMIT_AS, (soft, most))


def serve(seconds: int, memory: int) -> None:
    """The separate process: answer on stdout what comes on stdin, until that ends."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # a parser that prints must not write between our answers
    if sys.platform.startswith("linux"):
        _limit(seconds, memory)
    while (asked := _receive(source)) is not None:
        kind, data = asked
        _limit(seconds, 0)
        try:
            answer = json.dumps(extract(data, kind.decode()).as_json()).encode()
        except DataError as error:
            answer = json.dumps({"error": str(error)}).encode()
        except MemoryError:
            answer = json.dumps({"error": f"not readable as {kind.decode()}: it needs too much memory"}).encode()
        del data, asked
        _send(sink, b"", answer)
