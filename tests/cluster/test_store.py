"""Versions of shards: published whole or not at all, checked when they are read, by whoever comes first."""

import http.server
import shutil
import threading
from datetime import timedelta

import pytest

from weft import Index, TextIndex, TokenVectors
from weft.cluster import blobs
from weft.cluster.blobs import FolderBlobs
from weft.cluster.store import PublishedElsewhereError, ShardStore
from weft.errors import CorruptIndexError, DataError, StorageError


@pytest.fixture(params=["folder", "s3"])
def url(request, tmp_path):
    if request.param == "folder":
        return str(tmp_path / "store")
    return f"{request.getfixturevalue('s3')}/{tmp_path.name}"


@pytest.fixture
def store(tmp_path):
    return ShardStore(tmp_path / "store")


@pytest.fixture
def filled(store, parts):
    """A store with two versions: the first part, then all."""
    shards = [store.put_shard(path.stem, path) for path in parts]
    store.publish(shards[:1], parent=None)
    store.publish(shards, parent=1)
    return store


def test_what_was_put_is_fetched(url, parts, tmp_path):
    store = ShardStore(url)
    shards = [store.put_shard(path.stem, path) for path in parts]
    published = ShardStore(url).publish(shards, parent=None)
    assert published.version == 1
    found = ShardStore(url).latest()
    assert found == published
    for shard, path in zip(found.shards, parts, strict=True):
        here = store.fetch_shard(shard, tmp_path / "here" / shard.name)
        with TextIndex.open(here) as copy, TextIndex.open(path) as original:
            assert list(copy) == list(original)
            assert not copy.check().problems
            assert len(copy) == shard.documents


def test_a_shard_put_twice_is_the_first(url, parts):
    store = ShardStore(url)
    first = store.put_shard("one", parts[0])
    assert ShardStore(url).put_shard("one", parts[1]) == first


def test_of_two_publishers_one_wins(url, parts):
    store = ShardStore(url)
    shards = [store.put_shard(path.stem, path) for path in parts]
    outcomes, together = [], threading.Barrier(8)

    def publish(at):
        together.wait()
        try:
            outcomes.append(ShardStore(url).publish(shards[: at % 3 + 1], parent=None))
        except PublishedElsewhereError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=publish, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [one for one in outcomes if not isinstance(one, str)]
    assert len(won) == 1
    assert len(outcomes) == 8
    assert store.versions() == [1]
    assert store.latest() == won[0]


def test_a_publisher_that_does_not_know_the_newest_is_refused(filled):
    with pytest.raises(PublishedElsewhereError, match=r"version 2 of .* was published in the meantime"):
        filled.publish(filled.manifest(1).shards, parent=1)


