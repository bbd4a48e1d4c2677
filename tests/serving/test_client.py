"""The client has the methods of `TextIndex`, and they give the same."""

import asyncio
import inspect

import numpy as np
import pytest

import weft
from weft import Document, TextIndex, WeftError
from weft.errors import DataError, InvalidParameterError
from weft.explain import to_dict
from weft.serving import AsyncRemoteIndex, RemoteIndex, ServerError

QUERY = "Why do aeroplane windows have round corners?"


@pytest.fixture
def remote(reader):
    with weft.connect(reader.url) as connected:
        yield connected


def test_reading(remote, texts):
    found = remote.search(QUERY, 4, filter="year exists", alignment="top-k:2")
    expected = texts.search(QUERY, 4, filter="year exists", alignment="top-k:2")
    assert [(m.id, m.text, m.metadata) for m in found] == [(m.id, m.text, m.metadata) for m in expected]
    assert found[0].score == pytest.approx(expected[0].score, rel=1e-6)
    assert all(0 <= span.start < span.stop <= len(found[0].text) for span in found[0].spans)
    many = remote.search_many([QUERY, "moon"], 2, hybrid="rrf")
    assert [[m.id for m in one] for one in many] == [
        [m.id for m in one] for one in texts.search_many([QUERY, "moon"], 2, hybrid="rrf")
    ]
    assert remote.search_many([]) == []
    assert remote.explain(QUERY)[0]["score"] == pytest.approx(to_dict(texts.explain(QUERY)[0])["score"])
    assert remote.family("long") == [
        Document(d.id, d.text, {k: v for k, v in d.metadata.items() if k != "weft"}) for d in texts.family("long")
    ]
    assert remote.get("no such") is None
    assert remote.get(found[0].id).text == found[0].text
    assert found[0].id in remote
    assert len(remote) == len(texts)
    assert remote.matching("year exists") == texts.matching("year exists")
    assert remote.value_counts() == texts.value_counts()
    assert remote.info()["name"] == "notes"


def test_vectors(remote, texts):
    vectors = texts.encoder.encode_query([QUERY, "moon"])
    expected = [[m.id for m in one] for one in texts.search_many([QUERY, "moon"], 3)]
    assert [[m.id for m in one] for one in remote.search_many(vectors, 3)] == expected
    assert [m.id for m in remote.search(vectors[0], 3)] == expected[0]
    encoded = remote.encode([QUERY], "query")
    np.testing.assert_allclose(encoded.values, vectors[0], atol=1e-3)
    np.testing.assert_array_equal(encoded.spans, texts.encoder.encode_query([QUERY]).spans)


def test_writing(start, index):
    server = start(index)
    with weft.connect(server.url, index="notes") as remote:
        before = len(remote)
        texts = {f"t{n}": f"Text number {n} of many" for n in range(5)}
        assert remote.add(texts, at_once=2)[:3] == (5, 0, 0)
        assert remote.add([Document("t0", "Another text", {"year": 1})])[:3] == (0, 1, 0)
        assert remote.add(["Without a name"]).ids[0].startswith("text:")
        assert remote.get("t0") == Document("t0", "Another text", {"year": 1})
        assert remote.delete(["t0", "t1"]) == 2
        assert remote.delete("t2") == 1
        assert remote.delete([]) == 0
        remote.compact()
        assert len(remote) == before + 3


def test_refusals_are_errors_of_ours(reader, start, built):
    with weft.connect(reader.url) as remote:
        with pytest.raises(InvalidParameterError, match="alignment"):
            remote.search("a", alignment="nonsense")
        with pytest.raises(InvalidParameterError, match="documents"):
            remote.add("one text")
    with weft.connect(reader.url, index="other") as remote, pytest.raises(ServerError, match="no index") as told:
        remote.info()
    assert told.value.status == 404
    with pytest.raises(InvalidParameterError, match="http"):
        weft.connect("notes.weft")
    with weft.connect("http://127.0.0.1:1") as remote, pytest.raises(ServerError, match="cannot reach"):
        remote.search("a")
    locked = start(built, limits={}, keys=["a read a-key-for-reading"])
    with weft.connect(locked.url) as remote, pytest.raises(ServerError, match="key"):
        remote.search("a")
    with weft.connect(locked.url, key="a-key-for-reading") as remote:
        assert remote.search("moon", 1)
    assert issubclass(ServerError, WeftError)


def test_the_index_must_be_named_where_there_are_several(start, built, index):
    other = index.rename(index.with_name("others.weft"))
    server = start(built, other)
    with weft.connect(server.url) as remote, pytest.raises(DataError, match="notes, others"):
        remote.search("a")
    with weft.connect(server.url, index="others") as remote:
        assert remote.search("moon", 1)


def test_asyncio(start, index, texts):
    server = start(index)

    async def use():
        async with weft.connect_async(server.url) as remote:
            found = await asyncio.gather(*(remote.search(QUERY, 3) for _ in range(20)))
            added = await remote.add({"new": "A new text"})
            got, counts = await remote.get("new"), await remote.value_counts()
            why, matching = await remote.explain(QUERY), await remote.matching("year exists")
            many, encoded = await remote.search_many(["moon"], 1), await remote.encode(["a b"])
            family, info = await remote.family("long"), await remote.info()
            deleted = await remote.delete("new")
            await remote.compact()
            with pytest.raises(InvalidParameterError):
                await remote.search("")
            assert len(why) == len(many) == len(encoded) == 1
            assert len(family) > 1
            assert info["name"] == "notes"
            assert counts == texts.value_counts()
            assert matching == texts.matching("year exists")
            return found, added, got, deleted

    found, added, got, deleted = asyncio.run(use())
    assert {tuple(m.id for m in one) for one in found} == {tuple(m.id for m in texts.search(QUERY, 3))}
    assert (added.added, got.text, deleted) == (1, "A new text", 1)


def test_both_clients_offer_what_a_text_index_offers():
    def methods(kind):
        return {name for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("_")}

    assert methods(RemoteIndex) == methods(AsyncRemoteIndex)
    only_local = {"add_files", "add_sources", "answers", "snippet", "explain_answer", "check", "view", "lock", "shown"}
    only_local |= {"remember_model", "remember_alignment"}
    assert methods(TextIndex) - only_local <= methods(RemoteIndex) | {"rebuild"}
