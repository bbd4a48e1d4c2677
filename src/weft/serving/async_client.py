"""The client for programs on asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from numpy.typing import ArrayLike

from weft.errors import WeftError
from weft.serving.client import (
    TIMEOUT,
    RemoteMatches,
    RemoteSummary,
    _Connection,
    _library,
    _sent,
    _Steps,
)
from weft.types import Document, TokenVectors


class AsyncRemoteIndex(_Connection):
    """An index behind a server: the methods of `RemoteIndex`, to be awaited. Get one from `weft.connect_async`."""

    def __init__(self, url: str, *, index: str | None = None, key: str | None = None, timeout: float = TIMEOUT) -> None:
        super().__init__(url, index, key)
        self._http = _library().AsyncClient(base_url=self._url, headers=self._headers, timeout=timeout)

    async def _do(self, steps: _Steps) -> Any:
        error: BaseException | None = None
        answer: Any = None
        while True:
            try:
                send = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as stop:
                return stop.value
            answer = error = None
            try:
                response = await self._http.request(send.method, send.path, **_sent(send))
                answer = self._answer(response)
            except _library().HTTPError as failed:
                error = self._unreachable(failed)
            except WeftError as refused:
                error = refused

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def search(self, query: str | ArrayLike | TokenVectors, k: int = 10, **options: Any) -> RemoteMatches:
        """Find the k most relevant documents."""
        return await self._do(self._calls.search(query, k, options))  # type: ignore[no-any-return]

    async def search_many(
        self, queries: Sequence[str] | TokenVectors, k: int = 10, **options: Any
    ) -> list[RemoteMatches]:
        """Find the k most relevant documents for each query, all from one committed state."""
        return await self._do(self._calls.search_many(queries, k, options))  # type: ignore[no-any-return]

    async def explain(
        self,
        query: str,
        k: int = 1,
        *,
        id: str | None = None,  # noqa: A002
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Explain the k best documents, or the document `id`."""
        return await self._do(self._calls.explain(query, k, id, options))  # type: ignore[no-any-return]

    async def add(
        self, documents: Mapping[str, str] | Iterable[Document | str], *, split: bool = True, at_once: int = 64
    ) -> RemoteSummary:
        """Add documents; when this returns they are on the server's disk."""
        return await self._do(self._calls.add(documents, split, at_once))  # type: ignore[no-any-return]

    async def delete(self, ids: str | Iterable[str]) -> int:
        """Remove documents with all their passages."""
        return await self._do(self._calls.delete(ids))  # type: ignore[no-any-return]

    async def get(self, id: str) -> Document | None:  # noqa: A002
        """Return the document or passage with this id, or None."""
        return await self._do(self._calls.get(id))  # type: ignore[no-any-return]

    async def family(self, id: str) -> list[Document]:  # noqa: A002
        """Return the document with this id and its passages."""
        return await self._do(self._calls.family(id))  # type: ignore[no-any-return]

    async def matching(self, filter: str | None = None) -> list[str]:  # noqa: A002
        """Return the ids of all documents that a filter lets through."""
        return await self._do(self._calls.matching(filter))  # type: ignore[no-any-return]

    async def value_counts(self, filter: str | None = None) -> dict[str, list[tuple[Any, int]]]:  # noqa: A002
        """Return the commonest values of each metadata field."""
        return await self._do(self._calls.value_counts(filter))  # type: ignore[no-any-return]

    async def encode(self, texts: Sequence[str], kind: str = "document") -> TokenVectors:
        """Return the token vectors of texts."""
        return await self._do(self._calls.encode(texts, kind))  # type: ignore[no-any-return]

    async def info(self) -> dict[str, Any]:
        """Return sizes and settings."""
        return await self._do(self._calls.info())  # type: ignore[no-any-return]

    async def compact(self) -> None:
        """Merge all segments now; needs a key with the scope admin."""
        await self._do(self._calls.compact())
