"""The LangChain vector store: the package's own standard tests, and ours."""

import asyncio

import pytest

pytest.importorskip("langchain_core", reason="needs the langchain extra: make test-integrations")
pytest.importorskip("langchain_tests", reason="needs langchain-tests: make test-integrations")

from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.structured_query import Comparator, Comparison, Operation, Operator
from langchain_tests.integration_tests import VectorStoreIntegrationTests

from weft import TextIndex, WeftError
from weft.integrations.langchain import WeftVectorStore
from weft.integrations.langchain_filters import as_filter

TEXTS = ["The planet Mars looks red.", "The sea is salt.", "A dog sleeps in the sun."]
NOTES = [{"year": 2000, "tags": ["space"]}, {"year": 2010, "lang": "en"}, {"year": 2020, "of": {"kind": "pet"}}]


@pytest.fixture
def store(tmp_path):
    with TextIndex.open(tmp_path / "s.weft", create=True) as opened:
        yield WeftVectorStore(opened)


@pytest.fixture
def filled(store):
    store.add_texts(TEXTS, NOTES, ids=["mars", "sea", "dog"])
    return store


def ids(found):
    return [document.id for document in found]


class TestStandard(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, store):
        return store


def test_searching(filled):
    assert ids(filled.similarity_search("the red planet", k=1)) == ["mars"]
    (best, score), *_ = filled.similarity_search_with_score("the red planet", k=3)
    assert (best.id, best.metadata, best.page_content) == ("mars", NOTES[0], TEXTS[0])
    assert score == filled.index.search("the red planet", 1)[0].score
    shares = filled.similarity_search_with_relevance_scores("the red planet", k=3)
    assert [document.id for document, _ in shares] == ids(filled.similarity_search("the red planet", k=3))
    assert all(0 <= share <= 1 for _, share in shares)
    ((_, whole),) = filled.similarity_search_with_relevance_scores(TEXTS[1], k=1)
    assert whole > 0.8
    assert ids(filled.similarity_search("salt", k=3, hybrid=True))[0] == "sea"


def test_retrievers(filled):
    retriever = filled.as_retriever(search_kwargs={"k": 2, "filter": {"year": {"$gte": 2010}}})
    assert set(ids(retriever.invoke("the red planet"))) == {"sea", "dog"}
    assert set(ids(asyncio.run(retriever.ainvoke("the red planet")))) == {"sea", "dog"}
    sure = filled.as_retriever(search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.8})
    assert ids(sure.invoke(TEXTS[2])) == ["dog"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"year": 2010}, {"sea"}),
        ({"year": {"$gt": 2000, "$lt": 2020}}, {"sea"}),
        ({"year": {"$nin": [2000, 2010]}}, {"dog"}),
        ({"year": {"$in": [2000, 2010]}}, {"mars", "sea"}),
        ({"lang": {"$exists": False}}, {"mars", "dog"}),
        ({"tags": {"$contains": "space"}}, {"mars"}),
        ({"of.kind": "pet"}, {"dog"}),
        ({"$or": [{"year": 2000}, {"lang": "en"}]}, {"mars", "sea"}),
        ({"$and": [{"year": {"$lte": 2010}}, {"$not": {"lang": "en"}}]}, {"mars"}),
        ({"year": {"$ne": 2000}}, {"sea", "dog"}),
        ({}, {"mars", "sea", "dog"}),
        ("year >= 2020", {"dog"}),
        (Comparison(comparator=Comparator.LT, attribute="year", value=2010), {"mars"}),
        (
            Operation(
                operator=Operator.NOT,
                arguments=[Comparison(comparator=Comparator.IN, attribute="year", value=[2000, 2020])],
            ),
            {"sea"},
        ),
        (
            Operation(
                operator=Operator.OR,
                arguments=[
                    Comparison(comparator=Comparator.EQ, attribute="year", value=2000),
                    Comparison(comparator=Comparator.CONTAIN, attribute="tags", value="space"),
                ],
            ),
            {"mars"},
        ),
    ],
)
def test_filters(filled, given, expected):
    assert set(ids(filled.similarity_search("a text", k=9, filter=given))) == expected


def test_mistakes(filled, tmp_path):
    for wrong in ({"year": {"$near": 1}}, {"$or": [{}]}, lambda document: True):
        with pytest.raises(WeftError, match="filter"):
            as_filter(wrong)
    like = Comparison(comparator=Comparator.LIKE, attribute="year", value="x")
    with pytest.raises(WeftError, match="like"):
        as_filter(like)
    with pytest.raises(WeftError, match="'ids'"):
        filled.add_texts(["a", "b"], ids=["one"])
    with pytest.raises(WeftError, match=r"occurs twice|is that of"):
        filled.add_texts(["a word", "another"], ids=["same", "same"])
    with pytest.raises(WeftError, match="'path'"):
        WeftVectorStore.from_texts(["a"])
    with pytest.raises(WeftError, match="'embedding'"):
        WeftVectorStore.from_texts(["a"], TestStandard.get_embeddings(), path=tmp_path / "x.weft")
    with pytest.raises(WeftError, match="'filtr'"):
        filled.similarity_search("a", filtr={"year": 1})
    with pytest.raises(WeftError, match="'hybrid'"):
        filled.similarity_search_with_relevance_scores("a", hybrid=True)


def test_made_from_documents_and_opened_again(tmp_path):
    documents = [Document(page_content=text, metadata=notes) for text, notes in zip(TEXTS, NOTES, strict=True)]
    documents[1] = Document(page_content=TEXTS[1], id="sea")
    made = WeftVectorStore.from_documents(documents, path=tmp_path / "n.weft", hybrid=True)
    made.index.close()
    again = WeftVectorStore.from_texts([], path=tmp_path / "n.weft")
    assert again.similarity_search("salt water", k=1) == [Document(page_content=TEXTS[1], id="sea")]
    assert len(again.index) == 3
    again.delete()
    assert len(again.index) == 0
    again.index.close()


def test_long_documents(store):
    long = "The planet Mars looks red, as everybody knows. " * 100 + "Only this dog sleeps."
    store.add_texts([long, "The sea is salt."], ids=["long", "sea"])
    found = store.similarity_search("a sleeping dog", k=1)
    assert found[0].id.startswith("long##")
    assert found[0].metadata["parent"] == "long"
    assert store.get_by_ids(["long"])[0].page_content == long
    store.delete(["long"])
    assert ids(store.similarity_search("a sleeping dog", k=5)) == ["sea"]


def test_langchains_indexing_keeps_it_up_to_date(store):
    """`langchain_core.indexing.index` adds what is new and removes what is gone."""
    records = InMemoryRecordManager("notes")
    records.create_schema()
    first = [Document(page_content=text, metadata={"source": str(n)}) for n, text in enumerate(TEXTS)]
    told = index(first, records, store, cleanup="full", source_id_key="source", key_encoder="sha256")
    assert told["num_added"] == 3
    told = index(first[:2], records, store, cleanup="full", source_id_key="source", key_encoder="sha256")
    assert (told["num_skipped"], told["num_deleted"]) == (2, 1)
    assert len(store.index) == 2
