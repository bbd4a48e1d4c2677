"""Writes: durable when answered, in groups, beside searches, and drained at the end."""

import asyncio
import signal
import threading

import httpx2

from weft import TextIndex

NOTES = "/v1/indexes/notes"


def test_every_answered_write_survives_kill_9(start, index):
    """Four writers at a time; the server is killed while they write, and what was answered is there."""
    server = start(index)
    answered, enough = set(), threading.Event()

    def write(writer):
        with httpx2.Client(base_url=server.url, timeout=60) as http:
            for n in range(10_000):
                name = f"w{writer}-{n}"
                try:
                    answer = http.post(f"{NOTES}/documents", json={"documents": [{"id": name, "text": f"Note {name}"}]})
                except httpx2.HTTPError:
                    return
                if answer.status_code == 200:
                    answered.add(name)
                    if len(answered) >= 40:
                        enough.set()

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    assert enough.wait(60)
    server.stop(signal.SIGKILL)
    for writer in writers:
        writer.join()
    with TextIndex.open(index) as texts:
        assert sorted(name for name in answered if name not in texts) == []
        assert texts.check().sound
    again = start(index)
    assert (
        again.post(f"{NOTES}/documents", {"documents": [{"id": "after", "text": "After the restart"}]}).status_code
        == 200
    )


def test_writes_that_wait_share_commits(start, index):
    server = start(index)

    async def crowd():
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as http:
            rows = [{"documents": [{"id": f"c{n}", "text": f"Crowd {n}"}]} for n in range(40)]
            return await asyncio.gather(*(http.post(f"{NOTES}/documents", json=row) for row in rows))

    answers = asyncio.run(crowd())
    assert [answer.json() for answer in answers] == [
        {"added": 1, "updated": 0, "unchanged": 0, "ids": [f"c{n}"]} for n in range(40)
    ]
    metrics = server.http.get("/metrics").text
    (commits,) = [float(line.split()[-1]) for line in metrics.splitlines() if line.startswith("weft_commits_total")]
    assert commits < 40


def test_one_document_written_by_many_is_one_of_theirs(start, index):
    """Versions of different length: passages of two of them must never stand beside each other."""
    server = start(index)

    async def crowd():
        async with httpx2.AsyncClient(base_url=server.url, timeout=120) as http:
            texts = [f"Version {n} of the text. " * (1 + 60 * (n % 3)) for n in range(9)]
            rows = [{"documents": [{"id": "same", "text": text}]} for text in texts]
            return await asyncio.gather(*(http.post(f"{NOTES}/documents", json=row) for row in rows))

    assert {answer.status_code for answer in asyncio.run(crowd())} == {200}
    found = server.http.get(f"{NOTES}/documents/same").json()["documents"]
    versions = {word for passage in found for word in passage["text"].split() if word.isdigit()}
    assert len(versions) == 1


def test_searches_go_on_beside_writes(start, index):
    server = start(index)
    wrong, done = [], threading.Event()

    def look():
        with httpx2.Client(base_url=server.url, timeout=60) as http:
            while not done.is_set():
                answer = http.post(f"{NOTES}/search", json={"query": "the moon and the tides", "k": 3})
                if answer.status_code != 200 or len(answer.json()["results"][0]["hits"]) != 3:
                    wrong.append(answer.text)

    looking = [threading.Thread(target=look) for _ in range(3)]
    for thread in looking:
        thread.start()
    for n in range(10):
        rows = [{"id": f"b{n}-{m}", "text": f"Beside {n} {m}"} for m in range(5)]
        assert server.post(f"{NOTES}/documents", {"documents": rows}).json()["added"] == 5
        if n % 3 == 0:
            server.post(f"{NOTES}/documents/delete", {"ids": [f"b{n}-0"]})
    done.set()
    for thread in looking:
        thread.join()
    assert wrong == []


def test_sigterm_answers_what_was_begun(start, index):
    server = start(index)
    rows = [{"id": f"d{n}", "text": f"Drained {n}. " * 40} for n in range(60)]
    answers = []

    def write():
        with httpx2.Client(base_url=server.url, timeout=60) as http:
            answers.append(http.post(f"{NOTES}/documents", json={"documents": rows}))

    writing = threading.Thread(target=write)
    writing.start()
    # The request has begun once its documents wait or are written.
    while _begun(server.http.get("/metrics").text) == 0:
        assert writing.is_alive()
    code, _ = server.stop(signal.SIGTERM)
    writing.join()
    assert code == 0
    assert answers[0].status_code == 200
    with TextIndex.open(index) as texts:
        assert all(f"d{n}" in texts for n in range(60))


def _begun(metrics):
    started = [line for line in metrics.splitlines() if line.startswith("weft_writes_begun_total{")]
    return float(started[0].split()[-1]) if started else 0


def test_the_cache_keeps_ways_of_encoding_apart(start, built):
    """A query that was searched, with saliences for shading, is re-ranked as one that was not."""
    body = {"query": "a query of its own", "documents": ["one text", "and a second query"]}
    fresh, used = start(built), start(built)
    used.post(f"{NOTES}/search", {"query": body["query"]})
    assert used.post("/v1/rerank", body).json()["results"] == fresh.post("/v1/rerank", body).json()["results"]
