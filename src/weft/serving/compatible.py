"""Re-ranking and token vectors in the shapes of Cohere's and Jina's APIs, so that their clients work unchanged.

``/v1/rerank`` answers both, whose fields do not contradict each other; ``/v2/rerank`` is Cohere's second version, and
``/v1/multi-vector`` is Jina's. The model is the one that an index here has; clients cannot name others.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Struct

from weft.errors import invalid
from weft.kernels import aligned_pairs, score_ragged
from weft.serving.endpoints import Call
from weft.serving.pool import Deadline
from weft.serving.problems import RefusedError
from weft.serving.schemas import Request, said
from weft.serving.served import Served
from weft.serving.spans import matched_spans
from weft.serving.vectors import to_base64
from weft.storage.segments.reading import Places
from weft.types import Ranking, TokenVectors

DEFAULT = "default"
"""The model of the first index, by a name that always works."""


class TextDocument(Struct):
    """A document as an object; other fields are not read."""

    text: str


class RelevantSpans(Struct):
    """Cohere's wish for the parts of documents that counted."""

    mode: Literal["enabled", "disabled"]
    threshold: Annotated[float | None, said("The contribution that a span must exceed.")] = None
    max_spans: Annotated[int | None, said("Spans of a document, at most.")] = None


_Ignored = said("Taken because clients send it, and not used.")
_Model = Annotated[str | None, said("The model's name, the name of an index, or `default`.")]


class RerankRequest(Request, kw_only=True):
    """What Cohere's and Jina's clients send."""

    query: Annotated[str | TextDocument, said("A text, or an object with one.")]
    documents: Annotated[list[str | TextDocument], said("Texts, or objects with one.")]
    model: _Model = None
    top_n: Annotated[int | None, said("How many to return; by default all.")] = None
    return_documents: Annotated[bool | None, said("Whether results repeat the texts.")] = None
    relevant_spans: Annotated[RelevantSpans | None, said("Ask for the parts that counted.")] = None
    # Documents are cut where the model's reading ends, and all requests are equal.
    max_tokens_per_doc: Annotated[int | None, _Ignored] = None
    max_chunks_per_doc: Annotated[int | None, _Ignored] = None
    priority: Annotated[int | None, _Ignored] = None
    truncation: Annotated[bool | None, _Ignored] = None


class MultiVectorRequest(Request, kw_only=True):
    """What Jina's clients send for token vectors."""

    input: Annotated[str | TextDocument | list[str | TextDocument], said("One text, or several.")]
    model: _Model = None
    input_type: Annotated[Literal["query", "document"], said("Models encode the two differently.")] = "document"
    embedding_type: Annotated[Literal["float", "base64"] | None, said("The form of the vectors.")] = None
    encoding_format: Annotated[Literal["float", "base64"] | None, said("The older name of `embedding_type`.")] = None
    dimensions: Annotated[int | None, said("Must be the model's, if it is there.")] = None


def _text(given: str | TextDocument) -> str:
    return given if isinstance(given, str) else given.text


def served_model(call: Call, name: str | None) -> Served:
    """Return the index whose model has this name."""
    served = list(call.server.indexes.values())
    if not call.server.ready:
        raise RefusedError(503, "the server is starting", retry=1)
    for one in served:
        if name in (None, DEFAULT, one.name, one.encoder.name):
            return one
    known = ", ".join(dict.fromkeys(one.encoder.name for one in served))
    raise invalid("model", "the request", f"a model that is served here: {known}", name)


async def rerank_v1(call: Call) -> Any:
    """Order texts as `rerank` does; by default the texts are returned too, as Jina's API does."""
    if call.body.return_documents is None:
        call.body.return_documents = True
    return await rerank(call)


