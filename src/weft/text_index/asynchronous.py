"""The methods of `TextIndex` for programs that must not wait: each runs in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from weft.ingest import Summary
from weft.search.options import SearchOptions
from weft.types import Document

if TYPE_CHECKING:
    from weft.text_index.facade import Match, TextIndex

T = TypeVar("T")


async def _in_thread(work: Callable[..., T], *arguments: Any, **options: Any) -> T:
    import asyncio  # costs more to import than most searches do, and few programs need it

    return await asyncio.to_thread(work, *arguments, **options)


class Asynchronous:
    """``await index.asearch(…)`` and its like.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> from weft import TextIndex
    >>> async def ask(path):  # doctest: +SKIP
    ...     with TextIndex.open(path) as notes:
    ...         return await notes.asearch("the red planet", k=1)
    """

    async def asearch(self, query: str, k: int = 10, **options: Unpack[SearchOptions]) -> list[Match]:
        """As `TextIndex.search`."""
        return await _in_thread(self._self.search, query, k, **options)

    async def asearch_many(
        self, queries: Sequence[str], k: int = 10, **options: Unpack[SearchOptions]
    ) -> list[list[Match]]:
        """As `TextIndex.search_many`."""
        return await _in_thread(self._self.search_many, queries, k, **options)

    async def aadd(self, documents: Mapping[str, str] | Iterable[Document | str], **options: Any) -> Summary:
        """As `TextIndex.add`."""
        return await _in_thread(self._self.add, documents, **options)

    async def adelete(self, ids: str | Iterable[str]) -> int:
        """As `TextIndex.delete`."""
        return await _in_thread(self._self.delete, ids)

    async def aget(self, id: str) -> Document | None:  # noqa: A002
        """As `TextIndex.get`."""
        return await _in_thread(self._self.get, id)

    @property
    def _self(self) -> TextIndex:
        return cast("TextIndex", self)
