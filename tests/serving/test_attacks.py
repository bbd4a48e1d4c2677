"""Clients that mean no good: slow ones, endless ones, and a generated crowd of odd requests. Memory stays flat."""

import contextlib
import socket
import threading

import pytest

NOTES = "/v1/indexes/notes"
MEGABYTE = 2**20
HEAD = f"POST {NOTES}/search HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.fixture(scope="module")
def hasty(built):
    """A server that waits for nobody."""
    import json
    import sys

    from serving.conftest import SCRIPT, Running

    options = {"limits": {"header_seconds": 0.3, "receipt_seconds": 0.3, "body": 8 * MEGABYTE}, "keys": None}
    server = Running([sys.executable, str(SCRIPT), json.dumps(options), str(built)])
    yield server
    server.stop()


def until_closed(client):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            data += part
    return data


def talk(server, first, then=()):
    """Send, as far as the server takes it, and return all that it says until it hangs up."""
    with socket.create_connection(server.address, timeout=60) as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(first)
            for part in then:
                client.sendall(part)
        return until_closed(client)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: localhost\r\n", b"GET / HTTP/1.1\r\nx: "])
def test_headers_that_do_not_come(hasty, sent):
    assert talk(hasty, sent).startswith(b"HTTP/1.1 408 ")


def test_headers_that_drip(hasty):
    """A byte now and then does not start the clock again."""
    with socket.create_connection(hasty.address, timeout=60) as client:
        done = threading.Event()

        def drip():
            with contextlib.suppress(OSError):
                client.sendall(b"GET / HTTP/1.1\r\n")
                while not done.wait(0.02):
                    client.sendall(b"x: y\r\n")

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert until_closed(client).startswith(b"HTTP/1.1 408 ")
        done.set()
        dripping.join()


def test_a_second_request_may_not_drip_either(hasty):
    answer = talk(hasty, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", [b"GET /he"])
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in answer


def test_headers_without_end(hasty):
    lines = b"".join(b"x-%d: %s\r\n" % (n, b"y" * 1000) for n in range(100))
    assert talk(hasty, b"GET / HTTP/1.1\r\n" + lines).startswith(b"HTTP/1.1 431 ")


def test_bodies_that_do_not_come(hasty):
    assert talk(hasty, f"{HEAD}content-length: 100\r\n\r\n{{".encode()).startswith(b"HTTP/1.1 408 ")
    assert talk(hasty, f"{HEAD}transfer-encoding: chunked\r\n\r\n1\r\n{{\r\n".encode()).startswith(b"HTTP/1.1 408 ")


def test_a_body_of_300_megabytes(hasty):
    before = hasty.memory
    part = b"x" * MEGABYTE
    head = f"{HEAD}content-length: {300 * MEGABYTE}\r\n\r\n".encode()
    said = talk(hasty, head, (part for _ in range(300)))
    assert said == b"" or said.startswith(b"HTTP/1.1 413 ")  # a client that does not stop sending may miss the answer
    assert talk(hasty, head).startswith(b"HTTP/1.1 413 ")  # one that waits hears it at once
    assert hasty.memory - before < 32 * MEGABYTE


def test_chunks_without_end(hasty):
    before = hasty.memory
    chunk = b"%x\r\n%s\r\n" % (MEGABYTE, b"x" * MEGABYTE)
    said = talk(hasty, f"{HEAD}transfer-encoding: chunked\r\n\r\n".encode(), (chunk for _ in range(300)))
    assert said.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 408 ")) or said == b""
    assert hasty.memory - before < 64 * MEGABYTE


def test_many_slow_clients_do_not_keep_others_waiting(hasty):
    slow = [socket.create_connection(hasty.address, timeout=60) for _ in range(200)]
    try:
        for client in slow:
            client.sendall(b"POST / HTTP/1.1\r\n")
        assert hasty.post(f"{NOTES}/search", {"query": "moon", "k": 1}).status_code == 200
    finally:
        for client in slow:
            client.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        f"{HEAD}content-length: -1\r\n\r\n".encode(),
        f"{HEAD}content-length: 5\r\ncontent-length: 6\r\n\r\n".encode(),
        f"{HEAD}content-length: {'9' * 40}\r\n\r\n".encode(),
        f"{HEAD}content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".encode(),
    ],
    ids=lambda sent: repr(sent)[-40:],
)
def test_requests_that_are_not_http(hasty, sent):
    said = talk(hasty, sent)
    assert not said or said.startswith(b"HTTP/1.1 4")
    assert hasty.http.get("/healthz").status_code == 200


@pytest.mark.filterwarnings("ignore")  # of the tool's own making
def test_generated_requests_are_never_our_fault(start, index):
    """schemathesis makes requests of all kinds from the OpenAPI document: no 5xx, no answer it does not describe."""
    schemathesis = pytest.importorskip("schemathesis", reason="pip install schemathesis")
    import hypothesis

    server = start(index, limits={"documents": 20})
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    checks = schemathesis.checks
    wanted = [checks.not_a_server_error, *_named(schemathesis, "status_code_conformance", "content_type_conformance")]
    tested, every = 0, list(hypothesis.HealthCheck)
    for result in schema.get_all_operations():
        operation = result.ok()

        @hypothesis.given(case=operation.as_strategy())
        @hypothesis.settings(max_examples=10, deadline=None, database=None, suppress_health_check=every)
        def ask(case):
            case.call_and_validate(checks=wanted)

        ask()
        tested += 1
    assert tested == 15
    assert server.http.get("/readyz").status_code == 200


def _named(schemathesis, *names):
    found = schemathesis.checks.CHECKS.get_by_names(list(names))
    return list(found)
