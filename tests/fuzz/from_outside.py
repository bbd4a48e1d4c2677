"""Fuzz targets outside the index: files that are read, and requests that are answered."""

import contextlib
import json
import warnings

from fuzz.mutations import mutated
from fuzz.target import OTHER, REFUSED, SAME, Target
from weft.errors import DataError


class Readers(Target):
    """Files of the kinds that are read in any process: text that can be stored, with places inside it, or refused."""

    HTML = (
        "<html><head><title>The fox</title></head><body><h1>Foxes</h1><p>The <b>quick</b> fox.<pre>x = 1</pre></html>"
    )
    BASES = {  # noqa: RUF012
        "text": "A plain text.\r\nWith two lines, and ümlauts.\n".encode(),
        "markdown": b"---\ntitle: Fox\ntags: [a, b]\n---\n# Foxes\n\nThe *fox*.\n\n```py\n# no title\n```\n## More\n",
        "html": HTML.encode(),
        "mail": b"From: a@example.org\nSubject: =?utf-8?q?F=C3=BCchse?=\nContent-Type: multipart/mixed; boundary=b\n\n"
        b"--b\nContent-Type: text/plain; charset=utf-8\n\nFox.\n--b\nContent-Type: text/html\n\n<p>fox</p>\n--b--\n",
        "notebook": json.dumps(
            {
                "cells": [
                    {"cell_type": "markdown", "source": ["# A\n", "text"]},
                    {"cell_type": "code", "source": "x = 1"},
                ]
            }
        ).encode(),
        "code:python": b"import os\n\n\nclass A:\n    def f(self):\n        return 1\n\n\ndef g():\n    return 'x'\n",
        "code:other": b"SELECT * FROM foxes;\n-- quick\n",
    }
    ROWS = {  # noqa: RUF012
        "jsonl": b'{"_id": "a", "text": "The fox", "n": 1}\n{"id": "b", "text": "x", "tags": ["a"]}\nplain\n',
        "csv": b'id,text,n\na,"The ""quick"" fox",1\nb,x,2.5\n',
        "tsv": b"id\ttext\na\tThe fox\nb\tx\n",
    }
    TOKENS = (
        *(b"<div>", b"<!--", b"<![CDATA[", b"</pre>", b"&#55296;", b"&#0;", b"\xff\xfe", b"\xef\xbb\xbf", b"\0", b"\r"),
        *(
            b"---\n",
            b"```",
            b"# ",
            b"[" * 50,
            b"{" * 50,
            b'"',
            b"\\ud800",
            b"--b\n",
            b"=?utf-16?b?2ADYAA==?=",
            b"<" * 99,
        ),
    )

    def __init__(self, folder):
        self._folder = folder

    def attempt(self, rng):
        from weft.sources.extract import extract
        from weft.sources.extracted import Extracted
        from weft.sources.records import Fields, read_rows, record

        kind = rng.choice([*self.BASES, *self.ROWS])
        data = mutated(rng, self.BASES.get(kind) or self.ROWS[kind], self.TOKENS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind in self.ROWS:
                path = self._folder / f"rows.{kind}"
                path.write_bytes(data)
                try:
                    for row in read_rows(path, kind, Fields()):
                        if not isinstance(row.fields, DataError):
                            with contextlib.suppress(DataError):
                                found = record(row.fields, Fields())
                                json.dumps(found, ensure_ascii=False).encode()  # it can be stored
                                assert len(found.text) <= len(data)
                except DataError:
                    return REFUSED
                return OTHER
            try:
                found = extract(data, kind)
            except DataError as error:
                assert "\n" not in str(error)  # noqa: PT017
                return REFUSED
        found.text.encode()
        assert found.text.strip()
        length = len(found.text)
        for places in (found.page_starts, [at for at, _ in found.headings], found.cuts):
            assert list(places) == sorted(places), (kind, places)
            assert all(0 <= at <= length for at in places), (kind, places, length)
        assert Extracted.from_json(json.loads(json.dumps(found.as_json()))).text == found.text
        assert len(found.text) <= 40 * len(data) + 100, "more text than the file justifies"
        return SAME if extract(data, kind) == found else OTHER


def _once(pairs):
    """Return an object as a dict; one with a name twice is as no other."""
    found = dict(pairs)
    return found if len(found) == len(pairs) else object()


class Bodies(Target):
    """Bodies of HTTP requests to a server: an answer or a refusal in JSON, never a fault of the server."""

    VALID = (
        ("/v1/indexes/notes/search", {"query": "red planet", "k": 2, "filter": "n >= 0", "exact": True}),
        ("/v1/indexes/notes/search", {"queries": ["the sky", "dog"], "hybrid": "rrf", "fields": ["text"]}),
        ("/v1/indexes/notes/search", {"vectors": [{"values": [[0.5] * 6, [1, 0, 0, 0, 0, 0]]}], "k": 3}),
        ("/v1/indexes/notes/explain", {"query": "red planet", "id": "mars"}),
        ("/v1/indexes/notes/matching", {"filter": 'n == 1 or @id == "mars"'}),
        ("/v1/indexes/notes/encode", {"texts": ["red planet"], "encoding": "float"}),
    )
    TOKENS = (
        *(b"null", b"1e999", b"-1", b"9" * 40, b'"\\ud800"', b"[" * 200, b'{"a":' * 100, b"\xff", b"\0", b"NaN"),
        *(b',"k":0', b',"k":2147483648', b',"query":7', b'"filter":"' + b"(" * 300, b'"unknown":1,', b"true"),
    )

    def __init__(self, folder):
        import asyncio

        from encoders import light_models
        from weft import TextIndex
        from weft.serving.api import Server

        model = light_models.write(folder / "tiny")
        texts = TextIndex.open(folder / "notes.weft", create=True, model=model)
        texts.add({"mars": "the red planet mars", "sky": "the sky is blue", "dog": "the lazy dog"})
        self._server = Server({"notes": texts}, page=False, threads=1)
        self._server.load()
        self._loop = asyncio.new_event_loop()
        self._right = {}
        for path, body in self.VALID:
            status, answer = self._asked(path, json.dumps(body).encode())
            if status != 404:
                self._right[path, json.dumps(body)] = answer
                assert status == 200, (path, status, answer)
        assert len(self._right) >= 4

    def _asked(self, path, body):
        sent = []

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            sent.append(message)

        headers = [
            (b"host", b"127.0.0.1"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers,
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8080),
        }  # fmt: skip
        self._loop.run_until_complete(self._server(scope, receive, send))
        answer = json.loads(b"".join(message.get("body", b"") for message in sent))
        answer.pop("seconds", None)
        return sent[0]["status"], answer

    def close(self):
        self._server.close()
        self._loop.close()

    def attempt(self, rng):
        path, text = rng.choice(sorted(self._right))
        body = mutated(rng, text.encode(), self.TOKENS)
        status, answer = self._asked(path, body)
        assert status == 200 or 400 <= status < 500, (status, answer)
        try:
            same = json.loads(body, object_pairs_hook=_once) == json.loads(text)
        except (ValueError, RecursionError):
            assert status != 200, "what is no JSON was answered"
            return REFUSED
        if same:
            assert answer == self._right[path, text], (body, answer, self._right[path, text])
            return SAME
        return REFUSED if status != 200 else OTHER