@pytest.mark.parametrize("damage", ["torn", "changed", "empty", "stale"])
def test_a_damaged_manifest_leaves_the_last_good_version(filled, damage):
    path = filled.blobs.folder / "versions" / "00000002.json"
    data = path.read_bytes()
    if damage == "stale":
        data = (path.parent / "00000001.json").read_bytes()
    else:
        data = {
            "torn": data[: len(data) // 2],
            "changed": data.replace(b'"documents": ', b'"documents": 9'),
            "empty": b"",
        }[damage]
    path.unlink()
    path.write_bytes(data)
    assert filled.latest().version == 1
    with pytest.raises(CorruptIndexError, match=r"00000002\.json: damaged"):
        filled.manifest(2)


def test_a_missing_file_leaves_the_last_good_version(filled):
    shard = filled.manifest(2).shards[1]
    (filled.blobs.folder / shard.prefix / "catalogue.sqlite").unlink()
    assert filled.latest().version == 1
    with pytest.raises(CorruptIndexError, match=r"catalogue\.sqlite of version 2 is missing"):
        filled.manifest(2)


def test_damage_in_a_service_leaves_the_last_good_version(s3, parts, tmp_path):
    import obstore
    from obstore.store import from_url

    store = ShardStore(f"{s3}/{tmp_path.name}")
    raw = from_url(store.url, client_options={"allow_http": True})  # which can replace and delete
    shards = [store.put_shard(path.stem, path) for path in parts]
    for at in range(3):
        store.publish(shards[: at + 1], parent=at or None)
    manifest = store.blobs.read("versions/00000003.json")
    obstore.put(raw, "versions/00000003.json", manifest[: len(manifest) // 2])
    assert store.latest().version == 2
    with pytest.raises(CorruptIndexError, match=r"s3://.*/versions/00000003\.json: damaged: it is not whole"):
        store.manifest(3)
    obstore.delete(raw, f"{shards[1].prefix}/catalogue.sqlite")
    assert store.latest().version == 1
    with pytest.raises(CorruptIndexError, match=r"catalogue\.sqlite of version 2 is missing"):
        store.manifest(2)


def test_what_cannot_be_read_is_one_error(filled, tmp_path):
    shard = filled.latest().shards[0]
    for key in ("versions/00000002.json", f"{shard.prefix}/catalogue.sqlite"):
        (filled.blobs.folder / key).unlink()
        (filled.blobs.folder / key).mkdir()  # which cannot be read, whoever asks
    with pytest.raises(StorageError, match=r"00000002\.json cannot be read: Is a directory"):
        filled.manifest(2)
    with pytest.raises(StorageError, match=r"catalogue\.sqlite cannot be read: Is a directory"):
        filled.fetch_shard(shard, tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_a_changed_byte_is_found_before_anything_is_served(filled, tmp_path):
    shard = filled.latest().shards[0]
    path = filled.blobs.folder / shard.prefix / "catalogue.sqlite"
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(CorruptIndexError, match=r"catalogue\.sqlite: damaged: its checksum does not fit"):
        filled.fetch_shard(shard, tmp_path / "here")
    assert not (tmp_path / "here").exists()
    assert not list(tmp_path.glob(".fetching-*"))


def test_a_store_without_versions_says_so(store):
    with pytest.raises(DataError, match="nothing is published"):
        store.latest()


def test_an_unknown_version_is_one_line(filled):
    with pytest.raises(DataError, match="has no version 7; it has 1, 2"):
        filled.manifest(7)


def test_a_version_of_no_shards_is_refused(store):
    with pytest.raises(DataError, match="at least one shard"):
        store.publish([], parent=None)


def test_shards_of_other_dimensions_are_refused(store, parts, tmp_path):
    with Index.create(tmp_path / "other.weft", dim=3) as index:
        index.add(["a"], TokenVectors.from_list([[[1.0, 0.0, 0.0]]]))
    shards = [store.put_shard("one", parts[0]), store.put_shard("two", tmp_path / "other.weft")]
    with pytest.raises(DataError, match="must agree in dim"):
        store.publish(shards, parent=None)
    assert store.versions() == []


def test_a_full_or_failing_disk_is_one_error(filled, parts):
    class Failing(FolderBlobs):
        def create(self, key, data):
            if key.startswith("versions/"):
                raise StorageError("no space")
            return super().create(key, data)

    store = ShardStore(Failing(filled.blobs.folder))
    with pytest.raises(StorageError):
        store.publish(store.latest().shards, parent=2)
    assert filled.latest().version == 2


def test_an_index_that_is_being_written_is_put_as_one_state(store, whole, tmp_path):
    path = shutil.copytree(whole, tmp_path / "busy.weft")
    with TextIndex.open(path, lock=True) as texts:
        before = len(texts)
        shard = store.put_shard("busy", path)
        texts.add({"later": "A text that came later."})
    assert shard.documents == before
    with TextIndex.open(store.fetch_shard(shard, tmp_path / "here")) as copy:
        assert len(copy) == before
        assert not copy.check().problems


class Failing(http.server.BaseHTTPRequestHandler):
    """A service of S3 that cannot do anything today."""

    def _fail(self):
        self.send_response(503)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_PUT = do_HEAD = _fail  # noqa: N815

    def log_message(self, *_):
        pass


class Silent(http.server.BaseHTTPRequestHandler):
    """One that takes requests and does not answer them, until the test is over."""

    over = threading.Event()

    def _wait(self):
        self.over.wait(60)

    do_GET = do_PUT = do_HEAD = _wait  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.fixture
def service(request, monkeypatch):
    """A bucket of a service that answers as a handler does."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), request.param)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    yield "s3://notes"
    Silent.over.set()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("service", [Failing, Silent], indirect=True)
def test_a_service_that_fails_or_is_silent_is_one_error(service, monkeypatch):
    monkeypatch.setattr(blobs, "TIMEOUT", timedelta(seconds=0.5))
    monkeypatch.setattr(blobs, "RETRIES", {"max_retries": 1, "retry_timeout": timedelta(seconds=1)})
    store = ShardStore(service)
    with pytest.raises(StorageError, match=r"s3://notes.*cannot be listed"):
        store.latest()
    with pytest.raises(StorageError, match=r"s3://notes/versions/00000001\.json cannot be read"):
        store.manifest(1)
    with pytest.raises(StorageError, match=r"s3://notes/current/1 cannot be written"):
        store.blobs.create("current/1", b"")


def test_other_addresses_are_refused():
    with pytest.raises(DataError, match=r"a store is a folder or s3://bucket/prefix, not ftp://here"):
        ShardStore("ftp://here")
