"""Real servers in processes of their own, over a small real index with the bundled model."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weft import Document, TextIndex
from weft.sources.beir import DEMO, read_corpus

NEEDED = ("starlette", "msgspec", "uvicorn", "httpx2", "prometheus_client")
collect_ignore_glob = ["*"] if any(importlib.util.find_spec(name) is None for name in NEEDED) else []
"""The serve extra is not part of the light install, nor are these tests."""
SCRIPT = Path(__file__).parent / "limited_server.py"
LONG = Document("long", " ".join(f"Chapter {n} tells of the {n}th voyage to the island." for n in range(120)))


def documents():
    found = [Document(d.id, d.full_text, {"title": d.title, **d.metadata}) for d in read_corpus(DEMO)]
    return [d for d in found if d.metadata["subject"] in ("animals", "astronomy", "computing", "transport")]


class Running:
    """A server process; `url` is where it listens."""

    def __init__(self, arguments, environment=None):
        import httpx2

        self.process = subprocess.Popen(
            arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
        )
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line.decode())
            found = re.search(r"serving .*at (http://\S+)", self.lines[-1])
            if found:
                self.url = found.group(1)
                self.http = httpx2.Client(base_url=self.url, timeout=60)
                return
        pytest.fail(f"the server did not start: {''.join(self.lines)}")

    @property
    def address(self):
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    def post(self, path, body, **options):
        return self.http.post(path, json=body, **options)

    @property
    def memory(self):
        """Resident bytes of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024

    def stop(self, number=signal.SIGTERM):
        """Stop it and return its exit code and what it said."""
        self.http.close()
        self.process.send_signal(number)
        rest = self.process.communicate(timeout=60)[1]
        return self.process.returncode, "".join(self.lines) + rest.decode()


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """An index that is only read."""
    folder = tmp_path_factory.mktemp("serving") / "notes.weft"
    with TextIndex.open(folder, create=True) as texts:
        texts.add([*documents(), LONG])
    return folder


@pytest.fixture(scope="session")
def texts(built):
    with TextIndex.open(built) as opened:
        yield opened


@pytest.fixture
def index(built, tmp_path):
    """A copy of the index, to be written to."""
    return shutil.copytree(built, tmp_path / "notes.weft")


@pytest.fixture
def start():
    """Start servers: by the command line, or with other limits than it offers; all are stopped at the end."""
    started = []

    def begin(*arguments, limits=None, keys=None, environment=None):
        command = [sys.executable, "-m", "weft", "serve", *map(str, arguments), "--port", "0"]
        if limits is not None:
            options = json.dumps({"limits": limits, "keys": keys})
            command = [sys.executable, str(SCRIPT), options, *map(str, arguments)]
        started.append(Running(command, environment))
        return started[-1]

    yield begin
    for server in started:
        if server.process.poll() is None:
            server.stop()
        server.http.close()


@pytest.fixture(scope="session")
def reader(built):
    """A server for tests that do not write."""
    server = Running([sys.executable, "-m", "weft", "serve", str(built), "--port", "0"])
    yield server
    server.stop()
