"""A LangChain vector store and a retriever: ``pip install 'weft-search[langchain]'``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from weft.alignment import score
from weft.errors import DataError, invalid, missing_extra
from weft.ingest import own_metadata
from weft.text_index import Match, TextIndex
from weft.types import Document as WeftDocument

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import VectorStore
    from pydantic import Field

    from weft.integrations.langchain_filters import as_filter
except ImportError:
    raise missing_extra("langchain-core", "langchain", "weft.integrations.langchain") from None


class WeftVectorStore(VectorStore):
    """A weft index as a vector store of LangChain: texts are encoded by the index's own model.

    Documents that are longer than the model reads are found by passages ``id##0``, ``id##1``, …; `get_by_ids` and
    `delete` take the documents' own ids.

    Parameters
    ----------
    index : TextIndex
        An open index.
    **options
        For every search: ``alignment``, ``hybrid``, ``exact``, … of `TextIndex.search`. Each call may give others.

    Examples
    --------
    >>> store = WeftVectorStore.from_texts(["Mars is red."], None, path="notes.weft")  # doctest: +SKIP
    >>> store.add_texts(["Why the sea is salt."], [{"lang": "en"}], ids=["sea"])  # doctest: +SKIP
    ['sea']
    >>> store.similarity_search("the red planet", k=1, filter={"lang": "en"})  # doctest: +SKIP
    [Document(id='sea', metadata={'lang': 'en'}, page_content='Why the sea is salt.')]
    >>> retriever = store.as_retriever(search_kwargs={"k": 5, "hybrid": True})  # doctest: +SKIP
    """

    def __init__(self, index: TextIndex, **options: Any) -> None:
        self.index = index
        self.options = options

    # -- adding and removing -------------------------------------------------------------------------

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts and return their ids; one whose id is there is replaced.

        Parameters
        ----------
        texts : iterable of str
        metadatas : list of dict, optional
            One for each text.
        ids : sequence of str, optional
            One for each text; None makes one.
        **kwargs
            ``split``, ``threads`` and ``progress`` of `TextIndex.add`.
        """
        listed = list(texts)
        names = [name or uuid4().hex for name in (ids if ids is not None else [None] * len(listed))]
        notes = metadatas if metadatas is not None else [{} for _ in listed]
        for what, given in (("ids", names), ("metadatas", notes)):
            if len(given) != len(listed):
                raise invalid(what, "add_texts", f"{len(listed)}, one for each text", len(given))
        kwargs.pop("batch_size", None)  # LangChain's indexing gives one; batches are the index's own business
        rows = zip(names, listed, notes, strict=True)
        made = self.index.add([WeftDocument(*row) for row in rows], **kwargs)
        if made.skipped:
            raise DataError("; ".join(skipped.reason for skipped in made.skipped[:3]))
        return names

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool | None:
        """Remove documents with all their passages; unknown ids are ignored. Without ids, remove everything."""
        self.index.delete(list(self.index) if ids is None else ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids, those that are there, in this order."""
        found = [self.index.get(name) for name in ids]
        return [
            Document(page_content=one.text, id=one.id, metadata=own_metadata(one)) for one in found if one is not None
        ]

    # -- searching -----------------------------------------------------------------------------------

    @property
    def embeddings(self) -> None:
        """None: a text has a vector for each of its tokens here, not one."""
        return

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k most relevant documents.

        Parameters
        ----------
        query : str
        k : int
        **kwargs
            ``filter`` (see `weft.integrations.langchain_filters.as_filter`), ``hybrid``, ``alignment``, … of
            `TextIndex.search`.
        """
        return [document for document, _ in self.similarity_search_with_score(query, k, **kwargs)]

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        """Return the k most relevant documents with their scores, the higher the better; as `similarity_search`."""
        asked = {**self.options, **kwargs}
        asked["filter"] = as_filter(asked.get("filter"))
        return [(_document(match), match.score) for match in self.index.search(query, k, **asked)]

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return scores as shares, 0 … 1, of what a document with the query's own vectors would have."""
        asked = {**self.options, **kwargs}
        if asked.get("hybrid"):
            raise invalid("hybrid", "similarity_search_with_relevance_scores", "left out", asked["hybrid"])
        vectors = self.index.encoder.encode_query([query])[0]
        alignment = asked.get("alignment") or self.index.index.alignment
        most = float(score(vectors, vectors, alignment))
        found = self.similarity_search_with_score(query, k, **kwargs)
        return [(document, min(max(value / most, 0.0), 1.0)) for document, value in found]

    # -- making one ----------------------------------------------------------------------------------

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        path: str | Path | None = None,
        model: str | Path | None = None,
        **options: Any,
    ) -> Self:
        """Open or make the index at `path` and add texts to it.

        Parameters
        ----------
        texts, metadatas, ids
            As for `add_texts`.
        embedding : None
            The index has a model of its own: `model`.
        path : path
            The index's folder.
        model : str or Path, optional
            A model's folder or name, as for `TextIndex.open`.
        **options
            Of the store.
        """
        if embedding is not None:
            raise invalid("embedding", "from_texts", "None (model= names the model of the index)", embedding)
        if path is None:
            raise invalid("path", "from_texts", "the folder of the index", path)
        store = cls(TextIndex.open(path, create=True, model=model), **options)
        try:
            store.add_texts(texts, metadatas, ids=ids)
        except BaseException:
            store.index.close()
            raise
        return store

    @classmethod
    def from_documents(cls, documents: list[Document], embedding: Embeddings | None = None, **kwargs: Any) -> Self:
        """Open or make the index at `path` and add LangChain's documents to it; as `from_texts`."""
        given = [document.id for document in documents]
        return cls.from_texts(
            [document.page_content for document in documents],
            embedding,
            [document.metadata for document in documents],
            **{"ids": given if any(given) else None, **kwargs},
        )


class WeftRetriever(BaseRetriever):
    """Search a weft index from LangChain.

    Each LangChain document has the passage's text, its id, its metadata, and the score as ``metadata["score"]``.

    Attributes
    ----------
    index : TextIndex
        An open index.
    k : int
        The maximum number of documents.
    options : dict
        More of `TextIndex.search`: ``alignment``, ``filter``, ``hybrid``, … Each call may give others, and another k:
        ``retriever.invoke(query, k=3, filter="year >= 2020")``.

    Examples
    --------
    >>> retriever = WeftRetriever(index=TextIndex.open("notes.weft"), k=5)  # doctest: +SKIP
    >>> [document.id for document in retriever.invoke("why is the sky blue")]  # doctest: +SKIP
    ['physics/light.md##2', 'weather.md##0', …]
    """

    index: TextIndex
    k: int = 10
    options: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 (LangChain passes it by name)
        **options: Any,
    ) -> list[Document]:
        asked = {"k": self.k, **self.options, **options}
        asked["filter"] = as_filter(asked.get("filter"))
        return [_document(match, score=match.score) for match in self.index.search(query, **asked)]


def _document(match: Match, **more: Any) -> Document:
    return Document(page_content=match.text, id=match.id, metadata={**match.metadata, **more})
