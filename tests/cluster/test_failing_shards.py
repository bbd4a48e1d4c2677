"""Servers that die under a router: the other replica answers; without one, a clear error or an answer that says so."""

import asyncio
import contextlib
import re
import shutil
import signal
import subprocess
import sys
import time

import httpx2
import msgspec
import pytest

from cluster_processes import Running
from weft import Index
from weft.cluster.replicas import Replicas
from weft.cluster.routing import ShardAt, router
from weft.serving.limits import Limits
from weft.serving.parts import WordsRequest
from weft.serving.pool import Deadline, Pool
from weft.serving.problems import RefusedError
from weft.serving.schemas import SearchRequest

SEARCH = "/v1/indexes/index/search"
SERVE = ("--port", 0, "--threads", 1, "--no-page", "--read-only")


def ask(http, **options):
    # Under top-k each score is its document's own, whichever shards answer.
    body = {"query": "how do whales sleep", "k": 5, "fields": [], "alignment": "top-k:1", **options}
    return http.post(SEARCH, json=body)


def test_a_replica_that_dies_costs_no_query(parts):
    replicas = [[Running("serve", path, *SERVE) for _ in range(2)] for path in parts[:2]]
    shards = [a for pair in replicas for a in ("--shard", ",".join(one.url for one in pair))]
    router = Running("cluster", "route", *shards, "--port", 0, "--threads", 1)
    try:
        with httpx2.Client(base_url=router.url, timeout=30) as http:
            expected = ask(http).json()["results"]
            statuses, answers = [], []
            for at in range(60):
                if at == 10:
                    replicas[0][0].kill()
                if at == 30:
                    replicas[1][1].kill()
                found = ask(http)
                statuses.append(found.status_code)
                answers.append(found.json().get("results"))
            assert statuses == [200] * 60
            assert all(answer == expected for answer in answers)
            replicas[0][1].kill()  # now nobody has the first shard
            strict = ask(http)
            assert strict.status_code == 503
            assert "no server of the shard part0 answers" in strict.json()["detail"]
            partial = ask(http, partial=True).json()
            assert (partial["shards"], partial["shards_ok"]) == (2, 1)
            assert not partial["results"][0]["certified"]
            mine = {hit["id"]: hit["score"] for hit in expected[0]["hits"]}
            kept = [hit for hit in partial["results"][0]["hits"] if hit["id"] in mine]
            assert all(hit["score"] == mine[hit["id"]] for hit in kept)
            for options in ({"alignment": "xtr:40"}, {"hybrid": "blend"}):
                assert ask(http, **options).status_code == 503
                assert ask(http, partial=True, **options).json()["shards_ok"] == 1
    finally:
        for one in (router, *replicas[0], *replicas[1]):
            one.stop()


def test_a_replica_that_is_stopped_costs_no_query_and_a_shard_that_is_ends_it(parts):
    """A stopped process breaks no connection: another replica answers, or the deadline."""
    replicas = [Running("serve", parts[0], *SERVE) for _ in range(2)]
    limits, pool = Limits(seconds=0.5), Pool(1, 10)

    async def searched(routed, deadline):
        request = SearchRequest(query="how do whales sleep", k=3, alignment="top-k:1")
        return [hit.id for hit in (await routed.search(request, Deadline(deadline))).results[0].hits]

    async def ask():
        routed = router("index", [ShardAt(tuple(one.url for one in replicas))])(pool, limits)
        try:
            expected = await searched(routed, 60)
            replicas[0].process.send_signal(signal.SIGSTOP)
            assert [await searched(routed, 60) for _ in range(20)] == [expected] * 20
            replicas[1].process.send_signal(signal.SIGSTOP)
            with pytest.raises(RefusedError) as late:
                await searched(routed, limits.seconds)
            assert late.value.status == 504
            with pytest.raises(RefusedError) as late:
                await routed.get("d1", Deadline(limits.seconds))
            assert late.value.status == 504
            for one in replicas:
                one.process.send_signal(signal.SIGCONT)
            assert [await searched(routed, 60) for _ in range(5)] == [expected] * 5
        finally:
            routed.close()

    try:
        asyncio.run(ask())
    finally:
        pool.close()
        for one in replicas:
            one.process.send_signal(signal.SIGCONT)
            one.stop()


