"""The LangChain retriever, against the real package."""

import asyncio

import pytest

pytest.importorskip("langchain_core", reason="needs the langchain extra: make test-integrations")

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda

from weft.integrations.langchain import WeftRetriever


@pytest.fixture
def retriever(texts):
    return WeftRetriever(index=texts, k=3)


def test_documents_are_the_matches(texts, retriever):
    assert isinstance(retriever, BaseRetriever)
    found = retriever.invoke("red planet")
    expected = texts.search("red planet", 3)
    assert all(isinstance(document, Document) for document in found)
    assert [(d.id, d.page_content, d.metadata["score"], d.metadata["year"]) for d in found] == [
        (match.id, match.text, match.score, match.metadata["year"]) for match in expected
    ]


def test_options_of_the_retriever_and_of_a_call(texts, retriever):
    filtered = WeftRetriever(index=texts, k=9, options={"filter": "year >= 2002"})
    assert {document.id for document in filtered.invoke("red planet")} == {"dog", "fox"}
    assert [document.id for document in retriever.invoke("red planet", k=1, filter='@id == "sky"')] == ["sky"]


def test_chains_batches_and_async(retriever):
    ids = RunnableLambda(lambda documents: [document.id for document in documents])
    chain = retriever | ids
    one, two = chain.batch(["red planet", "lazy dog"])
    assert (one, two) == (chain.invoke("red planet"), chain.invoke("lazy dog"))
    assert asyncio.run(chain.ainvoke("lazy dog")) == two
