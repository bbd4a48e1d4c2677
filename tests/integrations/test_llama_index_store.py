"""The LlamaIndex vector store, against the real package."""

import asyncio

import pytest

pytest.importorskip("llama_index.core", reason="needs the llama-index extra: make test-integrations")

from llama_index.core.schema import Document as LlamaDocument
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)
from llama_index.core.vector_stores.types import VectorStoreQueryMode

from weft import TextIndex, WeftError
from weft.integrations.llama_index import WeftVectorStore

TEXTS = {"mars": "The planet Mars looks red.", "sea": "The sea is salt.", "dog": "A dog sleeps in the sun."}
NOTES = {"mars": {"year": 2000, "tags": ["space"]}, "sea": {"year": 2010, "lang": "en"}, "dog": {"year": 2020}}


def node(name, document="book"):
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)}
    return TextNode(id_=name, text=TEXTS[name], metadata=NOTES[name], relationships=source)


@pytest.fixture
def store(tmp_path):
    with TextIndex.open(tmp_path / "s.weft", create=True) as opened:
        made = WeftVectorStore(opened)
        made.add([node("mars"), node("sea"), node("dog", "other")])
        yield made


def asked(store, text="the red planet", k=9, **options):
    return store.query(VectorStoreQuery(query_str=text, similarity_top_k=k, **options))


def test_nodes_come_back_as_they_were(store):
    found = asked(store, k=1)
    assert (found.ids, found.nodes) == (["mars"], [node("mars")])
    assert found.similarities == [store.client.search("the red planet", 1)[0].score]
    assert store.get_nodes(["sea", "nothing", "mars"]) == [node("sea"), node("mars")]
    assert {one.node_id for one in store.get_nodes()} == set(TEXTS)
    assert asyncio.run(store.aquery(VectorStoreQuery(query_str="salt", similarity_top_k=1))).ids == ["sea"]


def test_through_llama_indexs_own_index(store):
    """VectorStoreIndex inserts, retrieves and deletes; no other model is asked."""
    index = store.as_index()
    retriever = index.as_retriever(similarity_top_k=2)
    assert retriever.retrieve("the red planet")[0].node_id == "mars"
    index.insert(LlamaDocument(text="Bread is baked from flour.", doc_id="bread"))
    (found,) = index.as_retriever(similarity_top_k=1).retrieve("who bakes bread")
    assert found.text == "Bread is baked from flour."
    assert found.node.ref_doc_id == "bread"
    index.delete_ref_doc("bread")
    assert len(store.client) == 3
    kept = MetadataFilters(filters=[MetadataFilter(key="year", value=2010)])
    assert [one.node_id for one in index.as_retriever(filters=kept).retrieve("mars")] == ["sea"]


@pytest.mark.parametrize(
    ("key", "operator", "value", "expected"),
    [
        ("year", "==", 2010, {"sea"}),
        ("year", "!=", 2010, {"mars", "dog"}),
        ("year", ">", 2000, {"sea", "dog"}),
        ("year", ">=", 2000, {"mars", "sea", "dog"}),
        ("year", "<", 2010, {"mars"}),
        ("year", "<=", 2010, {"mars", "sea"}),
        ("year", "in", [2000, 2020], {"mars", "dog"}),
        ("year", "nin", [2000, 2020], {"sea"}),
        ("tags", "contains", "space", {"mars"}),
        ("tags", "any", ["space", "sport"], {"mars"}),
        ("tags", "all", ["space", "sport"], set()),
        ("lang", "is_empty", None, {"mars", "dog"}),
    ],
)
def test_filters(store, key, operator, value, expected):
    one = MetadataFilter(key=key, operator=FilterOperator(operator), value=value)
    assert set(asked(store, filters=MetadataFilters(filters=[one])).ids) == expected


def test_filters_together(store):
    early = MetadataFilter(key="year", operator=FilterOperator.LTE, value=2010)
    english = MetadataFilter(key="lang", value="en")
    both = MetadataFilters(filters=[early, english])
    either = MetadataFilters(filters=[early, english], condition=FilterCondition.OR)
    neither = MetadataFilters(filters=[early, english], condition=FilterCondition.NOT)
    nested = MetadataFilters(filters=[either, MetadataFilters(filters=[english], condition=FilterCondition.NOT)])
    for filters, expected in ((both, {"sea"}), (either, {"mars", "sea"}), (neither, {"dog"}), (nested, {"mars"})):
        assert set(asked(store, filters=filters).ids) == expected
    assert set(asked(store, doc_ids=["book"]).ids) == {"mars", "sea"}
    assert asked(store, node_ids=["dog"]).ids == ["dog"]
    assert set(asked(store, filters=MetadataFilters(filters=[])).ids) == set(TEXTS)


def test_ways_to_search(store):
    for mode in (VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH):
        assert asked(store, "salt", k=1, mode=mode).ids == ["sea"]
    assert asked(store, "salt", k=1, mode=VectorStoreQueryMode.HYBRID, alpha=0.5).ids == ["sea"]
    assert len(asked(store, "salt", k=1, mode=VectorStoreQueryMode.HYBRID, hybrid_top_k=2).ids) == 2
    with pytest.raises(WeftError, match="mmr"):
        asked(store, mode=VectorStoreQueryMode.MMR)
    with pytest.raises(WeftError, match="query_str"):
        store.query(VectorStoreQuery(query_embedding=[1.0]))
    one = MetadataFilter(key="lang", operator=FilterOperator.TEXT_MATCH, value="e")
    with pytest.raises(WeftError, match="text_match"):
        asked(store, filters=MetadataFilters(filters=[one]))


def test_removing(store):
    store.delete("book")
    assert asked(store).ids == ["dog"]
    asyncio.run(store.async_add([node("mars"), node("sea")]))
    store.delete_nodes(["mars"])
    assert set(asked(store).ids) == {"sea", "dog"}
    store.delete_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="year", value=2010)]))
    assert asked(store).ids == ["dog"]
    store.delete_nodes()
    assert asked(store).ids == ["dog"]
    store.clear()
    assert asked(store).nodes == []


def test_long_nodes_are_whole(store):
    long = TextNode(id_="long", text="The planet Mars looks red, as everybody knows. " * 100 + "Only this cat purrs.")
    store.add([long])
    found = asked(store, "a purring cat", k=2)
    assert found.ids[0] == "long"
    assert found.nodes[0] == long
    assert len(set(found.ids)) == 2
    assert asked(store, "a purring cat", node_ids=["long"]).ids == ["long"]
    store.delete_nodes(["long"])
    assert len(store.client) == 3
