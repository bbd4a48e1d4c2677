"""Connections of a router: frames are answered like requests, refused like requests, and end with the server."""

import contextlib
import re
import socket
import threading
import time

import msgspec
import pytest

from weft.serving import parts, streams
from weft.types import TokenVectors

PATH = "/v1/indexes/notes/parts"
QUERY = "how do whales sleep"


class Router:
    """One connection, as a router opens it."""

    def __init__(self, address, path=PATH, headers=("upgrade: weft-parts", "connection: upgrade")):
        self.socket = socket.create_connection(address, 30)
        lines = [f"GET {path} HTTP/1.1", "host: 127.0.0.1", *headers]
        self.socket.sendall("".join(f"{line}\r\n" for line in lines).encode() + b"\r\n")
        self.answer = b""
        while not self.answer.endswith(b"\r\n\r\n"):
            got = self.socket.recv(1)
            assert got
            self.answer += got

    def ask(self, step, request, cut=None):
        body = request if isinstance(request, bytes) else msgspec.msgpack.encode(request)
        data = streams.REQUEST.pack(len(body), parts.NUMBERS[step]) + body
        for piece in (data,) if cut is None else (data[:cut], data[cut:]):
            self.socket.sendall(piece)
        size, status = streams.ANSWER.unpack(self._exactly(streams.ANSWER.size))
        return status, self._exactly(size)

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            assert more
            data += more
        return data

    def ended(self):
        with contextlib.suppress(ConnectionResetError):
            return self.socket.recv(1) == b""
        return True


def request(texts, **options):
    tokens: TokenVectors = texts.encoder.encode_query([QUERY])
    return parts.PartRequest(query=QUERY, tokens=parts.Tokens.of(tokens, readable=True), k=5, **options)


@pytest.fixture
def connected():
    """Open connections; all are closed at the end."""
    made = []

    def begin(server, *options, **named):
        made.append(Router(server.address, *options, **named))
        return made[-1]

    yield begin
    for one in made:
        one.socket.close()


def ids(data):
    return [hit.id for hit in msgspec.msgpack.decode(data, type=parts.PartAnswer).hits]


def test_a_frame_is_answered_like_a_request(reader, connected, texts):
    router, asked = connected(reader), request(texts, alignment="top-k:1", fields=("text",))
    assert router.answer == streams.ACCEPTED
    body = msgspec.msgpack.encode(asked)
    by_http = reader.http.post(f"{PATH}/search", content=body, headers={"content-type": "application/msgpack"})
    for cut in (None, 1, 5, 6, len(body)):  # wherever TCP splits it
        assert router.ask("search", asked, cut) == (200, by_http.content)
    answered = r'weft_requests_total{method="POST",route="\S+/parts/words",status="200"} (\S+)'
    before = sum(map(float, re.findall(answered, reader.http.get("/metrics").text)))
    words = msgspec.msgpack.decode(router.ask("words", parts.WordsRequest(query=QUERY))[1], type=parts.WordsAnswer)
    assert words.documents == len(texts)
    (after,) = re.findall(answered, reader.http.get("/metrics").text)
    assert float(after) == before + 1


def test_what_is_wrong_is_told_and_the_connection_goes_on(reader, connected, texts):
    router = connected(reader)
    for asked, status, said in (
        (b"\xc1", 400, "cannot be read"),
        ({"query": 1}, 422, "not as it should be"),
        (request(texts, alignment="nothing"), 422, "alignment"),
        (request(texts, filter="year >"), 422, "filter"),
        (request(texts, at_least=3), 409, "version 3 is not here"),
    ):
        found, body = router.ask("search", asked)
        assert (found, said in msgspec.json.decode(body)["detail"]) == (status, True), body
    assert router.ask("search", request(texts))[0] == 200


@pytest.mark.parametrize("sent", [b"\xff\xff\xff\xff\x00", b"\x00\x00\x00\x00\x63"])
def test_what_is_no_frame_ends_the_connection(reader, connected, sent):
    router = connected(reader)
    router.socket.sendall(sent)
    assert router.ended()
    assert reader.http.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (PATH, (), 400),
        (PATH, ("upgrade: websocket", "connection: upgrade"), 400),
        ("/v1/indexes/nobody/parts", ("upgrade: weft-parts", "connection: upgrade"), 404),
        ("/v1/indexes", ("upgrade: weft-parts", "connection: upgrade"), 200),  # any other route ignores it
    ],
)
def test_other_upgrades_are_refused(reader, connected, path, headers, status):
    assert connected(reader, path, headers).answer.startswith(b"HTTP/1.1 %d " % status)


def test_a_connection_needs_the_key(start, connected, built, tmp_path, texts):
    keys = tmp_path / "keys"
    keys.write_text("router read right-key-of-the-router\n")
    server = start(built, "--keys", keys, "--read-only")
    upgrade = ("upgrade: weft-parts", "connection: upgrade")
    assert connected(server, headers=upgrade).answer.startswith(b"HTTP/1.1 401 ")
    with_key = connected(server, headers=(*upgrade, "authorization: Bearer right-key-of-the-router"))
    assert ids(with_key.ask("search", request(texts))[1])


def test_many_connections_share_the_threads(reader, connected, texts):
    asked, answers = request(texts, exact=True), []
    expected = connected(reader).ask("search", asked)
    routers = [connected(reader) for _ in range(20)]
    threads = [threading.Thread(target=lambda r=r: answers.append(r.ask("search", asked))) for r in routers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 20


def test_a_server_that_is_stopped_ends_them(start, connected, built, texts):
    server = start(built, "--read-only")
    routers = [connected(server) for _ in range(3)]
    assert routers[0].ask("search", request(texts))[0] == 200
    begun = time.monotonic()
    code, said = server.stop()
    assert code == 0, said
    assert time.monotonic() - begun < streams.IDLE_SECONDS  # nobody waited for a frame
    assert all(router.ended() for router in routers)
