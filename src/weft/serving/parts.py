"""What a router asks of a server whose index is one part of a larger one: binary vectors in, results out (msgpack).

The router encodes a query once and sends its vectors as they are. Under XTR, and for BM25, every part first tells what
it has, and searches with what all of them have: see `weft.search.parts`.

Each step is a function that runs on one of the server's threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from weft.alignment import XTR, Alignment
from weft.errors import invalid
from weft.search import Answer
from weft.search.lexical import search_exact
from weft.search.parts import Words, retrieve_part, search_lexical_part
from weft.serving import schemas
from weft.serving.pool import Deadline
from weft.serving.problems import RefusedError
from weft.serving.served import Search, Served
from weft.serving.vectors import checked_vectors
from weft.storage.segments import Effort
from weft.types import TokenRetrieval, TokenVectors

MOST_AMONG = 4096


class Tokens(Struct, forbid_unknown_fields=True):
    """An encoded query: little-endian float32, and int32 for ids and spans."""

    dim: int
    values: bytes
    token_ids: bytes | None = None
    spans: bytes | None = None
    salience: bytes | None = None

    @classmethod
    def of(cls, tokens: TokenVectors, *, readable: bool) -> Tokens:
        """Pack one text's vectors; what shows the tokens to people only if it is wanted."""
        ids, spans = (tokens.token_ids, tokens.spans) if readable else (None, None)
        return cls(
            tokens.dim,
            np.ascontiguousarray(tokens.values, "<f4").tobytes(),
            None if ids is None else np.ascontiguousarray(ids, "<i4").tobytes(),
            None if spans is None else np.ascontiguousarray(spans, "<i4").tobytes(),
            None if tokens.salience is None else np.ascontiguousarray(tokens.salience, "<f4").tobytes(),
        )

    def unpacked(self, dim: int, most: int) -> TokenVectors:
        """Return the vectors, checked."""
        if self.dim != dim:
            raise invalid("dim", "the request", f"the index's dimension, {dim}", self.dim)
        rows, rest = divmod(len(self.values), 4 * dim)
        if rest or not 1 <= rows <= most:
            raise invalid("tokens", "the request", f"1 to {most} vectors of {dim} float32", f"{len(self.values)} bytes")
        values = np.frombuffer(self.values, "<f4").reshape(rows, dim).astype(np.float32)
        checked_vectors(values)
        spans = _column(self.spans, "<i4", 2 * rows)
        # Without saliences all is valid now, and checking it again would cost each query a tenth of a millisecond.
        make = TokenVectors.trusted if self.salience is None else TokenVectors
        return make(
            values,
            np.array([0, rows], dtype=np.int64),
            token_ids=_column(self.token_ids, "<i4", rows),
            spans=None if spans is None else spans.reshape(rows, 2),
            salience=_column(self.salience, "<f4", rows),
        )


def _column(data: bytes | None, dtype: str, number: int) -> NDArray[Any] | None:
    if data is None:
        return None
    if len(data) != 4 * number:
        raise invalid("tokens", "the request", f"{number} numbers beside the vectors", f"{len(data)} bytes")
    return np.frombuffer(data, dtype).astype(np.dtype(dtype).newbyteorder("="))


class Retrieval(Struct, forbid_unknown_fields=True):
    """`weft.types.TokenRetrieval`: of the whole collection."""

    k_prime: int
    last: bytes
    how: str


