"""Writes through a router: durable when answered, seen by every replica, and by a reader that asks for them at once."""

import asyncio
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import weft
from cluster_processes import Running
from weft.cluster.blobs import FolderBlobs
from weft.cluster.building import Job, build_shard, publish
from weft.cluster.log import ShardLog
from weft.cluster.placing import shard_of
from weft.cluster.replica import compact, open_replica, own_folder
from weft.cluster.replicas import Replicas, ShardError
from weft.cluster.store import ShardStore
from weft.errors import CorruptIndexError, DataError, StorageError
from weft.serving.client import ServerError
from weft.storage.operations import Addition

SHARDS = 2


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    (folder / "texts.jsonl").write_text(
        "".join(f'{{"id": "d{n}", "text": "Text {n} is about the number {n} and ships."}}\n' for n in range(40))
    )
    return folder


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    store = ShardStore(tmp_path_factory.mktemp("store"))
    job = Job.of([source], SHARDS)
    for number in range(SHARDS):
        build_shard(job, number, store)
    publish(job, store)
    return store


def test_every_document_is_in_one_shard_and_builds_can_be_repeated(built, source, tmp_path):
    job, seen = Job.of([source], SHARDS), []
    manifest = built.latest()
    for number, shard in enumerate(manifest.shards):
        assert build_shard(job, number, built) == shard
        with weft.TextIndex.open(built.fetch_shard(shard, tmp_path / str(number))) as texts:
            names = list(texts)
            assert all(shard_of(name, SHARDS) == number for name in names)
            seen += names
    assert len(seen) == len(set(seen)) == 40
    assert publish(job, built) == manifest
    assert built.versions() == [1]


def test_a_job_without_shards_or_sources_is_one_line(source, tmp_path):
    with pytest.raises(ValueError, match="shards"):
        Job.of([source], 0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="nothing to index"):
        Job.of([tmp_path / "empty"], 2)


def test_an_unfinished_job_is_not_published(source, tmp_path):
    store, job = ShardStore(tmp_path / "store"), Job.of([source], SHARDS)
    build_shard(job, 0, store)
    with pytest.raises(DataError, match="1 of 2 shards are not built"):
        publish(job, store)


@pytest.fixture
def cluster(built, tmp_path):
    """Two replicas of each shard, and a router; each shard's log is as the other tests left it."""
    replicas = [
        [start(built, number, tmp_path / f"copy{number}{letter}") for letter in "ab"] for number in range(SHARDS)
    ]
    shards = [a for pair in replicas for a in ("--shard", ",".join(one.url for one in pair))]
    router = Running("cluster", "route", *shards, "--port", 0, "--writable", "--threads", 1)
    with weft.connect(router.url, timeout=60) as remote:
        yield remote, replicas
    for one in (router, *replicas[0], *replicas[1]):
        one.stop()


def start(store, number, folder, port=0):
    return Running(
        "cluster", "replica", store.url, "--shard", number, "--folder", folder, "--port", port, "--threads", 1
    )


def post(remote, path, body):
    return remote._do(remote._calls.post(path, body))


