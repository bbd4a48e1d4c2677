"""The bodies of requests and answers. OpenAPI is made from these (`weft.serving.openapi`)."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

Fusion = Literal["blend", "rrf", "scores"]
Field = Literal["text", "metadata", "snippet", "spans", "explanation"]


class Request(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all bodies: a field that is not known is refused, not ignored."""


class VectorQuery(Request, kw_only=True):
    """A query as token vectors: rows of numbers, or base64 of little-endian float16 with the number of columns."""

    values: list[list[float]] | None = None
    base64: str | None = None
    dim: int | None = None


class SearchRequest(Request, kw_only=True):
    """A search: one `query`, many `queries`, or `vectors`."""

    query: str | None = None
    queries: list[str] | None = None
    vectors: list[VectorQuery] | None = None
    k: int = 10
    filter: str | None = None
    alignment: str | None = None
    hybrid: Fusion | None = None
    exact: bool = False
    n_probe: int | None = None
    k_prime: int | None = None
    refine: int | None = None
    beta_q: float | None = None
    fields: tuple[Field, ...] = ("text", "metadata", "spans")
    partial: bool = False
    at_least: str | None = None


class ExplainRequest(Request, kw_only=True):
    """Why documents have their scores: of one document, or of the k best."""

    query: str
    id: str | None = None
    k: int = 1
    filter: str | None = None
    alignment: str | None = None
    exact: bool = False
    beta_q: float | None = None


class DocumentIn(Request, kw_only=True):
    """A document to add. Without an id it gets one that is made from its text."""

    id: str | None = None
    text: str
    metadata: dict[str, Any] = {}


class AddRequest(Request, kw_only=True):
    """Documents to add; those whose id is there are replaced where they differ."""

    documents: list[DocumentIn]
    split: bool = True


class DeleteRequest(Request, kw_only=True):
    """Documents to remove, with all their passages."""

    ids: list[str]


class FilterRequest(Request, kw_only=True):
    """A filter on metadata; none means all documents."""

    filter: str | None = None


class EncodeRequest(Request, kw_only=True):
    """Texts to turn into token vectors."""

    texts: list[str]
    kind: Literal["query", "document"] = "document"
    encoding: Literal["base64", "float"] = "base64"


class Span(Struct):
    """Characters ``start:stop`` of a text, what they add to the score, and the query tokens that they answer."""

    start: int
    stop: int
    contribution: float
    query: list[int]


class QueryToken(Struct):
    """A token of the query: its text, its place there (none for special tokens), and its salience."""

    text: str
    span: tuple[int, int] | None
    salience: float | None


class Fragment(Struct):
    """A run of text; `strength` from 0 to 1 says how much it counted."""

    text: str
    strength: float


class Hit(Struct, omit_defaults=True):
    """A document that was found, with the fields that were asked for."""

    id: str
    score: float
    text: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    snippet: list[Fragment] | UnsetType = UNSET
    spans: list[Span] | UnsetType = UNSET
    explanation: dict[str, Any] | UnsetType | None = UNSET


class Found(Struct, omit_defaults=True):
    """The hits of one query, best first; `missing` counts passages in damaged parts of the index (--on-damage skip)."""

    hits: list[Hit]
    certified: bool
    missing: int = 0
    tokens: list[QueryToken] | UnsetType = UNSET


class SearchAnswer(Struct):
    """One result for each query, all from one committed state of the index."""

    alignment: str
    results: list[Found]
    seconds: float
    shards: int | UnsetType = UNSET
    shards_ok: int | UnsetType = UNSET


class ExplainAnswer(Struct):
    """Explanations in the schema weft.explanation/1."""

    explanations: list[dict[str, Any]]


class DocumentOut(Struct):
    """A stored document or passage."""

    id: str
    text: str
    metadata: dict[str, Any]


class DocumentsAnswer(Struct):
    """A document, or the passages that it was split into, in order."""

    documents: list[DocumentOut]


class AddAnswer(Struct):
    """What was written, on disk when this is sent."""

    added: int
    updated: int
    unchanged: int
    ids: list[str]
    version: str | UnsetType = UNSET


class DeleteAnswer(Struct):
    """How many passages were there to be removed."""

    deleted: int
    version: str | UnsetType = UNSET


class MatchingAnswer(Struct):
    """Ids of documents that a filter lets through: how many in all, and the first of them."""

    total: int
    ids: list[str]


class FieldValue(Struct):
    """A value of a metadata field, and how many documents have it."""

    value: str | int | float | bool | None
    count: int


class FieldCounts(Struct):
    """A metadata field: its commonest values; `many` where its values are lists."""

    name: str
    many: bool
    values: list[FieldValue]


class FieldsAnswer(Struct):
    """The metadata that is there."""

    documents: int
    fields: list[FieldCounts]


class IndexInfo(Struct):
    """An index that is served."""

    name: str
    documents: int
    tokens: int
    segments: int
    deleted: int
    bytes: int
    dim: int
    bits: int
    alignment: str
    model: str
    salience_weighs: bool
    writable: bool
    fingerprint: str = ""
    version: int = 0


class IndexesAnswer(Struct):
    """All indexes that are served."""

    indexes: list[IndexInfo]


class EncodedText(Struct):
    """A text's token vectors, with the places of the tokens; `base64` holds little-endian float16."""

    tokens: int
    spans: list[tuple[int, int]]
    base64: str | None
    values: list[list[float]] | None


class EncodeAnswer(Struct):
    """Token vectors, in the order of the texts."""

    model: str
    dim: int
    encoded: list[EncodedText]


class ProblemAnswer(Struct):
    """What went wrong (RFC 9457)."""

    title: str
    status: int
    detail: str
    request_id: str
