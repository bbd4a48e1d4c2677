"""What the API answers is what `TextIndex` answers."""

import base64
import json

import numpy as np
import pytest

from weft.explain import to_dict
from weft.ingest import own_metadata

NOTES = "/v1/indexes/notes"
QUERY = "Why do aeroplane windows have round corners?"


def hits(answer, which=0):
    assert answer.status_code == 200, answer.text
    return answer.json()["results"][which]["hits"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k": 3},
        {"alignment": "top-k:2"},
        {"alignment": "xtr:500"},
        {"filter": 'year > 1800 and tags contains "safety"'},
        {"hybrid": "rrf"},
        {"hybrid": "blend"},
        {"hybrid": "scores", "k": 4},
        {"exact": True},
        {"beta_q": 0.5},
    ],
    ids=str,
)
def test_a_search_finds_what_the_index_finds(reader, texts, options):
    found = hits(reader.post(f"{NOTES}/search", {"query": QUERY, **options}))
    expected = texts.search(QUERY, **options)
    assert [hit["id"] for hit in found] == [match.id for match in expected]
    assert [hit["score"] for hit in found] == pytest.approx([match.score for match in expected], rel=1e-6)
    assert [hit["text"] for hit in found] == [match.text for match in expected]
    assert [hit["metadata"] for hit in found] == [match.metadata for match in expected]


def test_many_queries_are_answered_in_their_order(reader, texts):
    queries = [QUERY, "the moon and the tides", "clean fingers"]
    answer = reader.post(f"{NOTES}/search", {"queries": queries, "k": 2})
    for number, expected in enumerate(texts.search_many(queries, 2)):
        assert [hit["id"] for hit in hits(answer, number)] == [match.id for match in expected]


def test_vectors_find_what_the_text_finds(reader, texts):
    vectors = texts.encoder.encode_query([QUERY]).values
    expected = [match.id for match in texts.search(QUERY, 5)]
    half = base64.b64encode(vectors.astype("<f2").tobytes()).decode()
    for given in ({"values": vectors.tolist()}, {"base64": half}, {"base64": half, "dim": vectors.shape[1]}):
        found = hits(reader.post(f"{NOTES}/search", {"vectors": [given], "k": 5}))
        assert [hit["id"] for hit in found] == expected
        assert found[0]["spans"]


def test_spans_are_words_whose_contributions_are_part_of_the_score(reader):
    answer = reader.post(f"{NOTES}/search", {"query": QUERY, "k": 1})
    (best,) = hits(answer)
    tokens = answer.json()["results"][0]["tokens"]
    words = {best["text"][span["start"] : span["stop"]]: span for span in best["spans"]}
    assert {"windows", "rounded", "corners"} <= set(words)
    assert [tokens[i]["text"] for i in words["windows"]["query"]] == ["windows"]
    assert 0 < sum(span["contribution"] for span in best["spans"]) <= best["score"] * 1.001


def test_only_chosen_fields_are_sent(reader):
    (best,) = hits(reader.post(f"{NOTES}/search", {"query": QUERY, "k": 1, "fields": []}))
    assert set(best) == {"id", "score"}
    (best,) = hits(reader.post(f"{NOTES}/search", {"query": QUERY, "k": 1, "fields": ["snippet"]}))
    assert set(best) == {"id", "score", "snippet"}
    assert max(fragment["strength"] for fragment in best["snippet"]) == 1.0


def test_explanations_are_those_of_the_index(reader, texts):
    expected = to_dict(texts.explain(QUERY)[0])
    explained = reader.post(f"{NOTES}/explain", {"query": QUERY}).json()["explanations"]
    (searched,) = hits(reader.post(f"{NOTES}/search", {"query": QUERY, "k": 1, "fields": ["explanation"]}))
    assert explained == [searched["explanation"]] == [json.loads(json.dumps(expected))]
    other = texts.search(QUERY, 20)[-1].id
    (one,) = reader.post(f"{NOTES}/explain", {"query": QUERY, "id": other}).json()["explanations"]
    assert one["id"] == other


def test_encoding_is_the_encoders(reader, texts):
    for kind, expected in (
        ("query", texts.encoder.encode_query([QUERY])),
        ("document", texts.encoder.encode_document([QUERY])),
    ):
        body = {"texts": [QUERY], "kind": kind}
        (row,) = reader.post(f"{NOTES}/encode", body).json()["encoded"]
        values = np.frombuffer(base64.b64decode(row["base64"]), dtype="<f2").reshape(-1, expected.dim)
        np.testing.assert_array_equal(values, expected.values.astype(np.float16))
        assert row["spans"] == expected.spans.tolist()
        (row,) = reader.post(f"{NOTES}/encode", {**body, "encoding": "float"}).json()["encoded"]
        np.testing.assert_allclose(row["values"], expected.values, atol=1e-5)


