"""`Served`: one index behind the server. Requests in, answers out; all work runs on the server's threads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
from prometheus_client.core import Metric

from weft.encoders import Encoder
from weft.errors import invalid
from weft.explain import to_dict
from weft.ingest import own_metadata, text_source
from weft.search import Answer, Searcher
from weft.serving import schemas
from weft.serving.encoding import encode_texts, query_tokens
from weft.serving.limits import Limits
from weft.serving.pool import Deadline, Pool
from weft.serving.problems import RefusedError
from weft.serving.query_cache import QueryCache
from weft.serving.spans import matched_spans
from weft.serving.vectors import read_vectors
from weft.serving.writing import WriteQueue
from weft.storage.filters import parse as parse_filter
from weft.text_index import TextIndex
from weft.types import Document, Ranking, TokenVectors

_encoder = msgspec.json.Encoder()
_Behind = tuple[Ranking, int] | None
"""The ranking by token vectors that a result is from, and its position there."""
MOST_DIGITS = 18
"""Of a version"""
MATCHING = 10_000
"""Ids that are listed for a filter; the total is given."""


def read_version(text: str) -> int:
    """Read the version of an index that is served alone."""
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        raise invalid("at_least", "the request", "the version that a write returned", text)
    return int(text)


class Search(NamedTuple):
    """Queries with their options, in the form in which searches are compared for answering them together."""

    k: int
    options: tuple[tuple[str, Any], ...]
    hybrid: str | None
    fields: tuple[str, ...]
    lexical_only: bool = False

    @property
    def hits(self) -> bool:
        """Whether the aligned pairs are wanted."""
        return bool({"spans", "snippet", "explanation"} & set(self.fields))

    @property
    def documents(self) -> bool:
        """Whether the documents are."""
        return bool({"text", "metadata", "spans"} & set(self.fields))


class _Asked(NamedTuple):
    """A text query, and when it came."""

    query: str
    begun: float


def _json(begun: float, alignment: str, found: list[schemas.Found]) -> bytes:
    """Encode an answer on the thread that made it, in whose processor's cache it still is."""
    return _encoder.encode(schemas.SearchAnswer(alignment, found, round(time.perf_counter() - begun, 6)))


