"""A damaged index behind a server: refused, or served without what is damaged, and every answer says so."""

import asyncio
import json
import subprocess
import sys

import pytest

import weft
from weft import TextIndex


@pytest.fixture
def damaged(index):
    """Notes, one that was added later, and a flipped byte in that one's segment."""
    before = set((index / "segments").iterdir())
    with TextIndex.open(index) as texts, texts.index.merging.paused():
        texts.add({"later": "A telescope on the moon, added later."})
        (file,) = set((index / "segments").iterdir()) - before
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return index


@pytest.mark.parametrize("more", [[], ["--workers", "2"]])
def test_is_not_served_unless_asked(damaged, more):
    """It used to say so and go on, without ever being ready."""
    command = [sys.executable, "-m", "weft", "serve", str(damaged), "--port", "0", "--read-only", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "damaged" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("more", [[], ["--workers", "2"]])
def test_answers_say_what_is_missing(damaged, start, more):
    server = start(damaged, "--on-damage", "skip", "--read-only", *more)
    for body in (
        {"query": "moon telescope"},
        {"queries": ["moon telescope", "a dog"]},
        {"query": "moon telescope", "hybrid": "blend"},
        {"query": "moon telescope", "hybrid": "rrf"},
        {"vectors": [{"values": [[0.1] * server.http.get("/v1/indexes/notes").json()["dim"]]}]},
    ):
        answer = server.post("/v1/indexes/notes/search", body)
        assert answer.status_code == 200, answer.text
        for found in answer.json()["results"]:
            assert found["missing"] == 1, body
            assert found["certified"] is False
            assert found["hits"]
    with weft.connect(server.url) as remote:
        assert remote.search("moon telescope").missing == 1
        assert [found.missing for found in remote.search_many(["moon", "dog"])] == [1, 1]

    async def ask():
        async with weft.connect_async(server.url) as remote:
            return await remote.search("moon telescope")

    assert asyncio.run(ask()).missing == 1


def test_a_sound_index_has_nothing_to_say(reader):
    answer = reader.post("/v1/indexes/notes/search", {"query": "moon"})
    assert "missing" not in json.dumps(answer.json()["results"][0])
    with weft.connect(reader.url) as remote:
        assert remote.search("moon").missing == 0
