"""The bodies of requests and answers. OpenAPI is made from these (`weft.serving.openapi`)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Fusion = Literal["blend", "rrf", "scores"]
Field = Literal["text", "metadata", "snippet", "spans", "explanation"]


def said(description: str) -> Meta:
    """Return what OpenAPI and the reference say of a field."""
    return Meta(description=description)


_Filter = Annotated[str | None, said("Only documents whose metadata it lets through.")]
_Alignment = Annotated[
    str | None, said("How tokens are aligned, e.g. `xtr` or `sum-of-max`; by default the index's own.")
]
_Exact = Annotated[bool, said("Score every document instead of searching.")]
_BetaQ = Annotated[float | None, said("The part of the query's tokens that is used, the most salient first.")]
_Version = Annotated[
    str | UnsetType, said("The state after this write, for `at_least`; only from the router of a cluster.")
]


class Request(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all bodies: a field that is not known is refused, not ignored."""


class VectorQuery(Request, kw_only=True):
    """A query as token vectors: rows of numbers, or base64 of little-endian float16 with the number of columns."""

    values: Annotated[list[list[float]] | None, said("A row of numbers for each token.")] = None
    base64: Annotated[str | None, said("The rows as little-endian float16, one after the other.")] = None
    dim: Annotated[int | None, said("Columns of `base64`; by default the index's.")] = None


class SearchRequest(Request, kw_only=True):
    """A search: one `query`, many `queries`, or `vectors`."""

    query: Annotated[str | None, said("The text to search for.")] = None
    queries: Annotated[list[str] | None, said("Several texts, answered in this order.")] = None
    vectors: Annotated[list[VectorQuery] | None, said("Queries that are encoded already.")] = None
    k: Annotated[int, said("How many documents to return.")] = 10
    filter: _Filter = None
    alignment: _Alignment = None
    hybrid: Annotated[Fusion | None, said("Fuse with BM25; `blend` is the one to begin with.")] = None
    exact: _Exact = False
    n_probe: Annotated[int | None, said("Cells probed for each query token.")] = None
    k_prime: Annotated[int | None, said("Document tokens looked at for each query token.")] = None
    refine: Annotated[int | None, said("Documents scored in full.")] = None
    beta_q: _BetaQ = None
    fields: Annotated[tuple[Field, ...], said("What each hit has beside its id and score.")] = (
        "text",
        "metadata",
        "spans",
    )
    partial: Annotated[bool, said("From the router of a cluster: answer without shards that are down.")] = False
    at_least: Annotated[str | None, said("From the router of a cluster: the `version` that a write returned.")] = None


class ExplainRequest(Request, kw_only=True):
    """Why documents have their scores: of one document, or of the k best."""

    query: Annotated[str, said("The text to search for.")]
    id: Annotated[str | None, said("The document to explain; without it the `k` best.")] = None
    k: Annotated[int, said("How many results to explain.")] = 1
    filter: _Filter = None
    alignment: _Alignment = None
    exact: _Exact = False
    beta_q: _BetaQ = None


class DocumentIn(Request, kw_only=True):
    """A document to add. Without an id it gets one that is made from its text."""

    id: Annotated[str | None, said("A document that has it already is replaced.")] = None
    text: Annotated[str, said("The whole text; it is split into passages.")]
    metadata: Annotated[dict[str, Any], said("For filters: strings, numbers, booleans, lists of them.")] = {}


class AddRequest(Request, kw_only=True):
    """Documents to add; those whose id is there are replaced where they differ."""

    documents: Annotated[list[DocumentIn], said("In any order; an id comes once.")]
    split: Annotated[
        bool, said("Split long texts into passages; otherwise what is too long for the model is cut off.")
    ] = True


class DeleteRequest(Request, kw_only=True):
    """Documents to remove, with all their passages."""

    ids: Annotated[list[str], said("Of documents; those that are not there are passed over.")]


class FilterRequest(Request, kw_only=True):
    """A filter on metadata; none means all documents."""

    filter: _Filter = None


class EncodeRequest(Request, kw_only=True):
    """Texts to turn into token vectors."""

    texts: Annotated[list[str], said("Answered in this order.")]
    kind: Annotated[Literal["query", "document"], said("Models encode the two differently.")] = "document"
    encoding: Annotated[Literal["base64", "float"], said("Little-endian float16, or rows of numbers.")] = "base64"


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
    version: _Version = UNSET


class DeleteAnswer(Struct):
    """How many passages were there to be removed."""

    deleted: int
    version: _Version = UNSET


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
