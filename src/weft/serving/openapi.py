"""The OpenAPI document, made from the schemas that requests are read with."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from typing import Any

import msgspec

from weft.serving import schemas
from weft.serving.limits import Limits

_QUERY = "why does the sea rise twice a day?"
_PATH = "/v1/indexes/{name}"
_COMMON = {"401": "A key is needed", "403": "Not allowed", "404": "Not found", "422": "Not acceptable"}
_MORE = {"429": "Too many requests", "503": "Busy: try again", "504": "Took too long"}
_BODY = {"400": "Not JSON", "408": "Arrived too slowly", "413": "Too large", "415": "Not JSON"}

# Method, path, summary, body, answer, example of the body.
_ROUTES: tuple[tuple[str, str, str, Any, Any, Any], ...] = (
    ("get", "/v1/indexes", "List the indexes", None, schemas.IndexesAnswer, None),
    ("get", _PATH, "Sizes and settings of an index", None, schemas.IndexInfo, None),
    ("post", f"{_PATH}/search", "Search", schemas.SearchRequest, schemas.SearchAnswer, {"query": _QUERY, "k": 3}),
    ("post", f"{_PATH}/explain", "Explain scores", schemas.ExplainRequest, schemas.ExplainAnswer, {"query": _QUERY}),
    (
        *("post", f"{_PATH}/matching", "Ids that a filter lets through", schemas.FilterRequest),
        *(schemas.MatchingAnswer, {"filter": "year >= 1900"}),
    ),
    (
        *("post", f"{_PATH}/fields", "Metadata fields and their values, counted", schemas.FilterRequest),
        *(schemas.FieldsAnswer, {}),
    ),
    (
        *("post", f"{_PATH}/encode", "Texts as token vectors", schemas.EncodeRequest, schemas.EncodeAnswer),
        {"texts": [_QUERY], "kind": "query"},
    ),
    (
        *("post", f"{_PATH}/documents", "Add or replace documents", schemas.AddRequest, schemas.AddAnswer),
        {"documents": [{"id": "tides", "text": "The Moon pulls at the sea.", "metadata": {"year": 2024}}]},
    ),
    (
        *("post", f"{_PATH}/documents/delete", "Remove documents", schemas.DeleteRequest, schemas.DeleteAnswer),
        {"ids": ["tides"]},
    ),
    ("get", _PATH + "/documents/{id}", "A document with its passages", None, schemas.DocumentsAnswer, None),
    ("delete", _PATH + "/documents/{id}", "Remove a document", None, schemas.DeleteAnswer, None),
    ("post", f"{_PATH}/compact", "Merge all segments now", None, schemas.IndexInfo, None),
)


@lru_cache(maxsize=4)
def document(limits: Limits) -> bytes:
    """Return the OpenAPI document as JSON."""
    from weft.serving import compatible

    rerank = ("Order texts, as Cohere's and Jina's APIs do", compatible.RerankRequest, dict[str, Any])
    example_texts = {"query": _QUERY, "documents": ["The Moon.", "A cake."]}
    vectors = ("Token vectors, as Jina's API does", compatible.MultiVectorRequest, dict[str, Any])
    others: tuple[tuple[str, str, str, Any, Any, Any], ...] = (
        ("post", "/v1/rerank", *rerank, example_texts),
        ("post", "/v2/rerank", *rerank, {**example_texts, "model": "default"}),
        ("post", "/v1/multi-vector", *vectors, {"input": [_QUERY], "input_type": "query"}),
    )
    listed = [*_ROUTES, *others]
    kinds = [kind for row in listed for kind in row[3:5] if kind is not None] + [schemas.ProblemAnswer]
    made, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    refs = iter(made)
    paths: dict[str, dict[str, Any]] = {}
    for method, path, summary, body, _, example in listed:
        operation: dict[str, Any] = {"summary": summary, "operationId": _name(method, path)}
        parameters = [name for name in ("name", "id") if f"{{{name}}}" in path]
        if parameters:
            operation["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
                for name in parameters
            ]
        if body is not None:
            content = {"schema": next(refs), "example": example}
            operation["requestBody"] = {"required": True, "content": {"application/json": content}}
        ok = {"description": "Done", "content": {"application/json": {"schema": next(refs)}}}
        problems = {**_COMMON, **_MORE, **({} if body is None else _BODY)}
        if "documents" in path or path.endswith("compact"):
            problems |= {"409": "Another process is writing", "507": "Storage failed"}
        content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemAnswer"}}}
        refused = {status: {"description": said, "content": content} for status, said in sorted(problems.items())}
        operation["responses"] = {"200": ok, **refused}
        paths.setdefault(path, {})[method] = operation
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "weft", "version": version("weft-search"), "description": _description(limits)},
            "security": [{}, {"key": []}],
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _name(method: str, path: str) -> str:
    words = [part.strip("{}") for part in path.split("/") if part]
    return "_".join([method, *words]).replace("-", "_")


def _description(limits: Limits) -> str:
    return (
        "Multi-vector retrieval. Limits of this server: "
        f"{limits.body:,} bytes a body, k {limits.k:,}, {limits.queries} queries and {limits.documents:,} documents a "
        f"request, {limits.query_characters:,} characters a query, {limits.filter_characters:,} a filter."
    )
