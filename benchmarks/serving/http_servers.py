"""The same application under uvicorn, as `weft serve` runs it, and under Granian: requests a second, latencies, CPU.

python benchmarks/serving/http_servers.py INDEX [--seconds 10]     (pip install granian)
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from run import NAME, Served, bodies, serving

import weft

ENVIRONMENT = "WEFT_BENCH_INDEX"


def __getattr__(name: str) -> object:
    """Make `app` when Granian asks for it."""
    if name != "app":
        raise AttributeError(name)
    from weft.serving.api import Server

    return Server({NAME: weft.TextIndex.open(os.environ[ENVIRONMENT])})


class Granian(Served):
    """The application under Granian."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.host, self.port = free.getsockname()
        command = [Path(sys.executable).with_name("granian"), "--interface", "asgi", "--workers", "1", "--http", "1"]
        command += ["--loop", "uvloop", "--no-ws", "--host", self.host, "--port", str(self.port), "http_servers:app"]
        environment = {**os.environ, ENVIRONMENT: str(folder), "PYTHONPATH": str(Path(__file__).parent)}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        self.url = f"http://{self.host}:{self.port}"
        for _ in range(200):
            time.sleep(0.1)
            try:
                with weft.connect(self.url) as there:
                    there.search("is it ready", k=1)
                return
            except weft.WeftError:
                continue
        sys.exit("Granian did not start")


def main() -> None:
    """Measure both, in turns, twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    for turn in range(2):
        with serving(options.index) as server:
            _measure("uvicorn", server, turn, options.seconds)
        server = Granian(options.index)
        try:
            _measure("granian", server, turn, options.seconds)
        finally:
            server.stop()


def _measure(name: str, server: Served, turn: int, seconds: float) -> None:
    server.load(bodies("vectors", 0), 5, clients=4)
    for clients in (1, 16):
        found = server.load(bodies("vectors", turn), seconds, clients=clients)
        shown = {key: round(value, 2) for key, value in found.items()}
        print(json.dumps({"server": name, "clients": clients, **shown}), flush=True)


if __name__ == "__main__":
    main()