class PartRequest(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A search in one part."""

    query: str
    tokens: Tokens
    k: int = 10
    filter: str | None = None
    alignment: str | None = None
    exact: bool = False
    n_probe: int | None = None
    k_prime: int | None = None
    refine: int | None = None
    beta_q: float | None = None
    fields: tuple[schemas.Field, ...] = ()
    among: list[str] | None = None
    """Only these documents; those that were not found by token vectors have what was asked for, and no score."""
    family: str | None = None
    """Only the passages of this document."""
    retrieval: Retrieval | None = None
    at_least: int = 0
    """The version that a reader must see."""


class PartAnswer(Struct):
    """What one part found."""

    hits: list[schemas.Hit]
    certified: bool
    bare: list[schemas.Hit] = []
    """Documents among those asked for that token vectors did not find"""


class TokensRequest(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """XTR's first step; `total` and `before` are tokens of all parts, and of those before this one."""

    tokens: Tokens
    alignment: str | None = None
    total: int = 0
    before: int = 0
    filter: str | None = None
    exact: bool = False
    n_probe: int | None = None
    k_prime: int | None = None
    refine: int | None = None
    beta_q: float | None = None
    at_least: int = 0


class TokensAnswer(Struct):
    """The part's tokens, and its best similarities, (n, most) little-endian float32; no XTR: no similarities."""

    tokens: int
    compared: int
    rows: int = 0
    best: bytes = b""


class WordsRequest(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """BM25's first step."""

    query: str
    filter: str | None = None
    at_least: int = 0


class WordsAnswer(Struct):
    """What BM25 must know of the part, and the documents that hold the exact strings of the query."""

    documents: int
    words: int
    holders: list[int]
    exact: list[str]


class LexicalRequest(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """BM25's second step, with what all parts have."""

    query: str
    k: int
    documents: int
    words: int
    holders: list[int]
    filter: str | None = None
    at_least: int = 0


class LexicalAnswer(Struct):
    """Documents by BM25, best first."""

    ids: list[str]
    scores: list[float]


EXACT = 20
"""Documents with the exact strings of a query; what more documents hold tells nothing apart."""


def search(served: Served, request: PartRequest, deadline: Deadline) -> PartAnswer:
    """Answer a search in this part."""
    limits = served.limits
    for name in ("k", "n_probe", "k_prime", "refine"):
        limits.most(getattr(request, name), name)
    limits.alignment(request.alignment)
    served.check_filter(request.filter)
    if request.among is not None and len(request.among) > MOST_AMONG:
        raise invalid("among", "the request", f"at most {MOST_AMONG} ids", len(request.among))
    texts, index, given = served.texts, served.texts.index, request.retrieval
    tokens = request.tokens.unpacked(index.dim, limits.query_tokens)
    served.check_reached(request.at_least)
    options: dict[str, Any] = {"filter": request.filter, "exact": request.exact, "beta_q": request.beta_q}
    options |= {name: getattr(request, name) for name in ("n_probe", "k_prime", "refine")}
    if given is not None:
        options["retrieval"] = TokenRetrieval(given.k_prime, np.frombuffer(given.last, "<f4").copy(), given.how)
    alignment = Alignment.parse(request.alignment or index.alignment)
    search = Search(request.k, tuple(options.items()), None, tuple(dict.fromkeys(request.fields)))
    if not search.fields and request.among is None and request.family is None:  # the most frequent: nothing is read
        (ranking,) = index.search(tokens, request.k, alignment=alignment, hits=False, **options)
        scores = ranking.scores.tolist()
        hits = [schemas.Hit(name, score) for name, score in zip(ranking.ids, scores, strict=True)]
        return PartAnswer(hits, ranking.certified)
    with texts.view():
        among = request.among
        if request.family is not None:
            among = [document.id for document in texts.family(request.family)]
        options |= {"hits": search.hits, "documents": search.documents}
        (ranking,) = index.search(tokens, request.k, alignment=alignment, among=among, **options)
        answer = Answer(request.query, tokens, ranking, alignment, (ranking,), request.k)
        found = served.found(answer, search, deadline)
        lacking = [name for name in among or () if name not in ranking.ids and name in index]
        bare = served.bare(lacking, search) if lacking else []  # what BM25 alone found has a text, too
    return PartAnswer(found.hits, ranking.certified, bare)


def tokens(served: Served, request: TokensRequest, deadline: Deadline) -> TokensAnswer:  # noqa: ARG001
    """Return the best similarities of this part's tokens."""
    limits, index = served.limits, served.texts.index
    limits.alignment(request.alignment)
    served.check_filter(request.filter)
    query = request.tokens.unpacked(index.dim, limits.query_tokens)
    served.check_reached(request.at_least)
    alignment = Alignment.parse(request.alignment or index.alignment)
    if not isinstance(alignment, XTR):
        return TokensAnswer(0, 0)
    effort = None if request.exact else Effort(request.n_probe, request.k_prime, request.refine)
    found = retrieve_part(
        index,
        query,
        request.total,
        before=request.before,
        alignment=alignment,
        filter=request.filter,
        beta_q=request.beta_q,
        effort=effort,
    )
    best = np.ascontiguousarray(found.best, "<f4").tobytes()
    return TokensAnswer(found.tokens, found.compared, len(found.best), best)


def words(served: Served, request: WordsRequest, deadline: Deadline) -> WordsAnswer:  # noqa: ARG001
    """Return what BM25 must know of this part."""
    served.limits.text(request.query, "query", "query_characters")
    served.check_filter(request.filter)
    served.check_reached(request.at_least)
    index = served.texts.index
    with index.view():
        own = Words.of(index, request.query)
        exact = search_exact(index, request.query, EXACT, filter=request.filter)
        return WordsAnswer(own.documents, own.words, list(own.holders), sorted(exact))


def lexical(served: Served, request: LexicalRequest, deadline: Deadline) -> LexicalAnswer:  # noqa: ARG001
    """Rank this part by the BM25 of the whole."""
    served.limits.text(request.query, "query", "query_characters")
    served.limits.most(request.k, "k")
    served.check_filter(request.filter)
    whole = Words(request.documents, request.words, tuple(request.holders))
    served.check_reached(request.at_least)
    index = served.texts.index
    with index.view():
        if len(Words.of(index, request.query).holders) != len(whole.holders):
            raise RefusedError(422, "holders must have a number for each word of the query")
        found = search_lexical_part(index, request.query, request.k, whole, filter=request.filter)
    return LexicalAnswer([name for name, _ in found], [score for _, score in found])


class Step(NamedTuple):
    """One of the questions of a router."""

    request: type[Any]
    answer: Callable[[Served, Any, Deadline], Any]


STEPS = {
    "search": Step(PartRequest, search),
    "tokens": Step(TokensRequest, tokens),
    "words": Step(WordsRequest, words),
    "lexical": Step(LexicalRequest, lexical),
}
NUMBERS = {name: number for number, name in enumerate(STEPS)}
"""Of steps in the frames of `weft.serving.streams`."""
