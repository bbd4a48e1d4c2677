"""A real Ray of several nodes on this machine: built, served, rolled; nodes, replicas, router and head killed."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

if not os.environ.get("WEFT_TEST_RAY"):
    pytest.skip("make test-cluster runs these: WEFT_TEST_RAY=1", allow_module_level=True)
from ray_nodes import QUIET, Nodes, free_port

os.environ.update(QUIET)  # Ray reads its settings, the token among them, when it is imported
ray = pytest.importorskip("ray", reason="ray is not installed")

import httpx2

import weft
from weft.cluster import control
from weft.cluster.ray_actors import replica_name
from weft.cluster.replica import compact
from weft.cluster.store import ShardStore
from weft.errors import DataError, WeftError

pytestmark = pytest.mark.filterwarnings("default")  # Ray's own
SHARDS, REPLICAS, DOCUMENTS = 2, 2, 60
REPLICA_NUMBER = SHARDS * REPLICAS
HOST = "127.0.0.3"
"""The address of the second node: the router is kept away from the head."""
SEARCH, WRITE = "/v1/indexes/notes/search", "/v1/indexes/notes/documents"
LONG = int(os.environ.get("WEFT_RAY_SEARCHES", "100"))
"""Searches that are waited for after each kill; `make test-cluster` asks for more."""
TALLY = os.environ.get("WEFT_RAY_TALLY")
"""A file for what was counted."""


def write(folder, number=DOCUMENTS):
    rows = [{"id": f"d{n}", "text": f"Text {n} is about the number {n} and ships."} for n in range(number)]
    folder.mkdir(exist_ok=True)
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What an index of one machine finds for the query of each document."""
    folder = tmp_path_factory.mktemp("one")
    with weft.TextIndex.open(folder / "one.weft", create=True) as texts:
        rows = map(json.loads, (write(folder / "source") / "texts.jsonl").read_text().splitlines())
        texts.add({row["id"]: row["text"] for row in rows})
        found = texts.search_many([query_of(n) for n in range(DOCUMENTS)], 3, alignment="top-k:1", exact=True)
    return [[(match.id, match.score) for match in matches] for matches in found]


def query_of(number):
    return f"Text {number} is about the number {number}"


@pytest.fixture(scope="module")
def nodes():
    made = Nodes(3)
    yield made
    made.stop()


@pytest.fixture
def joined(nodes):
    with control.joined(nodes.address):
        yield


