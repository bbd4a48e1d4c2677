"""A LlamaIndex vector store and a retriever: ``pip install 'weft-search[llama-index]'``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from weft.errors import DataError, invalid, missing_extra
from weft.ingest import own_metadata
from weft.storage.filters import ID, And, Compare, Filter, In, Or
from weft.text_index import TextIndex
from weft.types import Document

try:
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.embeddings import MockEmbedding
    from llama_index.core.indices import VectorStoreIndex
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
    from llama_index.core.vector_stores import MetadataFilters, VectorStoreQuery, VectorStoreQueryResult
    from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQueryMode
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

    from weft.integrations.llama_index_filters import as_filter, joined
except ImportError:
    raise missing_extra("llama-index-core", "llama-index", "weft.integrations.llama_index") from None

_PASSAGES = 3  # of a node are looked for, on average, if nodes are longer than the model reads
_NODE = "_node_content"


class WeftVectorStore(BasePydanticVectorStore):
    """A weft index as a vector store of LlamaIndex: texts are encoded by the index's own model.

    Nodes come back as they were added. Those that are longer than the model reads are found by their passages, each
    node once, with the score of its best passage.

    Parameters
    ----------
    index : TextIndex
        An open index.
    **options
        For every query: ``alignment``, ``hybrid``, ``exact``, … of `TextIndex.search`.

    Examples
    --------
    >>> store = WeftVectorStore(TextIndex.open("notes.weft", create=True))  # doctest: +SKIP
    >>> notes = store.as_index()  # a VectorStoreIndex that asks for no embeddings  # doctest: +SKIP
    >>> notes.insert_nodes([TextNode(text="Mars looks red.")])  # doctest: +SKIP
    >>> notes.as_retriever(similarity_top_k=3).retrieve("the red planet")  # doctest: +SKIP
    """

    stores_text: bool = True
    is_embedding_query: bool = False
    _index: TextIndex = PrivateAttr()
    _options: dict[str, Any] = PrivateAttr()

    def __init__(self, index: TextIndex, **options: Any) -> None:
        super().__init__(stores_text=True, is_embedding_query=False)
        self._index, self._options = index, options

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex knows this class by."""
        return "WeftVectorStore"

    @property
    def client(self) -> TextIndex:
        """The index."""
        return self._index

    def as_index(self, **options: Any) -> VectorStoreIndex:
        """Return LlamaIndex's index over this store; no other model is asked for vectors."""
        return VectorStoreIndex.from_vector_store(self, embed_model=MockEmbedding(embed_dim=1), **options)

    # -- adding and removing -------------------------------------------------------------------------

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes and return their ids; one whose id is there is replaced."""
        given = [
            Document(
                node.node_id,
                node.get_content(metadata_mode=MetadataMode.NONE),
                node_to_metadata_dict(node, remove_text=True, flat_metadata=False),
            )
            for node in nodes
        ]
        made = self._index.add(given, **kwargs)
        if made.skipped:
            raise DataError("; ".join(skipped.reason for skipped in made.skipped[:3]))
        return [document.id for document in given]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Remove the nodes of a document."""
        self._remove(Compare(("ref_doc_id",), "==", ref_doc_id))

    def delete_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any) -> None:
        """Remove nodes by their ids, by a filter, or those that both name."""
        wanted = self._wanted(node_ids, None, filters)
        if wanted is not None:
            self._remove(wanted)

    def clear(self) -> None:
        """Remove all nodes."""
        self._index.delete(list(self._index))

    def _remove(self, wanted: Filter) -> None:
        self._index.index.delete(self._index.matching(wanted))

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return nodes by their ids, by a filter, or those that both name; all without either."""
        wanted = self._wanted(node_ids, None, filters)
        found = list(self._index) if wanted is None else self._index.matching(wanted)
        names = dict.fromkeys(self._node_id(name) for name in found)
        if node_ids is not None:
            names = dict.fromkeys(name for name in node_ids if name in names)
        return [self._node(name) for name in names]

    # -- searching -----------------------------------------------------------------------------------

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Find the nodes that are most relevant to ``query.query_str``.

        Modes: ``default``; ``hybrid`` and ``semantic_hybrid``, with ``alpha`` as the weight of token vectors and 1 −
        alpha of BM25; ``sparse`` and ``text_search``, by BM25 alone.
        """
        if query.query_str is None:
            raise invalid("query_str", "query", "a text: weft encodes it with the index's own model", None)
        asked = {**self._options, **self._way(query), **kwargs}
        # LlamaIndex's own index sends an empty list where it means all.
        asked["filter"] = self._wanted(query.node_ids or None, query.doc_ids or None, query.filters)
        k = query.similarity_top_k
        if query.mode == VectorStoreQueryMode.HYBRID and query.hybrid_top_k is not None:
            k = query.hybrid_top_k
        found: dict[str, float] = {}
        with self._index.view():
            for match in self._index.search(query.query_str, k * _PASSAGES, **asked):
                found.setdefault(self._node_id(match.id), match.score)
            names = list(found)[:k]
            nodes = [self._node(name) for name in names]
        return VectorStoreQueryResult(nodes=nodes, similarities=[found[name] for name in names], ids=names)

    @staticmethod
    def _way(query: VectorStoreQuery) -> dict[str, Any]:
        mode = VectorStoreQueryMode(query.mode)
        if mode == VectorStoreQueryMode.DEFAULT:
            return {}
        if mode in (VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH):
            return {"hybrid": True, "weights": (0.0, 1.0)}
        if mode in (VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.SEMANTIC_HYBRID):
            weights = None if query.alpha is None else (query.alpha, 1 - query.alpha)
            return {"hybrid": True, "weights": weights}
        raise invalid("mode", "query", "default, hybrid, semantic_hybrid, sparse or text_search", mode.value)

    @staticmethod
    def _wanted(
        node_ids: list[str] | None, doc_ids: list[str] | None, filters: MetadataFilters | None
    ) -> Filter | None:
        terms = [as_filter(filters)]
        if node_ids is not None:
            terms.append(Or((In(ID, tuple(node_ids)), In(("parent",), tuple(node_ids)))))
        if doc_ids is not None:
            terms.append(In(("ref_doc_id",), tuple(doc_ids)))
        given = [term for term in terms if term is not None]
        return joined(And, given) if given else None

    def _node_id(self, name: str) -> str:
        passage = self._index.index.get(name)
        return name if passage is None else str(passage.metadata.get("parent", name))

    def _node(self, name: str) -> BaseNode:
        document = self._index.get(name)
        assert document is not None
        if _NODE in document.metadata:
            return metadata_dict_to_node(dict(document.metadata), text=document.text)
        return TextNode(id_=name, text=document.text, metadata=own_metadata(document))

    # -- without waiting -----------------------------------------------------------------------------

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """As `add`, in a thread."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    async def adelete(self, ref_doc_id: str, **kwargs: Any) -> None:
        """As `delete`, in a thread."""
        await asyncio.to_thread(self.delete, ref_doc_id, **kwargs)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """As `query`, in a thread."""
        return await asyncio.to_thread(self.query, query, **kwargs)


class WeftRetriever(BaseRetriever):
    """Search a weft index from LlamaIndex.

    Each node has the passage's text, its id, its metadata and its score.

    Parameters
    ----------
    index : TextIndex
        An open index.
    k : int
        The maximum number of nodes.
    callback_manager : CallbackManager, optional
        LlamaIndex's.
    **options
        More of `TextIndex.search`: ``alignment``, ``filter``, ``hybrid``, …

    Examples
    --------
    >>> retriever = WeftRetriever(TextIndex.open("notes.weft"), k=5, hybrid=True)  # doctest: +SKIP
    >>> [found.node_id for found in retriever.retrieve("why is the sky blue")]  # doctest: +SKIP
    ['physics/light.md##2', 'weather.md##0', …]
    """

    def __init__(
        self, index: TextIndex, k: int = 10, callback_manager: CallbackManager | None = None, **options: Any
    ) -> None:
        self.index, self.k, self.options = index, k, options
        super().__init__(callback_manager=callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [
            NodeWithScore(node=TextNode(id_=match.id, text=match.text, metadata=match.metadata), score=match.score)
            for match in self.index.search(query_bundle.query_str, self.k, **self.options)
        ]
