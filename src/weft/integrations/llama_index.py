"""A LlamaIndex retriever: ``pip install 'weft-search[llama-index]'``."""

from __future__ import annotations

from typing import Any

from weft.errors import missing_extra
from weft.text_index import TextIndex

try:
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError:
    raise missing_extra("llama-index-core", "llama-index", "weft.integrations.llama_index") from None


class WeftRetriever(BaseRetriever):
    """Search a weft index from LlamaIndex.

    Each node has the passage's text, its id, its metadata and its score.

    Parameters
    ----------
    index : TextIndex
        An open index.
    k : int
        How many nodes at the most.
    callback_manager : CallbackManager, optional
        LlamaIndex's.
    **options
        More of `TextIndex.search`: ``alignment``, ``filter``, ``hybrid``, …

    Examples
    --------
    >>> retriever = WeftRetriever(TextIndex.open("notes.weft"), k=5, hybrid="rrf")  # doctest: +SKIP
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