def weft_cluster(nodes, *arguments, code=0):
    command = [sys.executable, "-m", "weft", "cluster", *map(str, arguments)]
    environment = {**nodes.environment, "RAY_ADDRESS": nodes.address}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=environment)
    assert done.returncode == code, done.stderr[-3000:]
    return done.stdout if code == 0 else done.stderr.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def store(nodes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray")
    said = weft_cluster(
        nodes, "index", write(folder / "source"), "-o", folder / "store", "--shards", SHARDS, "--id-scope", "global"
    )
    assert said == f"version 1: {DOCUMENTS} passages in {SHARDS} shards\n"
    return ShardStore(folder / "store")


@pytest.fixture(scope="module")
def url(nodes, store, tmp_path_factory):
    port = free_port()
    arguments = ["--shards", SHARDS, "--replicas", REPLICAS, "--name", "notes", "--host", HOST, "--port", port]
    said = weft_cluster(nodes, "serve", store.url, *arguments, "--folder", tmp_path_factory.mktemp("here"))
    assert said == f"notes: version 1, {SHARDS} shards, {REPLICAS} replicas each, at http://{HOST}:{port}\n"
    yield f"http://{HOST}:{port}"
    assert weft_cluster(nodes, "down", "--name", "notes") == f"notes: {REPLICA_NUMBER + 1} servers stopped\n"


def counted(row):
    print(json.dumps(row))
    if TALLY:
        with open(TALLY, "a") as file:
            file.write(json.dumps(row) + "\n")


class Load:
    """Searches and writes that go on beside what is done: how many were answered, how many not, how many wrong."""

    def __init__(self, what, url, expected):
        self.what, self.url, self.expected = what, url, expected
        self.good, self.bad, self.wrong = 0, [], []
        self.written, self.unwritten = [], []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._search, self._write)]

    def _post(self, http, path, body):
        answer = http.post(path, json=body)
        return answer.json() if answer.status_code == 200 else answer.text

    def _search(self):
        with httpx2.Client(base_url=self.url, timeout=30) as http:
            while not self._stop.is_set():
                number = self.good % DOCUMENTS
                body = {"query": query_of(number), "k": 3, "alignment": "top-k:1", "exact": True, "fields": []}
                try:
                    answer = self._post(http, SEARCH, body)
                except httpx2.HTTPError as error:
                    answer = repr(error)
                if isinstance(answer, str):
                    self.bad.append(answer)
                    self._stop.wait(0.02)
                    continue
                hits = [(hit["id"], hit["score"]) for hit in answer["results"][0]["hits"]]
                if answer["shards_ok"] != SHARDS or hits != self.expected[number]:
                    self.wrong.append(answer)
                self.good += 1

    def _write(self):
        with httpx2.Client(base_url=self.url, timeout=60) as http:
            at = 0
            while not self._stop.wait(0.02):
                at += 1
                name = f"{self.what}-{at}".replace(" ", "-")
                try:
                    answer = self._post(http, WRITE, {"documents": [{"id": name, "text": f"Whale {at} swims."}]})
                except httpx2.HTTPError as error:
                    answer = repr(error)
                (self.unwritten if isinstance(answer, str) else self.written).append(name)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        self.more(5)
        self._begun = time.monotonic()
        return self

    def back(self):
        """All is as it was before the kill."""
        self._seconds = time.monotonic() - self._begun

    def __exit__(self, kind, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if kind is None:
            row = {
                **{"what": self.what, "searches": self.good + len(self.bad), "failed": len(self.bad)},
                **{"wrong": len(self.wrong), "writes": len(self.written) + len(self.unwritten)},
                **{"refused": len(self.unwritten), "seconds": round(self._seconds, 1)},
            }
            counted(row)
            assert not self.wrong
            with weft.connect(self.url) as remote:
                until = time.monotonic() + 60  # replicas follow within half a second
                while not set(self.written) <= set(names := remote.matching()):
                    assert time.monotonic() < until  # whatever was answered is there
                    time.sleep(0.1)
            assert len(names) == len(set(names))

    def more(self, number):
        """Wait for so many more good answers."""
        until, late = self.good + number, time.monotonic() + 300 + number
        while self.good < until:
            assert all(thread.is_alive() for thread in self._threads)
            assert time.monotonic() < late, self.bad[-3:]
            time.sleep(0.02)


def warm(number=REPLICA_NUMBER):
    """Wait until so many replicas are warm, on any node."""
    until = time.monotonic() + 180
    while time.monotonic() < until:
        _, _, rows = control.status("notes")
        if sum(row.state == "warm" for row in rows) >= number:
            return rows
        time.sleep(0.3)
    raise AssertionError(rows)


def pid_of(name):
    return ray.get(ray.get_actor(f"notes/{name}", "weft").pid.remote())


def version_served():
    return ray.get(ray.get_actor("notes/router", "weft").served.remote())


def test_what_cannot_be_is_one_line(nodes, store, tmp_path):
    assert "9 replicas need as many nodes; the cluster has 3" in weft_cluster(
        nodes, "serve", store.url, "--replicas", 9, code=1
    )
    with control.joined(nodes.address):  # the command prints such errors as they are
        there = "no node has the address 10.9.9.9; there are 127.0.0.2, 127.0.0.3, 127.0.0.4"
        with pytest.raises(DataError, match=there):
            control.serve("other", store.url, host="10.9.9.9", keys="one read a-key-of-enough-characters")
        with pytest.raises(DataError, match=f"has {SHARDS} shards, not 7"):
            control.serve("other", store.url, shards=7)
        with pytest.raises(DataError, match="no version 7; it has 1"):
            control.serve("other", store.url, version=7)
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(WeftError, match="cannot listen on"):
            control.serve("other", store.url, replicas=1, port=taken.getsockname()[1])
        with pytest.raises(DataError, match="a worker cannot have 1 GPUs: the nodes have at most 0"):
            control.build([write(tmp_path / "source")], store.url, 2, gpus=1)
        with pytest.raises(DataError, match="nothing is published"):
            control.serve("other", str(tmp_path / "empty"))
        with pytest.raises(DataError, match="no cluster serves 'nobody'"):
            control.roll("nobody")
        with pytest.raises(ValueError, match="shards"):
            control.build([tmp_path], store.url, 0)
        assert control.down("other") == 0  # nothing was begun


@pytest.mark.slow  # Ray tries for twenty seconds
def test_whoever_has_no_token_is_refused(nodes, store):
    with socket.create_connection(("127.0.0.2", nodes.port), 5):
        pass  # it is there
    command = [sys.executable, "-m", "weft", "cluster", "status", "--address", nodes.address]
    environment = {**nodes.environment, "RAY_AUTH_TOKEN": "another-token-which-is-not-the-cluster-s-own"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=environment)
    assert done.returncode != 0
    assert "version" not in done.stdout


def test_documents_are_found_and_written_through_ray(nodes, joined, url):
    rows = warm()
    for shard in range(SHARDS):
        assert len({row.node for row in rows if row.actor.split("/")[2] == str(shard)}) == REPLICAS
    with weft.connect(f"ray://{nodes.address}/notes") as remote:
        assert len(remote) == DOCUMENTS
        assert remote.search("the number 17", 1)[0].id == "d17"
        assert remote.add({"extra": "An extra text about whales."}).added == 1
        assert remote.search("whales", 1, at_least=remote.written)[0].id == "extra"
        assert remote.delete("extra") == 1
    with pytest.raises(WeftError, match="'notes' is served already"):
        control.serve("notes", "elsewhere")


def test_a_cluster_leaves_nothing_in_a_fresh_home(nodes, url):
    """Nodes, the build, replicas and the router run in one."""
    assert sorted(path.relative_to(nodes.home).as_posix() for path in nodes.home.rglob("*")) == []


def test_a_killed_writer_costs_nothing(joined, url, expected):
    warm()
    with Load("a replica", url, expected) as load:
        os.kill(pid_of("1/0/0"), signal.SIGKILL)
        load.more(LONG)
        warm()
        load.back()
    assert not load.bad
    assert not load.unwritten


def test_a_killed_router_comes_back_at_its_address(joined, url, expected):
    begun = time.monotonic()
    with Load("the router", url, expected) as load:
        os.kill(pid_of("router"), signal.SIGKILL)
        load.more(1)  # from now on it answers again
        load.back()
        load.more(LONG // 2)
    assert time.monotonic() - begun < 300


def test_a_node_killed_in_the_middle_of_a_roll(nodes, joined, url, store, expected):
    victim = next(at for at in (1, 2) if at != nodes.having(pid_of("router")))
    with Load("a node in mid-roll", url, expected) as load:
        made = compact(store)  # a version with what was written up to now
        rolling = threading.Thread(target=control.roll, args=("notes",))
        rolling.start()
        while not any(_is_there(made.version, shard) for shard in range(SHARDS)):
            time.sleep(0.01)
        nodes.kill(victim)
        load.more(LONG)
        rolling.join(300)
        assert version_served() == made.version == 2
        warm()
        load.back()
    assert len(load.bad) <= (load.good + len(load.bad)) // 1000, load.bad[:3]
    nodes.start(victim)


def _is_there(version, shard):
    try:
        return bool(ray.get_actor(replica_name("notes", version, shard, 0), "weft"))
    except ValueError:
        return False


@pytest.mark.slow
def test_a_killed_head_comes_back(nodes, url, store, expected):
    with control.joined(nodes.address):
        compact(store)
        assert control.roll("notes").version == 3  # replicas are apart again, after the death of a node
        assert nodes.having(pid_of("router")) != 0  # routers are kept away from the head
    with Load("the head", url, expected) as load:
        nodes.kill(0)
        load.more(LONG)
        nodes.start(0)
        with control.joined(nodes.address):
            warm()
            assert version_served() == 3
            load.back()
    assert len(load.bad) <= (load.good + len(load.bad)) // 1000, load.bad[:3]


@pytest.mark.slow
def test_a_router_whose_node_dies_is_found_elsewhere(nodes, joined, url, expected):
    victim, begun = nodes.having(pid_of("router")), time.monotonic()
    nodes.kill(victim)
    found = []
    while not found:
        assert time.monotonic() < begun + 180
        with (
            contextlib.suppress(WeftError, ray.exceptions.RayError),
            weft.connect(f"ray://{nodes.address}/notes", timeout=5) as remote,
        ):
            found = remote.search(query_of(7), 3, alignment="top-k:1", exact=True)
    assert [(match.id, match.score) for match in found] == expected[7]
    counted({"what": "the router's node", "seconds": round(time.monotonic() - begun, 1)})
    nodes.start(victim)


@pytest.mark.slow
def test_a_node_killed_in_the_middle_of_a_build(nodes, joined, tmp_path):
    done = threading.Event()

    def told(shards_done, *_):
        if shards_done == 1:
            nodes.kill(2)
            done.set()

    made = control.build(
        [write(tmp_path / "source")], str(tmp_path / "store"), 6, id_scope="global", workers=3, told=told
    )
    nodes.start(2)
    assert done.is_set()
    assert made.documents == DOCUMENTS
    store, seen = ShardStore(tmp_path / "store"), []
    for shard in made.shards:
        with weft.TextIndex.open(store.fetch_shard(shard, tmp_path / "here" / shard.name)) as texts:
            seen += list(texts)
    assert sorted(seen) == sorted(f"d{n}" for n in range(DOCUMENTS))
    again = control.build([tmp_path / "source"], str(tmp_path / "store"), 6, id_scope="global")
    assert again == made  # nothing is built or published twice
