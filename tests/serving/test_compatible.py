"""Cohere's own client, and requests in the shape of Jina's API, against our server."""

import base64

import numpy as np
import pytest

from weft.kernels import score_ragged

TEXTS = [
    "A recipe for bread with rye.",
    "The Comet's square windows cracked at their corners; windows are round since.",
    "Owls fly without a sound.",
]
QUERY = "Why do aeroplane windows have round corners?"


@pytest.fixture(scope="module")
def expected(texts):
    query, documents = texts.encoder.encode_query([QUERY]), texts.encoder.encode_document(TEXTS)
    return np.clip(score_ragged(query, documents)[0] / query.n_tokens, 0, 1)


@pytest.fixture
def connected(reader):
    """Cohere's client of either version, closed at the end, which it does not do itself."""
    httpx = pytest.importorskip("httpx", reason="pip install cohere")
    pytest.importorskip("cohere", reason="pip install cohere")
    with httpx.Client(timeout=60) as http:
        yield lambda kind: kind(api_key="not needed here", base_url=reader.url, httpx_client=http)


@pytest.mark.parametrize("version", ["Client", "ClientV2"])
@pytest.mark.filterwarnings("ignore")  # of the client's own making
def test_coheres_client(connected, expected, version):
    import cohere

    client = connected(getattr(cohere, version))
    answer = client.rerank(model="weft-small", query=QUERY, documents=TEXTS, top_n=2)
    assert [result.index for result in answer.results] == np.argsort(-expected)[:2].tolist()
    assert answer.results[0].index == 1
    assert [r.relevance_score for r in answer.results] == pytest.approx(np.sort(expected)[::-1][:2], abs=1e-5)
    assert answer.id


@pytest.mark.filterwarnings("ignore")
def test_coheres_client_hears_of_mistakes(connected):
    import cohere

    client = connected(cohere.ClientV2)
    with pytest.raises(cohere.UnprocessableEntityError, match="weft-small"):
        client.rerank(model="rerank-v5.0-pro", query="a", documents=["b"])


@pytest.mark.filterwarnings("ignore")
def test_coheres_spans(connected):
    import cohere

    client = connected(cohere.ClientV2)
    spans = cohere.RerankRelevantSpans(mode="enabled", threshold=0.05)
    answer = client.rerank(model="default", query=QUERY, documents=TEXTS, relevant_spans=spans)
    found = answer.results[0].model_dump()["relevant_spans"]
    assert {"windows", "corners"} <= {span["text"] for span in found}
    assert all(TEXTS[1][span["start"] : span["end"]] == span["text"] for span in found)


@pytest.mark.filterwarnings("ignore")
def test_llama_indexs_client_of_jina(reader, expected):
    """Jina has no client package of its own; this is the one that others made for its API."""
    why = "pip install llama-index-postprocessor-jinaai-rerank"
    jina = pytest.importorskip("llama_index.postprocessor.jinaai_rerank", reason=why)
    from llama_index.core.schema import NodeWithScore, TextNode

    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in TEXTS]
    client = jina.JinaRerank(top_n=2, model="weft-small", base_url=f"{reader.url}/v1", api_key="not needed here")
    found = client.postprocess_nodes(nodes, query_str=QUERY)
    assert [node.node.text for node in found] == [TEXTS[number] for number in np.argsort(-expected)[:2]]
    assert [node.score for node in found] == pytest.approx(np.sort(expected)[::-1][:2], abs=1e-5)
    other = jina.JinaRerank(model="jina-reranker-v1-base-en", base_url=f"{reader.url}/v1", api_key="not needed here")
    with pytest.raises(RuntimeError, match="weft-small"):  # it reads what our refusals say
        other.postprocess_nodes(nodes, query_str=QUERY)


def test_jinas_rerank(reader, expected):
    body = {"model": "weft-small", "query": {"text": QUERY}, "documents": [{"text": t} for t in TEXTS]}
    answer = reader.post("/v1/rerank", {**body, "top_n": 3, "truncation": True}).json()
    short = reader.post("/v1/rerank", {**body, "return_documents": False}).json()
    assert all(set(result) == {"index", "relevance_score"} for result in short["results"])
    assert [r["index"] for r in answer["results"]] == np.argsort(-expected).tolist()
    assert answer["results"][0]["document"] == {"text": TEXTS[1]}
    assert answer["model"] == "weft-small"
    assert answer["usage"]["total_tokens"] > 20


def test_jinas_multi_vector(reader, texts):
    body = {"model": "weft-small", "input": TEXTS[:2], "input_type": "document", "dimensions": 128}
    vectors = texts.encoder.encode_document(TEXTS[:2])
    answer = reader.post("/v1/multi-vector", body).json()
    assert answer["object"] == "list"
    for number, row in enumerate(answer["data"]):
        assert (row["object"], row["index"]) == ("embeddings", number)
        np.testing.assert_allclose(row["embeddings"], vectors[number], atol=1e-5)
    assert set(answer["usage"]) >= {"total_tokens"}
    for name in ("embedding_type", "encoding_format"):  # what it is called now, and what it was
        row = reader.post("/v1/multi-vector", {**body, name: "base64"}).json()["data"][1]
        halves = np.frombuffer(base64.b64decode(row["embeddings"]), "<f2").reshape(-1, 128)
        np.testing.assert_array_equal(halves, vectors[1].astype(np.float16))
    (single,) = reader.post("/v1/multi-vector", {**body, "input": TEXTS[0]}).json()["data"]
    np.testing.assert_allclose(single["embeddings"], vectors[0], atol=1e-5)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/rerank", {"query": "a", "documents": []}),
        ("/v1/rerank", {"query": "", "documents": ["a"]}),
        ("/v1/rerank", {"query": "a", "documents": ["b"], "top_n": 0}),
        ("/v2/rerank", {"query": "a", "documents": ["b"], "model": "/etc/passwd"}),
        ("/v1/multi-vector", {"input": []}),
        ("/v1/multi-vector", {"input": ["a"], "dimensions": 64}),
        ("/v1/multi-vector", {"input": ["a"], "model": "jina-colbert-v2"}),
    ],
)
def test_refusals(reader, path, body):
    assert reader.post(path, body).status_code == 422
