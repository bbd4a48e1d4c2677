"""Several processes behind one port: any of them answers, one writes, and one that dies is replaced."""

import os
import signal
from pathlib import Path

import httpx2
import pytest

from weft import TextIndex

NOTES = "/v1/indexes/notes"


@pytest.fixture
def workers(start, index):
    return start(index, "--workers", "3")


def asked(server, method, path, **options):
    """Ask over a connection of its own: the system chooses the worker."""
    with httpx2.Client(base_url=server.url, timeout=60) as http:
        return http.request(method, path, **options)


def children(server):
    listed = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    named = {int(child): Path(f"/proc/{child}/cmdline").read_bytes() for child in listed}
    return [child for child, command in named.items() if b"spawn_main" in command]


def test_what_is_written_by_one_is_found_by_all(workers, index):
    assert len(children(workers)) == 3
    for n in range(12):
        row = {"id": f"w{n}", "text": f"Basalt number {n} cools to columns with six sides."}
        answer = asked(workers, "POST", f"{NOTES}/documents", json={"documents": [row]})
        assert (answer.status_code, answer.json()["added"]) == (200, 1)
        found = asked(workers, "POST", f"{NOTES}/search", json={"query": row["text"], "k": 1}).json()
        assert found["results"][0]["hits"][0]["id"] == f"w{n}"
        assert asked(workers, "GET", f"{NOTES}/documents/w{n}").status_code == 200
    assert asked(workers, "DELETE", f"{NOTES}/documents/w0").json() == {"deleted": 1}
    assert asked(workers, "DELETE", f"{NOTES}/documents/w0").status_code == 404
    metrics = asked(workers, "GET", "/metrics").text  # of all workers together
    counted = [line for line in metrics.splitlines() if line.startswith("weft_requests_total{") and "/search" in line]
    assert sum(float(line.split()[-1]) for line in counted) == 12
    assert 'weft_commits_total{index="notes"} 14.0' in metrics
    code, _ = workers.stop()
    assert code == 0
    with TextIndex.open(index) as texts:
        assert texts.check().sound


def test_keys_lines_and_refusals_are_the_same_everywhere(start, index):
    server = start(index, "--workers", "2", environment={"WEFT_KEYS": "pen write writing-is-allowed"})
    pen = {"authorization": "Bearer writing-is-allowed"}
    for _ in range(8):
        assert asked(server, "POST", f"{NOTES}/documents", json={"documents": []}).status_code == 401
        assert asked(server, "POST", f"{NOTES}/documents", json={"documents": []}, headers=pen).status_code == 422
        assert asked(server, "POST", f"{NOTES}/compact", headers=pen).status_code == 403
        lines = {"content-type": "application/x-ndjson", "x-request-id": "mine", **pen}
        answer = asked(server, "POST", f"{NOTES}/documents?split=no", content=b'{"text": "a"}', headers=lines)
        assert (answer.status_code, answer.json()["request_id"]) == (422, "mine")
        assert answer.headers.get_list("x-request-id") == ["mine"]


def test_a_worker_that_dies_is_started_again(workers):
    for child in children(workers):  # the writer among them
        os.kill(child, signal.SIGKILL)
    said = [workers.process.stderr.readline() for _ in range(3)]
    assert all(b"started again" in line for line in said)
    with httpx2.Client(base_url=workers.url, transport=httpx2.HTTPTransport(retries=20), timeout=60) as http:
        while True:
            try:
                answer = http.post(f"{NOTES}/documents", json={"documents": [{"id": "again", "text": "Once more."}]})
            except httpx2.HTTPError:
                continue
            if answer.status_code == 200:
                break
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "1"
    assert len(children(workers)) == 3


def test_workers_end_with_their_parent(workers):
    those = children(workers)
    workers.stop(signal.SIGKILL)
    while any(alive(child) for child in those):
        pass


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_mistakes_are_told_once(tmp_path, built, capsys):
    from weft.cli.main import main

    assert main(["serve", str(tmp_path / "none.weft"), "--workers", "2"]) == 1
    assert main(["serve", str(built), "--workers", "2", "--host", "0.0.0.0"]) == 1
    assert capsys.readouterr().err.count("\n") == 2
