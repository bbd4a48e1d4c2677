"""`weft mcp`: indexes as tools for assistants (Model Context Protocol). All tools only read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field
from typing_extensions import TypedDict

from weft.errors import WeftError
from weft.explain.snippet import Fragment
from weft.explain.words import words
from weft.ingest import own_metadata
from weft.serving.limits import Limits
from weft.serving.problems import as_problem
from weft.text_index import TextIndex

SNIPPET = 400
"""Characters of a result; the document tool has the rest."""
PAGE = 8000
"""Characters of a document in one answer."""
MARK = 0.3
"""Words that count at least so much, relative to the strongest, are marked."""

_INSTRUCTIONS = """\
Semantic search over the user's own documents. Call search with a question in plain words; results show the passage
with the words that counted in **bold**. Call get_document for the whole text, explain to see why a document was found,
list_indexes to see what there is and which metadata fields a filter can use, as in: year >= 2020 and lang == "en"."""


class Found(TypedDict):
    """A result of search."""

    id: str
    score: float
    title: str
    snippet: str
    metadata: dict[str, Any]


class SearchResult(TypedDict):
    """What search returns."""

    index: str
    results: list[Found]
    missing: int
    """Passages in damaged parts of the index, which could not be looked at"""


class DocumentResult(TypedDict):
    """A document, or a part of it."""

    id: str
    text: str
    metadata: dict[str, Any]
    characters: int
    next_offset: int | None


class PairResult(TypedDict):
    """A word of the query, the word of the document that it met, and what the pair adds to the score."""

    query: str
    document: str
    adds: float


class ExplainResult(TypedDict):
    """Why a document has its score."""

    id: str
    score: float
    alignment: str
    pairs: list[PairResult]


class IndexResult(TypedDict):
    """An index."""

    name: str
    passages: int
    model: str
    fields: dict[str, list[Any]]


class IndexList(TypedDict):
    """What list_indexes returns."""

    indexes: list[IndexResult]


def marked(fragments: list[Fragment]) -> str:
    """Return a snippet with the words that counted in bold.

    Examples
    --------
    >>> marked([Fragment("the ", 0.0), Fragment("red", 1.0), Fragment(" ", 0.0), Fragment("planet", 0.1)])
    'the **red** planet'
    """
    return "".join(f"**{f.text}**" if f.strength >= MARK else f.text for f in fragments)


class Tools:
    """The tools over some open indexes."""

    def __init__(self, indexes: Mapping[str, TextIndex]) -> None:
        self._indexes = dict(indexes)
        self._limits = Limits(k=50)

    def _index(self, name: str | None) -> tuple[str, TextIndex]:
        if name is None and len(self._indexes) == 1:
            return next(iter(self._indexes.items()))
        if name in self._indexes:
            return name, self._indexes[name]
        listed = ", ".join(self._indexes)
        raise ToolError(f"say which index: {listed}" if name is None else f"no index {name!r}; there are: {listed}")

    def search(
        self,
        query: Annotated[str, Field(description="What to look for, as a question or in plain words.")],
        index: Annotated[str | None, Field(description="An index's name; not needed where there is one.")] = None,
        k: Annotated[int, Field(description="The maximum number of results.", ge=1, le=50)] = 5,
        filter: Annotated[str | None, Field(description='On metadata: year >= 2020 and lang == "en"')] = None,  # noqa: A002
        hybrid: Annotated[bool, Field(description="Fuse with BM25: for names, codes and rare words.")] = False,
    ) -> SearchResult:
        """Find the passages of the user's documents that best answer a question."""
        name, texts = self._index(index)
        with _told(), texts.view():
            self._limits.text(query, "query", "query_characters")
            (answer,) = texts.answers([query], k, filter=filter, hybrid=hybrid)
            results: list[Found] = []
            for result in answer.ranking:
                document = texts.get(result.id)
                assert document is not None
                metadata = own_metadata(document)
                shown = texts.snippet(answer, document, filter=filter)
                title = str(metadata.pop("title", "") or "")
                results.append(
                    Found(
                        id=result.id,
                        score=round(result.score, 4),
                        title=title,
                        snippet=marked(shown)[: 2 * SNIPPET],
                        metadata=metadata,
                    )
                )
        return SearchResult(index=name, results=results, missing=answer.ranking.missing)

    def get_document(
        self,
        id: Annotated[str, Field(description="The id of a result.")],  # noqa: A002
        index: Annotated[str | None, Field(description="An index's name; not needed where there is one.")] = None,
        offset: Annotated[int, Field(description="Characters to leave out: next_offset goes on.", ge=0)] = 0,
    ) -> DocumentResult:
        """Return the text and metadata of a document; long ones in parts."""
        _, texts = self._index(index)
        with _told():
            found = texts.family(id)
        if not found:
            raise ToolError(f"no document {id!r}")
        text = "\n\n".join(document.text for document in found)
        part = text[offset : offset + PAGE]
        more = offset + PAGE if offset + PAGE < len(text) else None
        metadata = own_metadata(found[0])
        return DocumentResult(id=id, text=part, metadata=metadata, characters=len(text), next_offset=more)

    def explain(
        self,
        query: Annotated[str, Field(description="The question that was searched for.")],
        id: Annotated[str, Field(description="The id of a document, found or not.")],  # noqa: A002
        index: Annotated[str | None, Field(description="An index's name; not needed where there is one.")] = None,
    ) -> ExplainResult:
        """Show which words of a document met which words of the question, and what each pair adds to the score."""
        _, texts = self._index(index)
        if not texts.family(id):
            raise ToolError(f"no document {id!r}")
        with _told():
            self._limits.text(query, "query", "query_characters")
            (why,) = texts.explain(query, 1, id=id)
        names = []
        for side in (why.query, why.document):
            listed = words(side)
            names.append({token: word.text for word in listed for token in word.tokens})
        pairs = [
            PairResult(
                query=names[0][pair.query],
                document="" if pair.document is None else names[1][pair.document],
                adds=round(pair.contribution, 4),
            )
            for pair in why.strongest(12)
        ]
        return ExplainResult(id=why.id, score=round(why.score, 4), alignment=why.alignment, pairs=pairs)

    def list_indexes(self) -> IndexList:
        """List the indexes: how large they are, and the metadata fields that filters can use, with common values."""
        listed: list[IndexResult] = []
        for name, texts in self._indexes.items():
            counts = texts.value_counts(most=5)
            fields = {field: [value for value, _ in found] for field, found in counts.items()}
            listed.append(IndexResult(name=name, passages=len(texts), model=texts.encoder.name, fields=fields))
        return IndexList(indexes=listed)


class _told:  # noqa: N801 (reads as a phrase: with _told():)
    """Turns our errors into what an assistant can act on; only messages known to hold no path are passed on."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, WeftError):
            raise ToolError(as_problem(error).detail) from None


def mcp_server(indexes: Mapping[str, TextIndex], version: str) -> MCPServer[Any]:
    """Return an MCP server with the tools."""
    server: MCPServer[Any] = MCPServer(
        "weft", title="weft", instructions=_INSTRUCTIONS, version=version, log_level="WARNING"
    )
    tools = Tools(indexes)
    reads = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
    for tool, title in (
        (tools.search, "Search documents"),
        (tools.get_document, "Read a document"),
        (tools.explain, "Explain a result"),
        (tools.list_indexes, "List indexes"),
    ):
        server.add_tool(tool, title=title, annotations=reads, structured_output=True)
    return server
