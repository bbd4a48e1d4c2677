"""The client: an index behind a server, used like a `TextIndex`.

Both clients make the same requests; what differs is who waits. `_Calls` says what to send and how to read the answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike

from weft.errors import DataError, InvalidParameterError, WeftError, invalid, missing_extra
from weft.types import Document, TokenVectors

if TYPE_CHECKING:
    import httpx2

TIMEOUT = 60.0


class ServerError(WeftError):
    """The server refused a request, or cannot be reached; `status` is HTTP's, 0 without an answer."""

    def __init__(self, detail: str, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.retry_after = retry_after


class MatchedSpan(NamedTuple):
    """Characters ``start:stop`` of a text, and what they add to the score."""

    start: int
    stop: int
    contribution: float


class RemoteMatch(NamedTuple):
    """A document that was found: a `weft.Match`, with the words that it was found by."""

    id: str
    score: float
    text: str
    metadata: dict[str, Any]
    spans: tuple[MatchedSpan, ...] = ()


class RemoteMatches(list[RemoteMatch]):
    """What a search found, best first; `missing` passages are in damaged parts of the index (`--on-damage skip`)."""

    def __init__(self, matches: Iterable[RemoteMatch] = (), missing: int = 0) -> None:
        super().__init__(matches)
        self.missing = missing


class RemoteSummary(NamedTuple):
    """What adding documents did; `ids` are those of all that were given."""

    added: int
    updated: int
    unchanged: int
    ids: tuple[str, ...]


class _Send(NamedTuple):
    method: str
    path: str
    body: Any = None


_Steps = Generator[_Send, Any, Any]
"""A call: yields requests, is sent their answers, returns its result. Both clients drive the same ones."""


class _Calls:
    """The requests of an index of one name; None for the only one that the server has."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.written: str | None = None

    def path(self, rest: str = "") -> Generator[_Send, Any, str]:
        if self.name is None:
            listed = (yield _Send("GET", "/v1/indexes"))["indexes"]
            if len(listed) != 1:
                names = ", ".join(one["name"] for one in listed)
                raise DataError(f"the server has several indexes: say which, index=… ({names})")
            self.name = listed[0]["name"]
        return f"/v1/indexes/{quote(self.name or '', safe='')}{rest}"

    def post(self, rest: str, body: Any) -> _Steps:
        path = yield from self.path(rest)
        return (yield _Send("POST", path, body))

    def write(self, rest: str, body: Any) -> _Steps:
        answer = yield from self.post(rest, body)
        self.written = _later(self.written, answer.get("version"))
        return answer

    def search_many(self, queries: Sequence[str] | TokenVectors, k: int, options: Mapping[str, Any]) -> _Steps:
        body: dict[str, Any] = {"k": k, **{name: value for name, value in options.items() if value is not None}}
        if isinstance(queries, TokenVectors):
            from weft.serving.vectors import to_base64

            body["vectors"] = [{"base64": to_base64(query), "dim": queries.dim} for query in queries]
        elif isinstance(queries, str):
            raise invalid("queries", "search_many", "a sequence of texts", queries)
        else:
            body["queries"] = list(queries)
        if not len(queries):
            return []
        answer = yield from self.post("/search", _plain(body))
        return [_matches(found) for found in answer["results"]]

    def search(self, query: str | ArrayLike | TokenVectors, k: int, options: Mapping[str, Any]) -> _Steps:
        if isinstance(query, str):  # one text: the server may answer it together with others
            body = {"query": query, "k": k, **{name: value for name, value in options.items() if value is not None}}
            answer = yield from self.post("/search", _plain(body))
            return _matches(answer["results"][0])
        vectors = query if isinstance(query, TokenVectors) else TokenVectors.from_list([np.asarray(query)])
        (found,) = yield from self.search_many(vectors, k, options)
        return found

    def explain(self, query: str, k: int, id: str | None, options: Mapping[str, Any]) -> _Steps:  # noqa: A002
        given = {"query": query, "k": k, "id": id, **options}
        body = {name: value for name, value in given.items() if value is not None}
        return (yield from self.post("/explain", _plain(body)))["explanations"]

    def add(self, documents: Mapping[str, str] | Iterable[Document | str], split: bool, at_once: int) -> _Steps:
        if isinstance(documents, str):
            raise invalid("documents", "add", "a mapping or an iterable of texts", documents)
        given: Iterable[Document | str] = documents
        if isinstance(documents, Mapping):
            given = (Document(name, text) for name, text in documents.items())
        total = RemoteSummary(0, 0, 0, ())
        waiting: list[dict[str, Any]] = []
        for document in given:
            waiting.append(_row(document))
            if len(waiting) == at_once:
                total = _sum(total, (yield from self.write("/documents", {"documents": waiting, "split": split})))
                waiting = []
        if waiting:
            total = _sum(total, (yield from self.write("/documents", {"documents": waiting, "split": split})))
        return total

    def delete(self, ids: str | Iterable[str]) -> _Steps:
        wanted = [ids] if isinstance(ids, str) else list(ids)
        if not wanted:
            return 0
        return (yield from self.write("/documents/delete", {"ids": wanted}))["deleted"]

    def family(self, id: str) -> _Steps:  # noqa: A002
        path = yield from self.path(f"/documents/{quote(id, safe='')}")
        try:
            answer = yield _Send("GET", path)
        except ServerError as error:
            if error.status == 404 and "document" in str(error):
                return []
            raise
        return [Document(row["id"], row["text"], row["metadata"]) for row in answer["documents"]]

    def get(self, id: str) -> _Steps:  # noqa: A002
        found = yield from self.family(id)
        return next((document for document in found if document.id == id), None)

    def matching(self, filter: str | None) -> _Steps:  # noqa: A002
        answer = yield from self.post("/matching", {"filter": filter})
        if answer["total"] > len(answer["ids"]):
            raise DataError(f"{answer['total']:,} documents match, more than the {len(answer['ids']):,} listed")
        return answer["ids"]

    def value_counts(self, filter: str | None) -> _Steps:  # noqa: A002
        answer = yield from self.post("/fields", {"filter": filter})
        return {
            field["name"] + "[]" * field["many"]: [(one["value"], one["count"]) for one in field["values"]]
            for field in answer["fields"]
        }

    def encode(self, texts: Sequence[str], kind: str) -> _Steps:
        from weft.serving.vectors import from_base64

        answer = yield from self.post("/encode", {"texts": list(texts), "kind": kind})
        rows = answer["encoded"]
        return TokenVectors.from_list(
            [from_base64(row["base64"], answer["dim"]) for row in rows],
            spans=[row["spans"] for row in rows],
            dim=answer["dim"],
        )

    def info(self) -> _Steps:
        path = yield from self.path()
        return (yield _Send("GET", path))

    def compact(self) -> _Steps:
        return (yield from self.post("/compact", None))


class _Connection:
    """What both clients share: an address, a key, and the reading of answers."""

    def __init__(self, url: str, index: str | None, key: str | None) -> None:
        if not url.startswith(("http://", "https://")):
            raise invalid("url", "connect", "an address that starts with http:// or https://", url)
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._url = url.rstrip("/")
        self._calls = _Calls(index)

    @property
    def written(self) -> str | None:
        """The state after what was written here, for ``at_least=`` of a search; None where a server has no versions."""
        return self._calls.written

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r}, index={self._calls.name!r})"

    def _answer(self, response: httpx2.Response) -> Any:
        if response.is_success:
            return response.json()
        try:
            detail = str(response.json()["detail"])
        except (ValueError, KeyError, TypeError):
            detail = f"{self._url} answered {response.status_code}"
        if response.status_code == 422:
            raise InvalidParameterError(detail)
        after = response.headers.get("retry-after", "")
        raise ServerError(detail, response.status_code, float(after) if after.isdigit() else None)

    def _unreachable(self, error: Exception) -> ServerError:
        return ServerError(f"cannot reach {self._url}: {error or type(error).__name__}")


class RemoteIndex(_Connection):
    """An index behind a server, with the methods of `TextIndex`. Get one from `weft.connect`."""

    def __init__(self, url: str, *, index: str | None = None, key: str | None = None, timeout: float = TIMEOUT) -> None:
        super().__init__(url, index, key)
        self._http = _library().Client(base_url=self._url, headers=self._headers, timeout=timeout)

    def _do(self, steps: _Steps) -> Any:
        error: BaseException | None = None
        answer: Any = None
        while True:
            try:
                send = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as stop:
                return stop.value
            answer = error = None
            try:
                response = self._http.request(send.method, send.path, **_sent(send))
                answer = self._answer(response)
            except _library().HTTPError as failed:
                error = self._unreachable(failed)
            except WeftError as refused:
                error = refused

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return int(self.info()["documents"])

    def __contains__(self, id: object) -> bool:  # noqa: A002
        return isinstance(id, str) and bool(id) and self.get(id) is not None

    def search(self, query: str | ArrayLike | TokenVectors, k: int = 10, **options: Any) -> RemoteMatches:
        """Find the k most relevant documents: ``alignment``, ``filter``, ``hybrid``, ``exact``, … as in `TextIndex`."""
        return self._do(self._calls.search(query, k, options))  # type: ignore[no-any-return]

    def search_many(self, queries: Sequence[str] | TokenVectors, k: int = 10, **options: Any) -> list[RemoteMatches]:
        """Find the k most relevant documents for each query, all from one committed state."""
        return self._do(self._calls.search_many(queries, k, options))  # type: ignore[no-any-return]

    def explain(self, query: str, k: int = 1, *, id: str | None = None, **options: Any) -> list[dict[str, Any]]:  # noqa: A002
        """Explain the k best documents, or the document `id`: the schema weft.explanation/1."""
        return self._do(self._calls.explain(query, k, id, options))  # type: ignore[no-any-return]

    def add(
        self, documents: Mapping[str, str] | Iterable[Document | str], *, split: bool = True, at_once: int = 64
    ) -> RemoteSummary:
        """Add documents, `at_once` in a request; when this returns they are on the server's disk."""
        return self._do(self._calls.add(documents, split, at_once))  # type: ignore[no-any-return]

    def delete(self, ids: str | Iterable[str]) -> int:
        """Remove documents with all their passages. Return how many passages were there."""
        return self._do(self._calls.delete(ids))  # type: ignore[no-any-return]

    def get(self, id: str) -> Document | None:  # noqa: A002
        """Return the document or passage with this id, or None."""
        return self._do(self._calls.get(id))  # type: ignore[no-any-return]

    def family(self, id: str) -> list[Document]:  # noqa: A002
        """Return the document with this id, if it is there whole, and its passages, in order."""
        return self._do(self._calls.family(id))  # type: ignore[no-any-return]

    def matching(self, filter: str | None = None) -> list[str]:  # noqa: A002
        """Return the ids of all documents that a filter lets through."""
        return self._do(self._calls.matching(filter))  # type: ignore[no-any-return]

    def value_counts(self, filter: str | None = None) -> dict[str, list[tuple[Any, int]]]:  # noqa: A002
        """Return the commonest values of each metadata field, and how many documents have each."""
        return self._do(self._calls.value_counts(filter))  # type: ignore[no-any-return]

    def encode(self, texts: Sequence[str], kind: str = "document") -> TokenVectors:
        """Return the token vectors of texts, read as documents or as queries."""
        return self._do(self._calls.encode(texts, kind))  # type: ignore[no-any-return]

    def info(self) -> dict[str, Any]:
        """Return sizes and settings."""
        return self._do(self._calls.info())  # type: ignore[no-any-return]

    def compact(self) -> None:
        """Merge all segments now; needs a key with the scope admin."""
        self._do(self._calls.compact())


def _library() -> Any:
    try:
        import httpx2
    except ImportError:
        raise missing_extra("httpx2", "client", "weft.connect") from None
    return httpx2


def _sent(send: _Send) -> dict[str, Any]:
    return {} if send.body is None else {"json": send.body}


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    """Return alignments and filters, which may be objects, as their text."""
    return {
        name: str(value) if name in ("alignment", "filter") and not isinstance(value, str) else value
        for name, value in body.items()
    }


def _row(document: Document | str) -> dict[str, Any]:
    if isinstance(document, str):
        return {"text": document}
    if not isinstance(document, Document):
        raise invalid("documents", "add", "texts or Documents", document)
    row = {"text": document.text, "metadata": dict(document.metadata)}
    return {"id": document.id, **row} if document.id else row


def _later(known: str | None, version: str | None) -> str | None:
    """Return the later of two states; one that several shards have named says how far each has come ("0:17,2:5")."""
    if known is None or version is None:
        return version or known
    reached: dict[str, int] = {}
    for pair in (*known.split(","), *version.split(",")):
        shard, _, at = pair.rpartition(":")
        reached[shard] = max(reached.get(shard, 0), int(at))
    return ",".join(f"{shard}:{at}" if shard else str(at) for shard, at in reached.items())


def _sum(total: RemoteSummary, answer: Mapping[str, Any]) -> RemoteSummary:
    return RemoteSummary(
        total.added + answer["added"],
        total.updated + answer["updated"],
        total.unchanged + answer["unchanged"],
        total.ids + tuple(answer["ids"]),
    )


def _matches(found: Mapping[str, Any]) -> RemoteMatches:
    return RemoteMatches(map(_match, found["hits"]), found.get("missing", 0))


def _match(hit: Mapping[str, Any]) -> RemoteMatch:
    spans = tuple(MatchedSpan(s["start"], s["stop"], s["contribution"]) for s in hit.get("spans", ()))
    return RemoteMatch(hit["id"], hit["score"], hit.get("text", ""), hit.get("metadata", {}), spans)
