"""The search page: a few static files, served with a policy that lets nothing else run."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from weft.serving.endpoints import send_bytes

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
KINDS = {
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
}
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class Page:
    """The page's files, read once and compressed once."""

    def __init__(self) -> None:
        folder = files("weft.serving").joinpath("page_files")
        self.files = {file.name: _File(file.name, file.read_bytes()) for file in folder.iterdir() if "." in file.name}

    def routes(self) -> list[Route]:
        """Return a route for each file; the page itself is at ``/``."""
        return [
            Route("/" if name == "index.html" else f"/page/{name}", file, methods=["GET"])
            for name, file in self.files.items()
        ]


class _File:
    def __init__(self, name: str, data: bytes) -> None:
        self._kind = KINDS[name.rpartition(".")[2]]
        self._data, self._packed = data, gzip.compress(data, 9, mtime=0)
        self._tag = b'"' + hashlib.sha256(data).hexdigest()[:16].encode() + b'"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        headers = scope["weft.headers"]
        more = (*HEADERS, (b"etag", self._tag), (b"vary", b"accept-encoding"))
        if headers.get(b"if-none-match") == self._tag:
            await send_bytes(send, 304, b"", self._kind, more)
        elif b"gzip" in headers.get(b"accept-encoding", b""):
            await send_bytes(send, 200, self._packed, self._kind, (*more, (b"content-encoding", b"gzip")))
        else:
            await send_bytes(send, 200, self._data, self._kind, more)