def test_what_is_written_is_read_by_whoever_asks_for_it(cluster):
    remote, replicas = cluster
    written = post(remote, "/documents", {"documents": [{"id": f"n{n}", "text": f"Zebra {n} runs."} for n in range(9)]})
    assert written["added"] == 9
    assert written["ids"] == [f"n{n}" for n in range(9)]
    asked = {"query": "zebra", "k": 20, "fields": ["text"], "at_least": written["version"]}
    for _ in range(6):  # whichever replica answers
        found = post(remote, "/search", asked)["results"][0]["hits"]
        assert {f"n{n}" for n in range(9)} <= {hit["id"] for hit in found}
    for pair in replicas:
        for one in pair:  # each by itself, at the version that the write returned
            with weft.connect(one.url) as alone:
                mine = dict(p.split(":") for p in written["version"].split(","))
                number = replicas.index(pair)
                post(alone, "/search", {"query": "zebra", "at_least": mine[str(number)]})
                assert all(name in alone for name in written["ids"] if shard_of(name, SHARDS) == number)
    assert remote.add({"n1": "Zebra 1 sleeps."}).updated == 1
    assert remote.add({"n1": "Zebra 1 sleeps."}).unchanged == 1
    gone = post(remote, "/documents/delete", {"ids": [f"n{n}" for n in range(9)]})
    assert gone["deleted"] == 9
    found = post(remote, "/search", {**asked, "at_least": gone["version"]})["results"][0]["hits"]
    assert not {hit["id"] for hit in found} & {f"n{n}" for n in range(9)}
    assert post(remote, "/search", {"query": "x", "at_least": gone["version"]})["shards_ok"] == SHARDS
    with pytest.raises(ServerError, match="does not exist"):
        remote.search("zebra", at_least="0:100000")


def test_a_client_reads_what_it_wrote(cluster):
    remote, _ = cluster
    assert remote.written is None
    for at in range(6):  # whichever replica answers, and in either shard
        remote.add({f"y{at}": f"Yak {at} climbs."})
        assert f"y{at}" in {m.id for m in remote.search("yak", 40, at_least=remote.written)}
        remote.delete([f"y{at}"])
        assert f"y{at}" not in {m.id for m in remote.search("yak", 40, at_least=remote.written)}
    assert {pair.partition(":")[0] for pair in remote.written.split(",")} == {"0", "1"}


def test_a_killed_writer_loses_nothing_that_it_answered(cluster, built, tmp_path):
    remote, replicas = cluster
    acknowledged, failures, stop = [], [], threading.Event()

    def write():
        at = 0
        with weft.connect(remote._url, timeout=60) as mine:
            while not stop.is_set():
                at += 1
                try:
                    mine.add({f"w{at}": f"Whale {at} swims."})
                    acknowledged.append(f"w{at}")
                except ServerError as error:
                    failures.append(str(error))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        while len(acknowledged) < 15:
            assert thread.is_alive()
        victim = replicas[0][0]
        port = int(victim.url.rpartition(":")[2])
        victim.kill()
        known = len(acknowledged)
        while len(acknowledged) < known + 10:  # the other replica writes
            assert thread.is_alive()
        replicas[0][0] = start(built, 0, tmp_path / "another machine", port)  # with nothing but the store
    finally:
        stop.set()
        thread.join()
    assert failures == []
    closing = {shard_of(f"last{n}", SHARDS): {"id": f"last{n}", "text": "The last whale."} for n in range(20)}
    version = post(remote, "/documents", {"documents": list(closing.values())})["version"]
    reached = dict(part.split(":") for part in version.split(","))
    for number, pair in enumerate(replicas):
        for one in pair:  # replicas follow the shard's log: each is asked for what has been answered
            with weft.connect(one.url) as alone:
                post(alone, "/search", {"query": "whale", "at_least": reached[str(number)]})
                assert all(name in alone for name in acknowledged if shard_of(name, SHARDS) == number)
    assert all(name in remote for name in acknowledged)


