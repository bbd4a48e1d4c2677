"""A real Ray of several nodes on this machine: built, served, rolled; nodes, replicas, router and head killed."""

import json
import os
import signal
import socket
import threading
import time
from contextlib import contextmanager

import pytest

if not os.environ.get("WEFT_TEST_RAY"):
    pytest.skip("set WEFT_TEST_RAY=1, or run make test-cluster", allow_module_level=True)
from ray_nodes import QUIET, Nodes, free_port

os.environ.update(QUIET)  # Ray reads its settings, the token among them, when it is imported
pytest.importorskip("ray", reason="ray is not installed")

import httpx2

import weft
from weft.cluster.placing import shard_of
from weft.cluster.store import ShardStore
from weft.errors import DataError, WeftError

SHARDS, REPLICAS, DOCUMENTS = 2, 2, 60
SEARCH = "/v1/indexes/notes/search"


def write(folder, number=DOCUMENTS, word="ships"):
    rows = [{"id": f"d{n}", "text": f"Text {n} is about the number {n} and {word}."} for n in range(number)]
    folder.mkdir(exist_ok=True)
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def control():
    nodes = Nodes(3)
    try:
        from weft.cluster import control

        with control.joined(nodes.address):
            import ray

            assert sum(node["Alive"] for node in ray.nodes()) == 3
            control.nodes = nodes
            yield control
    finally:
        nodes.stop()


@pytest.fixture(scope="module")
def store(control, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray")
    told = []
    made = control.build(
        [write(folder / "source")], str(folder / "store"), SHARDS, workers=2, told=lambda *row: told.append(row)
    )
    assert made.version == 1
    assert made.documents == DOCUMENTS
    assert told[-1][:2] == (SHARDS, SHARDS)
    return ShardStore(folder / "store")


@pytest.fixture(scope="module")
def serving(control, store, tmp_path_factory):
    port = free_port()
    made = control.serve(
        "notes", store.url, replicas=REPLICAS, port=port, folder=str(tmp_path_factory.mktemp("copies"))
    )
    assert made.url == f"http://127.0.0.1:{port}"
    yield made
    assert control.down("notes") == SHARDS * REPLICAS + 2


class Load:
    """Searches that go on beside what is done: how many were answered, how many not."""

    def __init__(self, url):
        self.url, self.good, self.bad, self.wrong = url, 0, [], []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        with httpx2.Client(base_url=self.url, timeout=30) as http:
            while not self._stop.is_set():
                number = self.good % DOCUMENTS
                body = {"query": f"the number {number}", "k": 3, "fields": ["text"]}
                try:
                    answer = http.post(SEARCH, json=body)
                    if answer.status_code != 200:
                        self.bad.append(answer.text)
                        continue
                    hits = answer.json()["results"][0]["hits"]
                    if len(hits) != 3 or any(f"Text {hit['id'][1:]} is about" not in hit["text"] for hit in hits):
                        self.wrong.append(hits)
                    self.good += 1
                except httpx2.HTTPError as error:
                    self.bad.append(repr(error))

    def __enter__(self):
        self._thread.start()
        self.more(5)
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def more(self, number):
        until = self.good + number
        while self.good < until:
            assert self._thread.is_alive()
            time.sleep(0.02)


@contextmanager
def report(what, load):
    begun = time.monotonic()
    yield
    asked = load.good + len(load.bad)
    print(f"{what}: {len(load.bad)} of {asked} searches failed; {time.monotonic() - begun:.1f} s until all were back")


def warm(control, number=SHARDS * REPLICAS):
    """Wait until so many replicas are warm, on any node."""
    until = time.monotonic() + 180
    while time.monotonic() < until:
        _, _, rows = control.status("notes")
        if sum(row.state == "warm" for row in rows) >= number:
            return rows
        time.sleep(0.3)
    raise AssertionError(rows)


def test_more_replicas_than_nodes_are_refused(control, store):
    with pytest.raises(DataError, match="9 replicas need as many nodes; the cluster has 3"):
        control.serve("other", store.url, replicas=9)
    with pytest.raises(DataError, match="no version 7"):
        control.serve("other", store.url, version=7)
    with pytest.raises(DataError, match="no cluster serves 'nobody'"):
        control.roll("nobody")


def test_every_document_is_found_and_written_through_ray(control, serving):
    rows = warm(control)
    for shard in range(SHARDS):
        nodes = {row.node for row in rows if row.actor.split("/")[2] == str(shard)}
        assert len(nodes) == REPLICAS
    with weft.connect(serving.url) as remote:
        assert len(remote) == DOCUMENTS
        assert remote.search("the number 17", 1)[0].id == "d17"
        done = remote.add({"extra": "An extra text about whales."})
        assert done.added == 1
        assert remote.search("whales", 1)[0].id == "extra"
        assert remote.delete("extra") == 1


def test_a_killed_replica_costs_nothing(control, serving):
    import ray

    warm(control)
    actor = ray.get_actor("notes/1/0/0", "weft")
    with Load(serving.url) as load, report("a replica killed", load):
        os.kill(ray.get(actor.pid.remote()), signal.SIGKILL)
        load.more(100)
        warm(control)
    assert not load.wrong
    assert not load.bad


def test_a_roll_costs_nothing(control, serving, store, tmp_path):
    with Load(serving.url) as load, report("a roll", load):
        made = control.build([write(tmp_path / "source", word="ships and sails")], store.url, SHARDS, workers=1)
        assert made.version == 2
        rolled = control.roll("notes")
        assert (rolled.version, rolled.url) == (2, serving.url)
        load.more(30)
    assert not load.wrong
    assert not load.bad
    with weft.connect(serving.url) as remote:
        assert "sails" in remote.search("the number 17", 1)[0].text
        assert len(remote) == DOCUMENTS


def test_a_killed_router_comes_back_at_its_address(control, serving):
    import ray

    pid = ray.get(ray.get_actor("notes/router", "weft").pid.remote())
    begun = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    host, port = serving.url.removeprefix("http://").split(":")
    while time.monotonic() < begun + 120:
        try:
            with weft.connect(serving.url, timeout=10) as remote:
                assert remote.search("the number 17", 1)[0].id == "d17"
                break
        except WeftError:
            time.sleep(0.1)
    else:
        raise AssertionError("the router did not come back")
    print(f"the router killed: answers again after {time.monotonic() - begun:.1f} s")
    socket.create_connection((host, int(port)), 5).close()


def test_a_killed_node_costs_nothing(control, serving):
    import ray

    rows = warm(control)
    router = ray.get(ray.get_actor("notes/router", "weft").pid.remote())
    victim = next(
        at for at in (1, 2) if os.getsid(router) != os.getsid(control.nodes.members[at].pid)
    )  # not the router's: that is another test
    with Load(serving.url) as load, report("a node killed", load):
        control.nodes.kill(victim)
        load.more(100)
        rows = warm(control)
    assert not load.wrong
    asked = load.good + len(load.bad)
    assert len(load.bad) <= max(asked // 1000, 0), load.bad[:3]
    assert rows
    assert shard_of("d1", SHARDS) in (0, 1)
