"""The API's routes: what each needs, takes and gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import msgspec

from weft.errors import invalid
from weft.serving import compatible, parts, schemas
from weft.serving.endpoints import Call, Handler, Text, decoded
from weft.serving.limits import Limits
from weft.serving.openapi import document
from weft.serving.problems import RefusedError
from weft.serving.telemetry import span

_ADD = msgspec.json.Decoder(schemas.AddRequest)
_LINE = msgspec.json.Decoder(schemas.DocumentIn)
INDEX = "/v1/indexes/{name}"
SEARCH = f"{INDEX}/search"


async def search(call: Call) -> Any:
    """Search by text or by vectors."""
    served = call.server.served(call.path["name"])
    with span(
        f"retrieval {served.name}",
        gen_ai__operation__name="retrieval",
        gen_ai__data_source__id=served.name,
        gen_ai__request__top_k=call.body.k,
    ):
        return await served.search(call.body, call.deadline)


def _part(step: parts.Step) -> Handler:
    async def part(call: Call) -> Any:
        served = call.server.served(call.path["name"])
        return await served.pool.run(lambda: step.answer(served, call.body, call.deadline), call.deadline)

    return part


async def explain(call: Call) -> Any:
    """Explain scores."""
    return await call.server.served(call.path["name"]).explain(call.body, call.deadline)


async def get(call: Call) -> Any:
    """Return a document with its passages."""
    return await call.server.served(call.path["name"]).get(call.path["id"], call.deadline)


async def add(call: Call) -> Any:
    """Add documents: JSON, or a document a line."""
    served = call.server.served(call.path["name"])
    data, lines = call.body
    if not lines:
        return await served.add(decoded(_ADD, data), call.deadline)
    rows = [line for line in data.split(b"\n") if line.strip()]
    call.server.limits.count(rows, "documents", "documents")
    split = parse_qs(call.query.decode("latin-1")).get("split", ["true"])[-1]
    if split not in ("true", "false"):
        raise invalid("split", "the request", "true or false", split)
    documents = []
    for number, line in enumerate(rows, 1):
        try:
            documents.append(decoded(_LINE, line))
        except RefusedError as problem:
            raise RefusedError(problem.status, f"line {number}: {problem.detail}") from None
    return await served.add(schemas.AddRequest(documents=documents, split=split == "true"), call.deadline)


async def delete(call: Call) -> Any:
    """Remove documents."""
    return await call.server.served(call.path["name"]).delete(call.body, call.deadline)


async def delete_one(call: Call) -> Any:
    """Remove a document."""
    request = schemas.DeleteRequest(ids=[call.path["id"]])
    answer = await call.server.served(call.path["name"]).delete(request, call.deadline)
    if not answer.deleted:
        raise RefusedError(404, "no document has this id")
    return answer


async def matching(call: Call) -> Any:
    """Return the ids that a filter lets through."""
    return await call.server.served(call.path["name"]).matching(call.body, call.deadline)


async def fields(call: Call) -> Any:
    """Return the metadata that is there, counted."""
    return await call.server.served(call.path["name"]).fields(call.body, call.deadline)


async def encode(call: Call) -> Any:
    """Return token vectors."""
    return await call.server.served(call.path["name"]).encode(call.body, call.deadline)


async def info(call: Call) -> Any:
    """Return an index's sizes and settings."""
    return await call.server.served(call.path["name"]).info(call.deadline)


async def indexes(call: Call) -> Any:
    """Return all indexes."""
    if not call.server.ready:
        raise RefusedError(503, "the server is starting", retry=1)
    return schemas.IndexesAnswer([await served.info(call.deadline) for served in call.server.indexes.values()])


async def compact(call: Call) -> Any:
    """Merge all segments now."""
    served = call.server.served(call.path["name"])
    await served.compact(call.deadline)
    return await served.info(call.deadline)


async def healthz(_: Call) -> Any:
    """Tell that the process answers."""
    return {"status": "ok"}


async def readyz(call: Call) -> Any:
    """Tell whether searches are answered."""
    if not call.server.ready:
        raise RefusedError(503, "the server is starting or stopping", retry=1)
    return {"status": "ready"}


async def openapi(call: Call) -> Any:
    """Return the OpenAPI document."""
    return document(call.server.limits)


async def metrics(call: Call) -> Any:
    """Return what Prometheus reads."""
    return Text(call.server.metrics.text(), b"text/plain; version=0.0.4; charset=utf-8")


def listed(limits: Limits) -> Iterator[tuple[str, str, Handler, dict[str, Any]]]:
    """Yield method, path, handler and the options of `Endpoint` for each route."""
    read: dict[str, Any] = {"needs": "read"}
    writes: dict[str, Any] = {"needs": "write", "seconds": limits.write_seconds, "writer": True}
    for name, step in parts.STEPS.items():
        yield "POST", f"{INDEX}/parts/{name}", _part(step), {**read, "body": step.request, "packed": True}
    yield "GET", "/healthz", healthz, {"needs": None}
    yield "GET", "/readyz", readyz, {"needs": None}
    yield "GET", "/openapi.json", openapi, {"needs": None}
    yield "GET", "/metrics", metrics, {**read, "writer": True}
    yield "GET", "/v1/indexes", indexes, read
    yield "GET", INDEX, info, read
    yield "POST", SEARCH, search, {**read, "body": schemas.SearchRequest}
    yield "POST", f"{INDEX}/explain", explain, {**read, "body": schemas.ExplainRequest}
    yield "POST", f"{INDEX}/matching", matching, {**read, "body": schemas.FilterRequest}
    yield "POST", f"{INDEX}/fields", fields, {**read, "body": schemas.FilterRequest}
    yield "POST", f"{INDEX}/encode", encode, {**read, "body": schemas.EncodeRequest}
    yield "POST", f"{INDEX}/documents", add, {**writes, "body": bytes, "lines": True}
    yield "POST", f"{INDEX}/documents/delete", delete, {**writes, "body": schemas.DeleteRequest}
    yield "GET", INDEX + "/documents/{id:path}", get, read
    yield "DELETE", INDEX + "/documents/{id:path}", delete_one, writes
    yield "POST", f"{INDEX}/compact", compact, {**writes, "needs": "admin"}
    yield "POST", "/v1/rerank", compatible.rerank_v1, {**read, "body": compatible.RerankRequest}
    yield "POST", "/v2/rerank", compatible.rerank, {**read, "body": compatible.RerankRequest}
    yield "POST", "/v1/multi-vector", compatible.multi_vector, {**read, "body": compatible.MultiVectorRequest}
