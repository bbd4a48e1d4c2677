"""The reference of the HTTP API, written from its OpenAPI document when the site is built: a hook of mkdocs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from weft.serving.limits import Limits
from weft.serving.openapi import document
from weft.serving.routes import listed

PAGE = "reference/http.md"
INTRODUCTION = """# The HTTP API

What `weft serve` and `weft cluster serve` answer; [Serving](../guides/serving.md) says how to use it. Bodies are
JSON, and unknown fields are refused. If the server has keys, each request carries `Authorization: Bearer KEY`; the
scope below says which keys are enough: `write` includes `read`, and `admin` both.

A refusal is `application/problem+json` with `title`, `status`, `detail` (one line) and `request_id`:
[Limits](limits.md) lists the statuses. The server's own description is at `/openapi.json`.

Three more requests have no body: `GET /healthz` (the process answers), `GET /readyz` (searches are answered) and
`GET /metrics` (Prometheus, scope `read`). `POST …/documents` also takes NDJSON, a document a line, as
`application/x-ndjson`.
"""


def reference() -> str:
    """Return the page."""
    limits = Limits()
    described = json.loads(document(limits))
    schemas = described["components"]["schemas"]
    scopes = {(method.lower(), path.replace(":path", "")): given["needs"] for method, path, _, given in listed(limits)}
    parts = [INTRODUCTION]
    used: list[str] = []
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            parts += [f"## {method.upper()} {path}", f"{operation['summary']}. Scope `{scopes[method, path]}`."]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body:
                parts += [*_fields(body["schema"], schemas, used), _curl(method, path, body["example"])]
            answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
            if "$ref" in answer:
                parts += [f"Answers with {_link(answer, used)}."]
    parts += ["## Objects"]
    done: set[str] = set()
    while left := [name for name in used if name not in done]:
        for name in left:
            done.add(name)
            parts += [f"### {name}", *_fields({"$ref": f"/{name}"}, schemas, used)]
    return "\n\n".join(parts) + "\n"


def _fields(schema: dict[str, Any], schemas: dict[str, Any], used: list[str]) -> Iterator[str]:
    """Yield what an object is, and a table of its fields."""
    described = schemas[schema["$ref"].rpartition("/")[2]]
    if said := described.get("description"):
        yield said.replace("\n", " ")
    rows = []
    for name, field in described["properties"].items():
        default = "required" if name in described.get("required", ()) else _default(field)
        rows.append(f"| `{name}` | {_type(field, used)} | {default} | {field.get('description', '')} |")
    yield "\n".join(["| field | type | default | |", "| --- | --- | --- | --- |", *rows])


def _default(field: dict[str, Any]) -> str:
    default = field.get("default")
    return "" if default is None or default in ({}, []) else f"`{json.dumps(default)}`"


def _type(field: dict[str, Any], used: list[str]) -> str:
    if "$ref" in field:
        return _link(field, used)
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(kind, used) for kind in field["anyOf"] if kind.get("type") != "null"))
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        inner = field.get("items")
        return f"list of {_type(inner, used)}" if inner else "list"
    return str(field.get("type", "any"))


def _link(schema: dict[str, Any], used: list[str]) -> str:
    name = schema["$ref"].rpartition("/")[2]
    if name not in used:
        used.append(name)
    return f"[`{name}`](#{name.lower()})"


def _curl(method: str, path: str, example: Any) -> str:
    address = "http://127.0.0.1:8080" + path.replace("{name}", "notes")
    return (
        f"    curl {address} -X {method.upper()} -H content-type:application/json \\\n      -d '{json.dumps(example)}'"
    )


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the site's files; mkdocs calls this."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=reference()))
    return files