def test_filters_list_and_count(reader, texts):
    wanted = 'subject == "transport"'
    answer = reader.post(f"{NOTES}/matching", {"filter": wanted}).json()
    assert answer == {"total": len(texts.matching(wanted)), "ids": texts.matching(wanted)}
    assert reader.post(f"{NOTES}/matching", {}).json()["total"] == len(texts)
    for given in (None, wanted):
        fields = reader.post(f"{NOTES}/fields", {"filter": given}).json()["fields"]
        counts = {f["name"] + "[]" * f["many"]: [(v["value"], v["count"]) for v in f["values"]] for f in fields}
        assert counts == texts.value_counts(given)


def test_a_document_comes_with_all_its_passages(reader, texts):
    found = reader.http.get(f"{NOTES}/documents/long").json()["documents"]
    assert len(found) > 1
    assert found == [{"id": d.id, "text": d.text, "metadata": own_metadata(d)} for d in texts.family("long")]


def test_documents_are_added_replaced_and_removed(start, index):
    server = start(index)
    row = {"id": "a/ü?#%", "text": "Basalt cools to columns with six sides.", "metadata": {"year": 2026}}
    path = f"{NOTES}/documents/a%2F%C3%BC%3F%23%25"
    added = server.post(f"{NOTES}/documents", {"documents": [row, {"text": "A text without a name."}]}).json()
    assert (added["added"], added["updated"], added["unchanged"]) == (2, 0, 0)
    assert server.http.get(path).json() == {"documents": [row]}
    assert hits(server.post(f"{NOTES}/search", {"query": "hexagonal rock", "k": 1, "filter": "year == 2026"}))
    again = server.post(f"{NOTES}/documents", {"documents": [row]}).json()
    assert (again["added"], again["updated"], again["unchanged"]) == (0, 0, 1)
    changed = server.post(f"{NOTES}/documents", {"documents": [{**row, "text": "Obsidian is a glass."}]}).json()
    assert changed["updated"] == 1
    assert server.http.get(path).json()["documents"][0]["text"] == "Obsidian is a glass."
    assert server.http.delete(path).json() == {"deleted": 1}
    assert server.http.get(path).status_code == server.http.delete(path).status_code == 404
    assert server.post(f"{NOTES}/documents/delete", {"ids": [added["ids"][1], "long", "no such"]}).json()["deleted"] > 2
    assert server.post(f"{NOTES}/compact", None).json()["deleted"] == 0


def test_lines_of_documents_are_added(start, index):
    server = start(index)
    lines = b"".join(json.dumps({"id": f"l{n}", "text": f"Line {n} of a file"}).encode() + b"\n" for n in range(5))
    kind = {"content-type": "application/x-ndjson"}
    answer = server.http.post(f"{NOTES}/documents?split=false", content=lines, headers=kind)
    assert answer.json()["ids"] == [f"l{n}" for n in range(5)]
    bad = server.http.post(f"{NOTES}/documents", content=lines + b'{"id": 5}\n', headers=kind)
    assert bad.status_code == 422
    assert "line 6" in bad.json()["detail"]
    assert server.http.get(f"{NOTES}/documents/l4").status_code == 200


def test_it_tells_about_itself(reader, built):
    (info,) = reader.http.get("/v1/indexes").json()["indexes"]
    assert info == reader.http.get(NOTES).json()
    assert info["name"] == "notes"
    assert info["model"] == "weft-small"
    assert str(built) not in json.dumps(info)
    assert reader.http.get("/healthz").json() == {"status": "ok"}
    assert reader.http.get("/readyz").json() == {"status": "ready"}
    text = reader.http.get("/metrics").text
    assert f'weft_documents{{index="notes"}} {float(info["documents"])}' in text
    assert 'weft_requests_total{method="GET",route="/readyz",status="200"}' in text


def test_requests_have_ids_and_lines_in_the_log(start, built):
    server = start(built, "--access-log")
    answer = server.http.get("/v1/indexes", headers={"x-request-id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    odd = server.http.get("/v1/indexes", headers={"x-request-id": "no spaces, please"})
    assert odd.headers["x-request-id"] != "no spaces, please"
    code, said = server.stop()
    assert code == 0
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    (row,) = [row for row in rows if row.get("request_id") == "mine-1"]
    assert (row["method"], row["route"], row["status"], row["key"]) == ("GET", "/v1/indexes", 200, None)


def test_several_indexes_have_their_names(start, built, index):
    other = index.rename(index.with_name("others.weft"))
    server = start(built, other)
    assert [one["name"] for one in server.http.get("/v1/indexes").json()["indexes"]] == ["notes", "others"]
    server.post("/v1/indexes/others/documents", {"documents": [{"id": "only-here", "text": "Only in the second."}]})
    assert server.http.get("/v1/indexes/others/documents/only-here").status_code == 200
    assert server.http.get("/v1/indexes/notes/documents/only-here").status_code == 404