def test_where_only_http_comes_through_steps_go_as_http(parts):
    """A proxy between the router and a shard that knows nothing of upgrades."""
    shard = Running("serve", parts[0], *SERVE)
    host, port = shard.url.removeprefix("http://").split(":")
    seen, passing = [], []

    async def passed_on(reader, writer):
        passing.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head)
                body = await reader.readexactly(int(length.group(1))) if length else b""
                seen.append(head.split(b" HTTP")[0].decode())
                lines = [line for line in head.split(b"\r\n") if not line.startswith((b"upgrade:", b"connection:"))]
                up, down = await asyncio.open_connection(host, int(port))
                down.write(b"\r\n".join(lines) + body)
                answer = await up.readuntil(b"\r\n\r\n")
                size = int(re.search(rb"content-length: (\d+)", answer).group(1))
                writer.write(answer + await up.readexactly(size))
                await closed(down)
        await closed(writer)

    async def closed(writer):
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()

    async def ask():
        async with await asyncio.start_server(passed_on, "127.0.0.1", 0) as proxy:
            there = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
            replicas = [Replicas("part0", [url]) for url in (there, shard.url)]
            steps = [msgspec.msgpack.encode(WordsRequest(query="whales"))] * 3
            found = [[(await one.step("words", body)).body for body in steps] for one in replicas]
            for one in replicas:
                one.close()
            await asyncio.gather(*passing)
        return found

    try:
        through, straight = asyncio.run(ask())
    finally:
        shard.stop()
    assert through == straight
    upgrade, step = "GET /v1/indexes/part0/parts", "POST /v1/indexes/part0/parts/words"
    assert seen == [upgrade, step, step, step]  # tried once


@pytest.mark.parametrize(
    ("shard", "said"), [(",", "--shard needs at least one address"), ("localhost", "must be an address that starts")]
)
def test_bad_addresses_are_one_line(shard, said):
    command = [sys.executable, "-m", "weft", "cluster", "route", "--port", "0", "--shard", shard]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]


def test_shards_of_other_models_are_one_line(parts, tmp_path):
    other = shutil.copytree(parts[1], tmp_path / "other.weft")
    with Index.open(other) as index:
        index.remember_alignment("top-k:2")
    shards = [Running("serve", path, *SERVE) for path in (parts[0], other)]
    try:
        with pytest.raises(pytest.fail.Exception, match="shards of one index must agree in alignment; these have"):
            Running("cluster", "route", *[a for one in shards for a in ("--shard", one.url)], "--port", 0)
    finally:
        for one in shards:
            one.stop()


@pytest.mark.parametrize("key", [None, "right", "wrong"])
def test_shards_ask_the_router_for_their_key(parts, tmp_path, key):
    keys = tmp_path / "keys"
    keys.write_text("router read right-key-of-the-router\n")
    shard = Running("serve", parts[0], *SERVE, "--keys", keys)
    command = ("cluster", "route", "--shard", shard.url, "--port", 0)
    try:
        if key == "right":
            router = Running(*command, WEFT_SHARD_KEY="right-key-of-the-router")
            try:
                with httpx2.Client(base_url=router.url, timeout=30) as http:
                    assert ask(http).status_code == 200
            finally:
                router.stop()
        else:
            with pytest.raises(pytest.fail.Exception, match="send a key"):
                Running(*command, **({} if key is None else {"WEFT_SHARD_KEY": key}))
    finally:
        shard.stop()


def test_a_replica_that_fails_for_days_rests_seconds():
    from weft.cluster.replicas import REST_SECONDS, Replica

    replica = Replica("http://127.0.0.1:1")
    for _ in range(2000):
        replica.bad()
    assert replica.rests
    assert replica._until - time.monotonic() <= 1.2 * REST_SECONDS[1]
    replica.good()
    assert not replica.rests