async def rerank(call: Call) -> Any:
    """Order texts by their relevance to a query: the mean over its tokens of the best similarity, at least 0."""
    request: RerankRequest = call.body
    limits = call.server.limits
    served = served_model(call, request.model)
    query = limits.text(_text(request.query), "query", "query_characters")
    limits.count(request.documents, "documents", "documents")
    texts = [limits.text(_text(given), "documents", "text_characters") for given in request.documents]
    if request.top_n is not None and request.top_n < 1:
        raise invalid("top_n", "the request", "an integer >= 1", request.top_n)

    def work() -> tuple[list[dict[str, Any]], int]:
        return _reranked(served, request, query, texts, call.deadline)

    results, tokens = await call.server.pool.run(work, call.deadline)
    return {
        "id": secrets.token_hex(16),
        "object": "list",
        "model": served.encoder.name,
        "results": results,
        "usage": {"total_tokens": tokens},
        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
    }


def _reranked(
    served: Served, request: RerankRequest, asked: str, texts: list[str], deadline: Deadline
) -> tuple[list[dict[str, Any]], int]:
    encoder = served.encoder
    query = served.cache.encode_query([asked])
    parts = []
    for text in texts:
        deadline.check()
        parts.append(encoder.encode_document([text], threads=1, progress=False, truncation="ignore"))
    documents = TokenVectors.concatenate(parts)
    z = max(int(query.lengths[0]), 1)
    scores = np.clip(score_ragged(query, documents)[0] / z, 0, 1)
    best = np.argsort(-scores, kind="stable")[: request.top_n]
    results = []
    for number in best.tolist():
        result: dict[str, Any] = {"index": number, "relevance_score": round(float(scores[number]), 6)}
        if request.return_documents:
            result["document"] = {"text": texts[number]}
        if request.relevant_spans is not None and request.relevant_spans.mode == "enabled":
            result["relevant_spans"] = _spans(query, parts[number], texts[number], z, request.relevant_spans)
        results.append(result)
    return results, documents.n_tokens + query.n_tokens


def _spans(
    query: TokenVectors, document: TokenVectors, text: str, z: int, wanted: RelevantSpans
) -> list[dict[str, Any]]:
    hits = aligned_pairs(query, document)
    ranking = Ranking(["d"], np.zeros(1, dtype=np.float32), hits=hits, z=np.array([z], dtype=np.float32))
    places = None if document.spans is None else Places.of(document.spans)
    found = sorted(matched_spans(text, places, ranking, 0), key=lambda span: -span.contribution)
    threshold = 0.0 if wanted.threshold is None else wanted.threshold
    kept = [span for span in found if span.contribution > threshold][: wanted.max_spans]
    return [
        {"start": s.start, "end": s.stop, "text": text[s.start : s.stop], "score": s.contribution}
        for s in sorted(kept, key=lambda span: span.start)
    ]


async def multi_vector(call: Call) -> Any:
    """Return token vectors in the shape of Jina's API."""
    request: MultiVectorRequest = call.body
    limits = call.server.limits
    served = served_model(call, request.model)
    encoder = served.encoder
    inputs = request.input if isinstance(request.input, list) else [request.input]
    limits.count(inputs, "input", "documents")
    texts = [limits.text(_text(given), "input", "text_characters") for given in inputs]
    if request.dimensions is not None and request.dimensions != encoder.dim:
        raise invalid("dimensions", "the request", f"{encoder.dim}, what the model gives", request.dimensions)
    encode = encoder.encode_query if request.input_type == "query" else encoder.encode_document

    def work() -> tuple[list[dict[str, Any]], int]:
        data, tokens = [], 0
        for number, text in enumerate(texts):
            call.deadline.check()
            found = encode([text], threads=1, progress=False, truncation="ignore")
            tokens += found.n_tokens
            base64 = "base64" in (request.embedding_type, request.encoding_format)
            embeddings: Any = to_base64(found.values) if base64 else found.values.round(6).tolist()
            data.append({"object": "embeddings", "index": number, "embeddings": embeddings})
        return data, tokens

    data, tokens = await call.server.pool.run(work, call.deadline)
    usage = {"total_tokens": tokens, "prompt_tokens": tokens}
    return {"object": "list", "model": encoder.name, "data": data, "usage": usage}
