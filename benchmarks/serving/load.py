"""Load from a second process: prepared requests over kept connections, so that the client costs little.

Closed loop: each client sends its next request when it has the last answer. Open loop: requests are due at fixed times,
and a latency counts from when the request was due, answered or not.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass

import numpy as np


@dataclass
class Measured:
    """What a run gave."""

    requests: int
    errors: int
    seconds: float
    p50: float
    p95: float
    p99: float


class Connection:
    """One kept connection."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    async def open(self) -> Connection:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        return self

    async def ask(self, request: bytes) -> bool:
        """Send a prepared request; tell whether the answer was 200."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await self.reader.readexactly(length)
        return head.startswith(b"HTTP/1.1 200")


def prepared(bodies: list[dict[str, object]], path: str, host: str) -> list[bytes]:
    """Return whole requests."""
    made = []
    for body in bodies:
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}"
        made.append(head.encode() + b"\r\n\r\n" + data)
    return made


async def closed(address: tuple[str, int], requests: list[bytes], clients: int, seconds: float) -> Measured:
    """Ask with so many clients at a time."""
    latencies: list[float] = []
    errors = 0
    following = iter(range(10**9))
    begun = time.perf_counter()

    async def client() -> None:
        nonlocal errors
        connection = await Connection(*address).open()
        while time.perf_counter() - begun < seconds:
            request = requests[next(following) % len(requests)]
            asked = time.perf_counter()
            errors += not await connection.ask(request)
            latencies.append(time.perf_counter() - asked)
        connection.writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return _measured(latencies, errors, time.perf_counter() - begun)


async def opened(address: tuple[str, int], requests: list[bytes], rate: float, seconds: float) -> Measured:
    """Ask at a fixed rate, whether answers have come or not."""
    latencies: list[float] = []
    errors = 0
    free: list[Connection] = []
    begun = time.perf_counter()

    async def one(request: bytes, due: float) -> None:
        nonlocal errors
        connection = free.pop() if free else await Connection(*address).open()
        errors += not await connection.ask(request)
        latencies.append(time.perf_counter() - due)
        free.append(connection)

    waiting = []
    for n in range(int(rate * seconds)):
        due = begun + n / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        waiting.append(asyncio.create_task(one(requests[n % len(requests)], due)))
    await asyncio.gather(*waiting)
    taken = time.perf_counter() - begun
    for connection in free:
        connection.writer.close()
    return _measured(latencies, errors, taken)


def _measured(latencies: list[float], errors: int, seconds: float) -> Measured:
    p50, p95, p99 = 1000 * np.percentile(latencies, [50, 95, 99]) if latencies else (0.0, 0.0, 0.0)
    return Measured(len(latencies), errors, seconds, float(p50), float(p95), float(p99))


def main() -> None:
    """Read one order as JSON from stdin, run it, print what was measured as JSON."""
    order = json.load(sys.stdin)
    address = (order["host"], order["port"])
    requests = prepared(order["bodies"], order["path"], order["host"])
    if order["clients"]:
        found = asyncio.run(closed(address, requests, order["clients"], order["seconds"]))
    else:
        found = asyncio.run(opened(address, requests, order["rate"], order["seconds"]))
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