class _Starting(BaseHTTPRequestHandler):
    """A server that listens already and has not opened its index yet."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"detail": "the server is starting"}'
        self.send_response(503)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_while_a_writer_starts_the_other_replica_writes(built, tmp_path):
    async def write(*urls):
        shard = Replicas("shard0", urls)
        try:
            return await shard.write("/documents", b'{"documents": [{"id": "s1", "text": "A seal dives."}]}')
        finally:
            shard.close()

    other = start(built, 0, tmp_path / "other")
    with HTTPServer(("127.0.0.1", 0), _Starting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        starting = f"http://127.0.0.1:{server.server_port}"
        try:
            assert asyncio.run(write(starting, other.url)).status == 200
            with weft.connect(other.url) as alone:
                assert "s1" in alone
            with pytest.raises(ShardError, match="the server is starting"):
                asyncio.run(write(starting))
        finally:
            server.shutdown()
            other.stop()


def test_two_writers_make_one_history(built, tmp_path):
    one, two = (open_replica(built, 1, tmp_path / name) for name in "ab")
    try:
        one.logged.catch_up()
        two.logged.catch_up()
        one.add({"same": "First."})
        two.add({"same": "Second.", "other": "Third."})  # behind the other: it reads before it writes
        one.delete(["other"])
        for texts in (one, two):
            texts.logged.catch_up()
        assert one.get("same").text == two.get("same").text == "Second."
        assert "other" not in one
        assert "other" not in two
        assert one.logged.position == two.logged.position
        assert list(one) == list(two)
        assert [m.id for m in one.search("ships", 5)] == [m.id for m in two.search("ships", 5)]
    finally:
        one.close()
        two.close()


def test_a_copy_goes_on_where_it_was(built, tmp_path):
    with open_replica(built, 0, tmp_path) as texts:
        texts.add({"again": "Once more."})
        at = texts.logged.position
    with open_replica(built, 0, tmp_path) as texts:
        assert texts.logged.position == at
        assert "again" in texts
        assert not texts.check().problems


@pytest.mark.parametrize("stored", ["now", "by 0.2.0"])
def test_a_copy_is_opened_and_searched_while_it_is_written(built, tmp_path, monkeypatch, stored):
    """Whatever mode the store's file has: in SQLite's other one, readers wait for writers, and a journal lies there."""
    store = ShardStore(tmp_path / "store")
    folder = built.fetch_shard(built.latest().shards[0], tmp_path / "made")
    if stored == "by 0.2.0":
        monkeypatch.setattr("weft.storage.snapshot.write_ahead", lambda _: None)
    shard = store.put_shard("one", folder)
    store.publish([shard], parent=None)
    with open_replica(store, 0, tmp_path / "here") as texts:
        number = len(texts)
        with texts.index.committing() as catalogue:
            catalogue.set("written", "not yet committed")
            with weft.TextIndex.open(tmp_path / "here" / "one") as reader:
                assert len(reader) == number
                assert reader.search("ships", 1, alignment="top-k:1")
        texts.add({"again": "Once more."})
        assert sorted(path.name for path in (tmp_path / "here" / "one").glob("*-journal")) == []


def test_copies_of_the_dead_are_removed(tmp_path):
    first, lock = own_folder(tmp_path / "here", "1-0-7")
    first.mkdir()
    second, alive = own_folder(tmp_path / "here", "1-0-8")
    second.mkdir()
    assert first.exists()
    lock.close()  # as the system does when a process dies
    third, other = own_folder(tmp_path / "here", "1-1-9")
    with alive, other:
        assert not first.exists()
        assert second.exists()
        assert not third.exists()


def test_a_compacted_version_has_what_was_written_and_what_will_be(source, tmp_path):
    store, job = ShardStore(tmp_path / "store"), Job.of([source], SHARDS)
    for number in range(SHARDS):
        build_shard(job, number, store)
    first = publish(job, store)
    with open_replica(store, 0, tmp_path / "old", version=1) as old:
        old.add({"early": "Zebra one."})
        made = compact(store, scratch=tmp_path)
        assert (made.version, made.parent, made.documents) == (2, 1, first.documents + 1)
        assert made.shards[1] == first.shards[1]  # nothing was written there
        old.add({"late": "Zebra two."})  # the version before is still served
        with open_replica(store, 0, tmp_path / "new") as new:
            assert "early" in new
            assert "late" not in new
            new.logged.catch_up()
            assert "late" in new
            assert sorted(new) == sorted(old)
            assert not new.check().problems
    again = compact(store, scratch=tmp_path)
    assert (again.version, again.documents) == (3, first.documents + 2)
    assert compact(store, scratch=tmp_path) == again
    assert not list(tmp_path.glob("weft-compact-*"))


def test_a_replica_serves_what_it_has_while_the_store_fails(built, tmp_path):
    with open_replica(built, 0, tmp_path / "a") as texts, open_replica(built, 0, tmp_path / "b") as other:
        texts.logged.catch_up()
        before = len(texts)
        reachable, texts.logged.log._blobs = texts.logged.log._blobs, Unreachable()
        with pytest.raises(StorageError):
            texts.logged.catch_up()
        with pytest.raises(StorageError):
            texts.add({"nowhere": "It is not promised."})
        assert "nowhere" not in texts
        assert texts.search("ships", 5)
        other.add({"beside": "Meanwhile."})
        texts.logged.log._blobs = reachable
        texts.logged.catch_up()
        assert "beside" in texts
        assert len(texts) > before


def test_a_slow_store_holds_up_no_search(built, tmp_path):
    asked, goes_on = threading.Event(), threading.Event()

    class Slow(FolderBlobs):
        def read(self, key):
            asked.set()
            assert goes_on.wait(60)
            return super().read(key)

    with open_replica(built, 0, tmp_path / "a") as texts:
        texts.logged.log._blobs = Slow(built.blobs.folder)
        follower = threading.Thread(target=texts.logged.catch_up)
        follower.start()
        try:
            assert asked.wait(60)
            assert texts.search("ships", 5)  # while the store does not answer
        finally:
            goes_on.set()
            follower.join()


class Unreachable:
    """A store behind a broken line."""

    url = "s3://far"

    def read(self, key):
        raise StorageError(f"{self.url}/{key} cannot be read: no route")

    def create(self, key, data):
        raise StorageError(f"{self.url}/{key} cannot be written: no route")


@pytest.mark.parametrize(
    ("url", "said"), [("ray://", "HOST:PORT/NAME"), ("ray://a:1/b/c", "HOST:PORT/NAME"), ("ftp://a", "http://")]
)
def test_addresses_that_lead_nowhere_are_one_line(url, said):
    with pytest.raises(ValueError, match=said):
        weft.connect(url)


def test_a_node_without_a_token_is_one_line(tmp_path):
    from weft.cluster.nodes import command, environment

    with pytest.raises(DataError, match="no token: run ray get-auth-token"):
        environment({"HOME": str(tmp_path)})
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("one for all")
    head = environment({"HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled"}, storage=tmp_path / "head")
    assert head["RAY_AUTH_MODE"] == "token"  # whatever was set
    assert head["RAY_gcs_storage_path"] == str(tmp_path / "head")
    assert "--node-ip-address=10.0.0.7" in command("10.0.0.7", join=None)


@pytest.mark.parametrize(("mode", "shown"), [(None, "token"), ("disabled", "disabled")])
def test_whoever_has_a_token_shows_it(tmp_path, monkeypatch, mode, shown):
    from weft.cluster.nodes import show_token

    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that what is set here is gone after the test
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    show_token()
    assert "RAY_AUTH_MODE" not in os.environ
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("one for all")
    show_token()
    assert os.environ["RAY_AUTH_MODE"] == shown


def test_a_damaged_entry_is_told(tmp_path):
    store = ShardStore(tmp_path)
    log = ShardLog(store.blobs, "one")
    vectors = weft.TokenVectors.from_list([[[1.0, 0.0]]])
    assert log.append(1, [Addition([weft.Document("a", "text", {"year": 1})], vectors), ["b"]])
    assert not log.append(1, [["c"]])
    added, removed = log.read(1)
    assert added.documents == [weft.Document("a", "text", {"year": 1})]
    assert added.vectors.values.tolist() == [[1.0, 0.0]]
    assert removed == ["b"]
    assert log.read(2) is None
    path = tmp_path / "logs" / "one" / "000000000001.log"
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptIndexError, match="damaged"):
        log.read(1)
