"""Shards of a small real index, real servers for them, a real S3 protocol on loopback."""

import importlib.util
import os
import socket
import subprocess
import sys

import pytest

from cluster_processes import Running
from weft import Document, TextIndex
from weft.sources.beir import DEMO, read_corpus

NEEDED = ("starlette", "msgspec", "uvicorn", "httpx2", "prometheus_client")
collect_ignore_glob = ["*"] if any(importlib.util.find_spec(name) is None for name in NEEDED) else []
"""The serve extra is not part of the light install, nor are these tests."""
SHARDS = 3


def documents():
    found = [Document(d.id, d.full_text, {"title": d.title, **d.metadata}) for d in read_corpus(DEMO)]
    return [d for d in found if d.metadata["subject"] in ("animals", "astronomy", "computing", "transport")]


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """One index over everything."""
    folder = tmp_path_factory.mktemp("whole") / "notes.weft"
    with TextIndex.open(folder, create=True) as texts:
        texts.add(documents())
    return folder


@pytest.fixture(scope="session")
def parts(tmp_path_factory):
    """The same documents in indexes of unequal size."""
    folder, every = tmp_path_factory.mktemp("parts"), documents()
    cuts = [0, len(every) // 5, len(every) // 2, len(every)]
    made = []
    for at in range(SHARDS):
        made.append(folder / f"part{at}.weft")
        with TextIndex.open(made[-1], create=True) as texts:
            texts.add(every[cuts[at] : cuts[at + 1]])
    return made


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    """Where a bucket of moto's server can be reached: a process of its own, on loopback."""
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    pytest.importorskip("obstore", reason="obstore is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (tmp_path_factory.mktemp("moto") / "log").open("wb")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=log, stderr=log)
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        import httpx2

        transport = httpx2.HTTPTransport(retries=8)
        with httpx2.Client(base_url=settings["AWS_ENDPOINT_URL"], transport=transport, timeout=60) as http:
            for _ in range(200):
                try:
                    assert http.put("/notes").status_code == 200
                    break
                except httpx2.ConnectError:
                    assert server.poll() is None
        yield "s3://notes"
    finally:
        server.terminate()
        server.wait()
        log.close()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


@pytest.fixture(scope="session")
def served(parts):
    """Each part behind a server of its own."""
    made = [Running("serve", path, "--port", 0, "--threads", 1, "--no-page", "--read-only") for path in parts]
    yield made
    for one in made:
        one.stop()


@pytest.fixture(scope="session")
def routed(served):
    """A router in front of them."""
    shards = [argument for one in served for argument in ("--shard", one.url)]
    made = Running("cluster", "route", *shards, "--port", 0, "--threads", 1)
    yield made
    made.stop()
