"""A LangChain retriever: ``pip install 'weft-search[langchain]'``."""

from __future__ import annotations

from typing import Any

from weft.errors import missing_extra
from weft.text_index import TextIndex

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import Field
except ImportError:
    raise missing_extra("langchain-core", "langchain", "weft.integrations.langchain") from None


class WeftRetriever(BaseRetriever):
    """Search a weft index from LangChain.

    Each LangChain document has the passage's text, its id, its metadata, and the score as ``metadata["score"]``.

    Attributes
    ----------
    index : TextIndex
        An open index.
    k : int
        How many documents at the most.
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
        return [
            Document(page_content=match.text, id=match.id, metadata={**match.metadata, "score": match.score})
            for match in self.index.search(query, **asked)
        ]
