"""The LlamaIndex retriever, against the real package."""

import asyncio

import pytest

pytest.importorskip("llama_index.core", reason="needs the llama-index extra: make test-integrations")

from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from weft.integrations.llama_index import WeftRetriever


def told(found):
    return [(node.node_id, node.text, node.score, node.metadata["year"]) for node in found]


def test_nodes_are_the_matches(texts):
    retriever = WeftRetriever(texts, k=3)
    assert isinstance(retriever, BaseRetriever)
    found = retriever.retrieve("red planet")
    assert all(isinstance(node, NodeWithScore) for node in found)
    assert told(found) == [(m.id, m.text, m.score, m.metadata["year"]) for m in texts.search("red planet", 3)]
    assert told(retriever.retrieve(QueryBundle("red planet"))) == told(found)
    assert told(asyncio.run(retriever.aretrieve("red planet"))) == told(found)


def test_options(texts):
    retriever = WeftRetriever(texts, k=9, filter="year >= 2002", hybrid="rrf")
    assert {node.node_id for node in retriever.retrieve("red planet")} == {"dog", "fox"}