class Served:
    """An index, its encoder and its writer, as the API uses them.

    Parameters
    ----------
    name : str
    texts : TextIndex
    pool : Pool
    limits : Limits
    writable : bool
    """

    def __init__(self, name: str, texts: TextIndex, pool: Pool, limits: Limits, *, writable: bool = True) -> None:
        self.name, self.texts, self.pool, self.limits, self.writable = name, texts, pool, limits, writable
        self.writes = WriteQueue(texts, 4 * limits.waiting, max(1, pool.threads - 1))
        self._counted: dict[Any, schemas.FieldsAnswer] = {}

    @cached_property
    def cache(self) -> QueryCache:
        """The queries that were encoded last."""
        return QueryCache(self.texts.encoder)

    def load(self) -> None:
        """Load the model and answer a query, so that the first client does not wait for it."""
        self.texts.searcher = Searcher(self.texts.index, self.cache)
        self.texts.index.read_ahead()
        if len(self.texts):
            self.texts.answers(["warm up"], 1)
        else:
            self.cache.encode_query(["warm up"])

    def close(self) -> None:
        """Write what waits, and close the index."""
        self.writes.close()
        self.texts.close()

    @property
    def encoder(self) -> Encoder:
        """Of the index."""
        return self.texts.encoder

    async def compact(self, deadline: Deadline) -> None:
        """Merge all segments now."""
        self._check_writable()
        await self.pool.run(self.texts.compact, deadline)

    def gauges(self) -> dict[str, float]:
        """Return what `weft.serving.metrics` shows of it."""
        with self.texts.index.view() as view:
            sizes = {"documents": view.documents, "segments": len(view.segments)}
        writes = self.writes
        made: dict[str, float] = {**sizes, "waiting": writes.waiting, "begun": writes.begun, "commits": writes.commits}
        return made | ({"hits": self.cache.hits, "misses": self.cache.misses} if "cache" in vars(self) else {})

    def families(self) -> Iterable[Metric]:
        """Yield what else `weft.serving.metrics` shows of it."""
        return ()

    @property
    def version(self) -> int:
        """How many changes of a log it has applied; 0 where it follows none."""
        return 0

    def check_reached(self, version: int) -> None:
        """Return once this version can be read; it may have to be fetched, so this is called on a thread."""
        if version > self.version:
            raise RefusedError(409, f"version {version} is not here; this index follows no log")

    # -- searching -----------------------------------------------------------------------------------

    async def search(self, request: schemas.SearchRequest, deadline: Deadline) -> bytes:
        """Answer a search with a `SearchAnswer` as JSON; single text queries share a call under load."""
        begun = time.perf_counter()
        limits = self.limits
        given = [part for part in (request.query, request.queries, request.vectors) if part is not None]
        if len(given) != 1:
            raise invalid("query", "the request", "one of query, queries and vectors", f"{len(given)} of them")
        for name in ("k", "n_probe", "k_prime", "refine"):
            limits.most(getattr(request, name), name)
        limits.alignment(request.alignment)
        self.check_filter(request.filter)
        if request.at_least is not None:
            version = read_version(request.at_least)
            await self.pool.run(lambda: self.check_reached(version), deadline)
        options: dict[str, Any] = {"alignment": request.alignment, "filter": request.filter, "exact": request.exact}
        for name in ("n_probe", "k_prime", "refine", "beta_q"):
            options[name] = getattr(request, name)
        search = Search(request.k, tuple(options.items()), request.hybrid, tuple(dict.fromkeys(request.fields)))
        if request.vectors is not None:
            if request.hybrid is not None:
                raise invalid("hybrid", "the request", "left out: vectors have no words for BM25", request.hybrid)
            if "explanation" in search.fields or "snippet" in search.fields:
                raise invalid("fields", "the request", "text, metadata or spans for a query of vectors", search.fields)
            limits.count(request.vectors, "vectors", "queries")
            dim = self.texts.index.dim
            arrays = [read_vectors(vectors, dim, limits.query_tokens) for vectors in request.vectors]
            answer = await self.pool.run(lambda: _json(begun, *self._by_vectors(arrays, search, deadline)), deadline)
        elif request.query is not None:
            limits.text(request.query, "query", "query_characters")
            key, asked = (self.name, search), _Asked(request.query, begun)
            answer = await self.pool.together(
                key, asked, lambda several: self._in_turn(several, search, deadline), deadline
            )
        else:
            queries = request.queries or []
            limits.count(queries, "queries", "queries")
            for query in queries:
                limits.text(query, "queries", "query_characters")
            answer = await self.pool.run(lambda: _json(begun, *self._many(queries, search, deadline)), deadline)
        return answer  # type: ignore[no-any-return]

    def check_filter(self, text: str | None) -> None:
        """Refuse a filter that is too long or cannot be read."""
        if text is not None:
            if len(text) > self.limits.filter_characters:
                most = f"at most {self.limits.filter_characters:,} characters"
                raise invalid("filter", "the request", most, f"{len(text):,}")
            parse_filter(text)

    def _by_text(self, queries: Sequence[str], search: Search, deadline: Deadline) -> list[tuple[str, schemas.Found]]:
        options = dict(search.options)
        with self.texts.view():
            options |= {"hits": search.hits, "documents": search.documents}
            answers = self.texts.answers(queries, search.k, hybrid=search.hybrid, **options)
            return [(str(answer.alignment), self.found(answer, search, deadline)) for answer in answers]

    def _in_turn(self, several: Sequence[_Asked], search: Search, deadline: Deadline) -> Iterator[bytes]:
        """Encode queries in one run of the model, then answer each."""
        with self.texts.view():
            if len(several) > 1:
                queries = [asked.query for asked in several]
                self.cache.encode_query(queries, salience=True if self.cache.has_salience else None)
            for asked in several:
                ((alignment, found),) = self._by_text([asked.query], search, deadline)
                yield _json(asked.begun, alignment, [found])

    def _many(self, queries: Sequence[str], search: Search, deadline: Deadline) -> tuple[str, list[schemas.Found]]:
        found = []
        with self.texts.view():  # one state for all; between two queries there is time to give up
            for query in queries:
                deadline.check()
                found += self._by_text([query], search, deadline)
        return found[0][0], [one for _, one in found]

    def _by_vectors(self, arrays: list[Any], search: Search, deadline: Deadline) -> tuple[str, list[schemas.Found]]:
        index, found = self.texts.index, []
        with self.texts.view():
            options = {name: value for name, value in search.options if value is not None}
            for array in arrays:
                deadline.check()
                query = TokenVectors.trusted(array, np.array([0, len(array)], dtype=np.int64))
                (ranking,) = index.search(query, search.k, hits=search.hits, documents=search.documents, **options)
                behind = [(ranking, at) for at in range(len(ranking))]
                found.append(schemas.Found(self._hits(ranking, behind, search), ranking.certified, ranking.missing))
            return str(options.get("alignment") or index.alignment), found

    def found(self, answer: Answer, search: Search, deadline: Deadline) -> schemas.Found:
        """Return an answer with what was asked for."""
        ranking = answer.ranking
        if answer.lexical is None:
            behind: list[_Behind] = [(ranking, at) for at in range(len(ranking))]
        else:
            behind = [answer.behind(name) for name in ranking.ids]
        hits = self._hits(ranking, behind, search)
        if "explanation" in search.fields or "snippet" in search.fields:
            for at, hit in enumerate(hits):
                deadline.check()
                self._explained(hit, answer, at, search)
        found = schemas.Found(hits, ranking.certified, ranking.missing)
        if search.hits:
            found.tokens = query_tokens(self.encoder, answer.query, answer.tokens)
        return found

    def _hits(self, ranking: Ranking, behind: Sequence[_Behind], search: Search) -> list[schemas.Hit]:
        """Return the results with the fields that were asked for, read for all of them at once."""
        hits = list(map(schemas.Hit, ranking.ids, ranking.scores.tolist()))
        if not search.documents:
            return hits
        text, metadata, spans = "text" in search.fields, "metadata" in search.fields, "spans" in search.fields
        for hit, (document, places), scored in zip(hits, self.texts.shown(ranking, spans=spans), behind, strict=True):
            if text:
                hit.text = document.text
            if metadata:
                hit.metadata = own_metadata(document)
            if spans:
                hit.spans = [] if scored is None else matched_spans(document.text, places, *scored)
        return hits

    def bare(self, ids: Sequence[str], search: Search) -> list[schemas.Hit]:
        """Return documents that token vectors did not find, with what was asked for."""
        return self._hits(Ranking(list(ids), np.zeros(len(ids), np.float32)), [None] * len(ids), search)

    def _explained(self, hit: schemas.Hit, answer: Answer, at: int, search: Search) -> None:
        options = {name: value for name, value in search.options if name in ("filter", "exact", "beta_q")}
        if "snippet" in search.fields:
            document = self.texts.get(hit.id)
            assert document is not None
            fragments = self.texts.snippet(answer, document, **options)
            hit.snippet = [schemas.Fragment(f.text, round(f.strength, 4)) for f in fragments]
        if "explanation" in search.fields:
            why = self.texts.explain_answer(answer, hit.id, at + 1, **options)
            hit.explanation = None if why is None else to_dict(why)

    async def explain(self, request: schemas.ExplainRequest, deadline: Deadline) -> schemas.ExplainAnswer:
        """Explain the best documents, or one of them."""
        limits = self.limits
        limits.text(request.query, "query", "query_characters")
        limits.most(request.k, "k")
        limits.alignment(request.alignment)
        self.check_filter(request.filter)
        options: dict[str, Any] = {
            "alignment": request.alignment,
            "filter": request.filter,
            "exact": request.exact,
            "beta_q": request.beta_q,
        }

        def work() -> list[dict[str, Any]]:
            if request.id is not None and not self.texts.family(request.id):
                raise RefusedError(404, "no document has this id")
            if request.id is not None:
                found = self.texts.explain(request.query, request.k, id=request.id, **options)
                return [to_dict(explanation) for explanation in found]
            made = []
            with self.texts.view():
                (answer,) = self.texts.answers([request.query], request.k, **options)
                searched = {name: value for name, value in options.items() if name != "alignment"}
                for rank, name in enumerate(answer.ranking.ids, 1):
                    deadline.check()
                    why = self.texts.explain_answer(answer, name, rank, **searched)
                    made += [] if why is None else [to_dict(why)]
            return made

        return schemas.ExplainAnswer(await self.pool.run(work, deadline))

    # -- documents -----------------------------------------------------------------------------------

    async def get(self, id: str, deadline: Deadline) -> schemas.DocumentsAnswer:  # noqa: A002
        """Return a document, or its passages."""
        found = await self.pool.run(lambda: self.texts.family(id), deadline)
        if not found:
            raise RefusedError(404, "no document has this id")
        return schemas.DocumentsAnswer([schemas.DocumentOut(d.id, d.text, own_metadata(d)) for d in found])

    async def add(self, request: schemas.AddRequest, deadline: Deadline) -> schemas.AddAnswer:
        """Add documents; when this returns they are on disk."""
        self._check_writable()
        self.limits.count(request.documents, "documents", "documents")
        documents, seen = [], set()
        for given in request.documents:
            self.limits.text(given.text, "text", "text_characters")
            if given.id is not None:
                self._check_id(given.id)
            if "weft" in given.metadata:
                raise invalid("metadata", "the request", "without the key 'weft', which is our own", "weft")
            document = Document(given.id or "", given.text, given.metadata)
            document = Document(document.id or text_source(document).id, document.text, document.metadata)
            if document.id in seen:
                raise invalid("documents", "the request", "with each id once", document.id)
            seen.add(document.id)
            documents.append(document)
        done = await self.writes.add(documents, request.split, deadline)
        return schemas.AddAnswer(done.added, done.updated, done.unchanged, list(done.ids))

    async def delete(self, request: schemas.DeleteRequest, deadline: Deadline) -> schemas.DeleteAnswer:
        """Remove documents; unknown ids are ignored."""
        self._check_writable()
        self.limits.count(request.ids, "ids", "documents")
        for name in request.ids:
            self._check_id(name)
        return schemas.DeleteAnswer((await self.writes.delete(request.ids, deadline)).deleted)

    def _check_writable(self) -> None:
        if not self.writable:
            raise RefusedError(403, "this index is served for reading only")

    def _check_id(self, id: str) -> None:  # noqa: A002
        self.limits.text(id, "id", "id_characters")
        if any(ord(character) < 32 for character in id):
            raise invalid("id", "the request", "without control characters", id)

    # -- looking at it -------------------------------------------------------------------------------

    async def info(self, deadline: Deadline) -> schemas.IndexInfo:
        """Return sizes and settings."""

        def work() -> schemas.IndexInfo:
            info = self.texts.info()
            names = ("documents", "tokens", "segments", "deleted", "bytes", "dim", "bits", "alignment")
            sizes = {name: info[name] for name in names}
            weighs = info["salience_weighs"]
            model = self.texts.encoder.name
            return schemas.IndexInfo(
                self.name,
                **sizes,
                model=model,
                salience_weighs=weighs,
                writable=self.writable,
                fingerprint=info["encoder_fingerprint"],
                version=self.version,
            )

        made: schemas.IndexInfo = await self.pool.run(work, deadline)
        return made

    async def matching(self, request: schemas.FilterRequest, deadline: Deadline) -> schemas.MatchingAnswer:
        """Return the ids that a filter lets through."""
        self.check_filter(request.filter)
        wanted = "@id exists" if request.filter is None else request.filter
        ids = await self.pool.run(lambda: self.texts.matching(wanted), deadline)
        return schemas.MatchingAnswer(len(ids), ids[:MATCHING])

    async def fields(self, request: schemas.FilterRequest, deadline: Deadline) -> schemas.FieldsAnswer:
        """Return the metadata that is there, counted; remembered for each state of the index and each filter."""
        self.check_filter(request.filter)

        def work() -> schemas.FieldsAnswer:
            with self.texts.index.view() as view:
                key = (view.generation, request.filter)
                known = self._counted.get(key)
                if known is not None:
                    return known
                counts = self.texts.value_counts(request.filter)
                number = len(self.texts) if request.filter is None else len(self.texts.matching(request.filter))
            listed = [
                schemas.FieldCounts(
                    name.removesuffix("[]"), name.endswith("[]"), [schemas.FieldValue(v, n) for v, n in values]
                )
                for name, values in counts.items()
            ]
            while len(self._counted) >= 16:
                self._counted.pop(next(iter(self._counted)), None)
            self._counted[key] = made = schemas.FieldsAnswer(number, listed)
            return made

        return await self.pool.run(work, deadline)  # type: ignore[no-any-return]

    async def encode(self, request: schemas.EncodeRequest, deadline: Deadline) -> schemas.EncodeAnswer:
        """Return token vectors of texts."""
        return await encode_texts(self.texts.encoder, request, self.limits, self.pool, deadline)
