"""Every refusal: the documented status, one clear line, no path, no traceback, and the server goes on."""

import asyncio
import base64
import json
import socket

import pytest

from weft.errors import DataError, InvalidParameterError
from weft.serving.endpoints import Bodies
from weft.serving.keys import Keys
from weft.serving.naming import named
from weft.serving.problems import RefusedError
from weft.serving.running import check_exposed

NOTES = "/v1/indexes/notes"
SEARCH = f"{NOTES}/search"
WORDS = " ".join(["word"] * 10_000)
DEEP = "(" * 500 + "a" + ")" * 500


def refused(answer, status, *words):
    assert answer.status_code == status, answer.text
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert "Traceback" not in answer.text
    assert "/" not in problem["detail"].replace("application/json", "").replace("a/b", "")
    for word in words:
        assert word in problem["detail"]


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"query": ""}, 422, "query"),
        ({"query": " \n"}, 422, "query"),
        ({}, 422, "one of query, queries and vectors"),
        ({"query": "a", "queries": ["b"]}, 422, "one of"),
        ({"query": WORDS}, 422, "8,192 characters"),
        ({"query": "a", "k": 0}, 422, "k"),
        ({"query": "a", "k": -1}, 422, "k"),
        ({"query": "a", "k": 10**9}, 422, "1000"),
        ({"query": "a", "k": 10**30}, 422, "k"),
        ({"query": "a", "k": "10"}, 422, "k"),
        ({"query": "a", "k": 1.5}, 422, "k"),
        ({"query": "a", "n_probe": 10**7}, 422, "n_probe"),
        ({"query": "a", "k_prime": 10**9}, 422, "k_prime"),
        ({"query": "a", "refine": 10**9}, 422, "refine"),
        ({"query": "a", "beta_q": 2}, 422, "beta_q"),
        ({"query": "a", "alignment": "nonsense"}, 422, "alignment"),
        ({"query": "a", "alignment": "xtr:1000000000"}, 422, "k_prime"),
        ({"query": "a", "alignment": "xtr-in-batch:8"}, 422, "alignment"),
        ({"query": "a", "alignment": "x" * 1000}, 422, "alignment"),
        ({"query": "a", "filter": "year =="}, 422, "filter"),
        ({"query": "a", "filter": DEEP}, 422, "nested"),
        ({"query": "a", "filter": "a or " * 5000 + "a"}, 422, "filter"),
        ({"query": "a", "filter": "1; DROP TABLE documents"}, 422, "filter"),
        ({"query": "a", "hybrid": "both"}, 422, "hybrid"),
        ({"query": "a", "fields": ["vectors"]}, 422, "fields"),
        ({"query": "a", "model": "../../etc"}, 422, "model"),
        ({"query": 7}, 422, "query"),
        ({"queries": []}, 422, "queries"),
        ({"queries": ["a"] * 65}, 422, "64"),
        ({"vectors": []}, 422, "vectors"),
        ({"vectors": [{"values": [[1.0, 2.0]]}]}, 422, "128"),
        ({"vectors": [{"values": []}]}, 422, "token vectors"),
        ({"vectors": [{"base64": "?"}]}, 422, "base64"),
        ({"vectors": [{"base64": base64.b64encode(b"abc").decode()}]}, 422, "float16"),
        ({"vectors": [{"base64": base64.b64encode(b"\xff" * 256).decode()}]}, 422, "65504"),
        ({"vectors": [{"values": [[3e38] * 128]}], "alignment": "xtr"}, 422, "65504"),
        ({"vectors": [{"values": [[-1e300] * 128]}]}, 422, "65504"),
        ({"query": "a", "at_least": "9" * 5000}, 422, "at_least"),
        ({"vectors": [{"base64": base64.b64encode(bytes(256 * 1025)).decode()}]}, 422, "1024"),
        ({"vectors": [{"base64": base64.b64encode(bytes(256)).decode()}], "hybrid": "rrf"}, 422, "hybrid"),
        ({"vectors": [{"base64": base64.b64encode(bytes(256)).decode()}], "fields": ["snippet"]}, 422, "fields"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_searches(reader, body, status, word):
    refused(reader.post(SEARCH, body), status, word)


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b'{"query": "\xff"}', 400),
        (b'{"query": "\\ud800"}', 400),
        (b'{"query": NaN}', 400),
        (b"[" * 100_000, 422),
        (b'{"a":' * 50_000, 422),
        (b"null", 422),
        (b"[]", 422),
        (b'"query"', 422),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_bodies_that_are_no_request(reader, content, status):
    answer = reader.http.post(SEARCH, content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (status, 400), answer.text
    refused(answer, answer.status_code)


def test_nul_and_control_characters_do_no_harm(reader):
    assert reader.post(SEARCH, {"query": "a\0b\x1b[2J", "k": 1}).status_code == 200
    refused(reader.http.get(f"{NOTES}/documents/%00"), 404)
    refused(reader.post(SEARCH, {"query": "a", "filter": "\0"}), 422, "filter")
    refused(reader.http.get("/v1/indexes/%00"), 404)


@pytest.mark.parametrize("name", ["..", "%2e%2e", "..%2f..%2fetc", "no%20such", "notes.weft", "N" * 300, "%ff", "-rf"])
def test_names_are_only_looked_up(reader, name):
    refused(reader.http.get(f"/v1/indexes/{name}/documents/x"), 404)
    refused(reader.post(f"/v1/indexes/{name}/search", {"query": "a"}), 404)


@pytest.mark.parametrize(
    ("headers", "together", "status"), [({}, 1000, 413), ({b"content-length": b"101"}, 1000, 413), ({}, 50, 503)]
)
def test_bodies_are_counted_as_they_come(headers, together, status):
    """Whatever a client says of the length, or does not: what is read is bounded, one by one and together."""
    bodies, read = Bodies(100, 60, together), []

    async def receive():
        read.append(30)
        assert len(read) < 10
        return {"type": "http.request", "body": b"x" * 30, "more_body": True}

    with pytest.raises(RefusedError) as refused:
        asyncio.run(bodies.read(headers, receive))
    assert refused.value.status == status
    assert sum(read) <= 120
    assert bodies._held == 0  # others have their share again


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_other_content_types_are_refused(reader, kind):
    """A form or a plain text is all that a page of another site can send without being asked."""
    refused(reader.http.post(SEARCH, content=b'{"query": "a"}', headers={"content-type": kind}), 415)


def test_paths_and_methods(reader):
    refused(reader.http.get("/v1/nothing"), 404)
    refused(reader.http.get(SEARCH), 405)
    refused(reader.http.put(f"{NOTES}/documents/a", content=b""), 405)
    refused(reader.http.delete(f"{NOTES}/documents/no-such"), 404, "no document")
    refused(reader.post(f"{NOTES}/explain", {"query": "a", "id": "no such"}), 404, "no document")


@pytest.mark.parametrize(
    ("document", "word"),
    [
        ({"id": "a"}, "text"),
        ({"id": "a", "text": ""}, "text"),
        ({"id": "", "text": " "}, "text"),
        ({"id": "x" * 513, "text": "a"}, "512"),
        ({"id": "a\nb", "text": "a"}, "control"),
        ({"id": "a", "text": "b", "metadata": {"weft": {}}}, "weft"),
        ({"id": "a", "text": "b", "metadata": 3}, "metadata"),
        ({"id": "a", "text": "x" * 1_000_001}, "1,000,000"),
        ({"id": "a", "text": "b", "more": 1}, "more"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_documents(reader, document, word):
    refused(reader.post(f"{NOTES}/documents", {"documents": [document]}), 422, word)


def test_lists_of_documents(reader):
    refused(reader.post(f"{NOTES}/documents", {"documents": []}), 422, "1000")
    refused(reader.post(f"{NOTES}/documents", {"documents": [{"text": "a"}] * 1001}), 422, "1000")
    refused(reader.post(f"{NOTES}/documents", {"documents": [{"id": "a", "text": "b"}] * 2}), 422, "once")
    refused(reader.post(f"{NOTES}/documents/delete", {"ids": []}), 422, "ids")


def test_a_server_for_reading_writes_nothing(start, built):
    server = start(built, "--read-only")
    refused(server.post(f"{NOTES}/documents", {"documents": [{"text": "a"}]}), 403, "reading only")
    refused(server.http.delete(f"{NOTES}/documents/long"), 403)
    refused(server.post(f"{NOTES}/compact", None), 403)


def test_an_index_that_another_process_writes_is_told(start, index):
    from weft import TextIndex

    server = start(index)
    with TextIndex.open(index, lock=True):
        refused(server.post(f"{NOTES}/documents", {"documents": [{"text": "a"}]}), 409, "another process")
    assert server.post(f"{NOTES}/documents", {"documents": [{"text": "a"}]}).status_code == 200


KEYS = ["look read looking-is-allowed", "pen write writing-is-allowed", f"boss admin sha256:{'0' * 64}"]


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def test_keys_and_their_scopes(start, index, tmp_path):
    file = tmp_path / "keys"
    file.write_text("# who may do what\n" + "\n".join(KEYS[:2]) + "\nboss admin administrating-too\n")
    server = start(index, "--keys", file)
    look, pen, boss = (bearer(key) for key in ("looking-is-allowed", "writing-is-allowed", "administrating-too"))
    add = {"documents": [{"id": "k", "text": "Locks and keys."}]}
    for headers in (
        {},
        bearer("looking-is-allowe"),
        {"authorization": "Bearer"},
        {"authorization": "Basic abc"},
        {"authorization": b"Bearer " + b"\xff" * 20},
    ):
        refused(server.post(SEARCH, {"query": "a"}, headers=headers), 401, "key")
        refused(server.http.get("/metrics", headers=headers), 401)
        refused(server.http.get("/v1/indexes/unknown", headers=headers), 401)
    assert server.post(SEARCH, {"query": "a"}, headers=look).status_code == 200
    refused(server.post(f"{NOTES}/documents", add, headers=look), 403, "write")
    assert server.post(f"{NOTES}/documents", add, headers=pen).status_code == 200
    refused(server.post(f"{NOTES}/compact", None, headers=pen), 403, "admin")
    assert server.post(f"{NOTES}/compact", None, headers=boss).status_code == 200
    assert server.http.get("/healthz").status_code == server.http.get("/readyz").status_code == 200


def test_a_key_is_checked_before_the_body_is_read(start, built):
    server = start(built, limits={}, keys=KEYS)
    with socket.create_connection(server.address, timeout=30) as client:
        head = f"POST {SEARCH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n"
        client.sendall(head.encode())  # and not a byte of the body
        assert client.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_keys_may_come_from_the_environment(start, built):
    server = start(built, environment={"WEFT_KEYS": ";".join(KEYS)})
    refused(server.http.get("/v1/indexes"), 401)
    assert server.http.get("/v1/indexes", headers=bearer("looking-is-allowed")).status_code == 200


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        (["a read"], "name scope key"),
        (["a root a-very-long-secret"], "read, write, admin"),
        (["a read short"], "16 characters"),
        (["a read sha256:12"], "64 hexadecimal"),
        (["a read a-very-long-secret", "a write another-long-secret"], "twice"),
        (["# nothing"], "no key"),
    ],
)
def test_files_of_keys(lines, word):
    with pytest.raises(DataError, match=word):
        Keys.parse(lines)


def test_a_key_that_asks_too_often_waits(start, built):
    server = start(built, limits={"rate": 0.5}, keys=KEYS)
    look = bearer("looking-is-allowed")
    assert server.http.get(NOTES, headers=look).status_code == 200
    answer = server.http.get(NOTES, headers=look)
    refused(answer, 429)
    assert 1 <= int(answer.headers["retry-after"]) <= 2
    assert server.http.get(NOTES, headers=bearer("writing-is-allowed")).status_code == 200


def test_without_keys_only_this_machine_is_served(start, built):
    with pytest.raises(InvalidParameterError, match="--keys"):
        check_exposed("0.0.0.0", None)
    check_exposed("0.0.0.0", Keys.parse(KEYS))
    check_exposed("::1", None)
    server = start(built)
    refused(server.http.get("/v1/indexes", headers={"host": "evil.example"}), 421, "own name")
    assert server.http.get("/v1/indexes", headers={"host": "localhost:99"}).status_code == 200
    refused(server.http.get("/v1/indexes", headers={"origin": "https://evil.example"}), 403, "other sites")
    same = server.http.get("/v1/indexes", headers={"origin": server.url})
    assert same.status_code == 200
    assert "access-control-allow-origin" not in same.headers


def test_sites_that_are_named_may_call(start, built):
    server = start(built, "--cors", "https://friend.example")
    headers = {"origin": "https://friend.example"}
    assert server.http.get("/v1/indexes", headers=headers).headers["access-control-allow-origin"] == headers["origin"]
    asked = {**headers, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    assert server.http.options(SEARCH, headers=asked).status_code == 200
    refused(server.http.get("/v1/indexes", headers={"origin": "https://evil.example"}), 403)


def test_indexes_need_names_of_their_own(tmp_path):
    with pytest.raises(DataError, match="two indexes"):
        named([tmp_path / "a.weft", tmp_path / "b" / "a.weft"])
    with pytest.raises(DataError, match="no name"):
        named([tmp_path / "ä b.weft"])


def test_the_command_line_refuses_in_one_line(built, capsys, tmp_path):
    from weft.cli.main import main

    for arguments in (
        [str(built), "--host", "0.0.0.0"],
        [str(tmp_path / "none.weft")],
        [str(built), "--keys", str(tmp_path / "none")],
        [str(built), "--rate", "0"],
    ):
        assert main(["serve", *arguments]) == 1
        assert capsys.readouterr().err.count("\n") == 1


def test_the_deadline_stops_what_waits_and_what_runs(start, built):
    server = start(built, limits={"seconds": 0.002})
    refused(server.post(SEARCH, {"queries": ["a long way to go"] * 60}), 504)
    with_time = start(built, limits={"seconds": 30})
    assert with_time.post(SEARCH, {"query": "a"}).status_code == 200


def test_a_full_queue_says_when_to_come_again(start, built):
    """One thread's work and a queue of one: of thirty requests at a time most are refused, none fails."""
    import asyncio

    import httpx2

    server = start(built, limits={"waiting": 1})

    async def crowd():
        async with httpx2.AsyncClient(base_url=server.url, timeout=60) as http:
            body = {"queries": [f"question number {n}" for n in range(20)]}
            return await asyncio.gather(*(http.post(SEARCH, json=body) for _ in range(30)))

    answers = asyncio.run(crowd())
    busy = [answer for answer in answers if answer.status_code == 503]
    assert busy
    assert {answer.status_code for answer in answers} == {200, 503}
    refused(busy[0], 503, "busy")
    assert busy[0].headers["retry-after"] == "1"
    assert json.loads(server.http.get("/readyz").content) == {"status": "ready"}
