"""`Server`: indexes as an ASGI application."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.encoders.backend import usable_cpus
from weft.errors import invalid
from weft.serving import routes
from weft.serving.endpoints import Bodies, Endpoint, GoneError, send_json
from weft.serving.keys import Key, Keys, RateLimit
from weft.serving.limits import Limits
from weft.serving.metrics import Metrics
from weft.serving.naming import NAME
from weft.serving.page import Page
from weft.serving.pool import Pool
from weft.serving.problems import TITLES, RefusedError, as_problem
from weft.serving.served import Served
from weft.serving.streams import PATH, Streams
from weft.serving.telemetry import span
from weft.text_index import TextIndex

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_-]{1,64}")
_access = logging.getLogger("weft.serving.access")
_log = logging.getLogger("weft.serving")


class Server:
    """Indexes behind HTTP: an ASGI application. `weft serve` runs one; tests and other programs may too.

    Parameters
    ----------
    indexes : mapping of str to TextIndex
        By the names that clients use. They are closed with the server. A value may also be a function that makes what
        answers for the index.
    keys : Keys, optional
        Without keys everybody may do everything, so the server answers only to names of this machine.
    limits : Limits, optional
    origins : iterable of str
        Other sites whose pages may call the API (CORS).
    hosts : iterable of str
        Names beside this machine's own that requests may be addressed to, where there are no keys.
    writable : bool
    page : bool
        Whether the search page is served at ``/``.
    threads : int, optional
        Searches that run at a time; by default one for each processor.
    writer : path, optional
        The socket of the process that writes, if it is another one.
    """

    def __init__(
        self,
        indexes: Mapping[str, TextIndex | Callable[[Pool, Limits], Any]],
        *,
        keys: Keys | None = None,
        limits: Limits | None = None,
        origins: Iterable[str] = (),
        hosts: Iterable[str] = (),
        writable: bool = True,
        page: bool = True,
        threads: int | None = None,
        writer: Path | None = None,
    ) -> None:
        for name in indexes:
            if not NAME.fullmatch(name):
                raise invalid("indexes", "Server", "named with letters, digits, '.', '_' and '-'", name)
        self.limits = limits or Limits()
        self.keys, self.origins, self.writer = keys, frozenset(origins), writer
        self.hosts = LOOPBACK | set(hosts)
        self.pool = Pool(threads or usable_cpus(), self.limits.waiting)
        self.indexes = {
            name: given(self.pool, self.limits)
            if not isinstance(given, TextIndex)
            else Served(name, given, self.pool, self.limits, writable=writable)
            for name, given in indexes.items()
        }
        self.bodies = Bodies(self.limits.body, self.limits.receipt_seconds, 8 * self.limits.body)
        self.metrics = Metrics(self.pool, self.indexes)
        self.rate = RateLimit(self.limits.rate)
        self.ready = False
        self.announce: Callable[[], None] = lambda: None
        """Called once searches are answered."""
        self.failure: BaseException | None = None
        """Why searches cannot be answered: the model or the index cannot be read."""
        self.give_up: Callable[[], None] = lambda: None
        """Called when there is a `failure`."""
        self.page = Page() if page else None
        self.streams = Streams(self)
        # The router tries one after the other, so what is asked for most often comes first.
        listed = sorted(routes.listed(self.limits), key=lambda route: route[1] != routes.SEARCH)
        self._router = Router(
            [
                Route(path, Endpoint(self, handler, **options), methods=[method], name=path)
                for method, path, handler, options in listed
            ]
            + [Route(PATH, self.streams, methods=["GET"], name=PATH)]
            + ([] if self.page is None else self.page.routes()),
            redirect_slashes=False,
            lifespan=self._lifespan,
        )
        self._app: ASGIApp = self._answer
        if self.origins:
            from starlette.middleware.cors import CORSMiddleware

            self._app = CORSMiddleware(
                self._answer,
                allow_origins=sorted(self.origins),
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["authorization", "content-type", "x-request-id"],
            )

    def served(self, name: str) -> Served:
        """Return an index by its name."""
        found = self.indexes.get(name) if NAME.fullmatch(name) else None
        if found is None:
            raise RefusedError(404, "no index of this name is served here")
        if not self.ready:
            raise RefusedError(503, "the server is starting", retry=1)
        return found

    def load(self) -> None:
        """Load the models; until then searches are refused with 503."""
        for served in self.indexes.values():
            served.load()
        self.ready = True
        self.announce()

    def close(self) -> None:
        """Finish requests in progress, write what is queued, close the indexes."""
        self.ready = False
        self.streams.close()
        self.pool.close()
        for served in self.indexes.values():
            served.close()

    # -- requests ------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._router(scope, receive, send)
        elif scope["type"] == "http":
            await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = time.perf_counter()
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8).encode()
        scope["weft.headers"], scope["weft.request_id"], scope["app"] = headers, request_id, self
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", request_id),
                    (b"x-content-type-options", b"nosniff"),
                    (b"cache-control", b"no-store"),
                ]
            await send(message)

        try:
            self._check_origin(headers)
            with span(f"{scope['method']} {scope['path'][:64]}", http__request__method=scope["method"]):
                await self._router(scope, receive, answer)
        except GoneError:
            status = 499
        except HTTPException as error:  # of Starlette's router: 404 and 405
            await self._refuse(
                answer, RefusedError(error.status_code, TITLES.get(error.status_code, "refused")), request_id
            )
        except Exception as error:
            if status:
                raise
            await self._refuse(answer, as_problem(error), request_id)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - begun
            if not handed_on(scope):
                self.metrics.count(route, scope["method"] if route != "other" else "any", status, seconds)
            if _access.isEnabledFor(logging.INFO):
                _access.info(
                    "request",
                    extra={
                        "request": {
                            "request_id": request_id.decode(),
                            "method": scope["method"],
                            "route": route,
                            "status": status,
                            "seconds": round(seconds, 6),
                            "key": scope.get("weft.key"),
                        }
                    },
                )

    async def _refuse(self, send: Send, problem: RefusedError, request_id: bytes) -> None:
        headers: list[tuple[bytes, bytes]] = [(b"connection", b"close")] if problem.status in (408, 413) else []
        if problem.retry is not None:
            headers.append((b"retry-after", b"%d" % max(1, round(problem.retry))))
        if problem.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        body = {
            "title": TITLES.get(problem.status, "Refused"),
            "status": problem.status,
            "detail": problem.detail.encode("utf-8", "replace").decode(),
            "request_id": request_id.decode(),
        }
        await send_json(send, problem.status, body, tuple(headers))

    def _check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse what pages of other sites send and, without keys, foreign names that point to this machine."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self.keys is None and re.sub(r":\d+$", "", host) not in self.hosts:
            raise RefusedError(421, "this server answers only to its own name; start it with keys for others")
        origin = headers.get(b"origin")
        if origin is not None and origin != b"null":
            named = origin.decode("latin-1").lower()
            if named.partition("://")[2] != host and named not in self.origins:
                raise RefusedError(403, "pages of other sites may not use this server")

    def authorise(self, scope: Scope, needs: str | None) -> Key | None:
        """Return the key of a request; refuse it without one that allows enough, or one used too often."""
        if needs is None:
            return None
        headers, key = scope["weft.headers"], None
        if self.keys is not None:
            kind, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            key = self.keys.find(secret.strip()) if kind.lower() == "bearer" and secret else None
            if key is None:
                raise RefusedError(401, "send a key: authorization: Bearer KEY")
            if not key.allows(needs):
                raise RefusedError(403, f"this needs a key with the scope {needs!r}")
        wait = 0.0 if handed_on(scope) else self.rate.wait("" if key is None else key.name)
        if wait:
            raise RefusedError(429, "too many requests for this key", retry=wait)
        return key

    @asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        loading = asyncio.create_task(asyncio.to_thread(self.load))
        loading.add_done_callback(self._loaded)
        try:
            yield
        finally:
            with suppress(Exception):
                await loading
            await asyncio.to_thread(self.close)

    def _loaded(self, loading: asyncio.Task[None]) -> None:
        if not loading.cancelled() and loading.exception() is not None:
            self.failure = loading.exception()
            _log.error("nothing can be answered: %s", self.failure)
            self.give_up()


def handed_on(scope: Scope) -> bool:
    """Tell whether a request comes from another process of ours, which has counted it."""
    server = scope.get("server")
    return server is not None and server[1] is None


class AccessFormatter(logging.Formatter):
    """One line of JSON for each record."""

    def format(self, record: logging.LogRecord) -> str:
        row: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "request", {}),
        }
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, ensure_ascii=False)
