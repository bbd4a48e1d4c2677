"""`Routed`: an index whose shards are behind other servers, served like one (`weft.serving.api.Server`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from weft.alignment import Alignment
from weft.cluster.fleet import OPTIONS, Asked, Fleet, Merged
from weft.cluster.placing import read_version, shard_of, to_version
from weft.cluster.replicas import Replicas, ShardError
from weft.encoders import Encoder
from weft.errors import invalid
from weft.ingest import text_source
from weft.serving import schemas
from weft.serving.encoding import encode_texts, query_tokens
from weft.serving.limits import Limits
from weft.serving.pool import Deadline, Pool
from weft.serving.problems import RefusedError
from weft.serving.query_cache import QueryCache
from weft.serving.served import MATCHING
from weft.serving.vectors import read_vectors
from weft.storage.filters import parse as parse_filter
from weft.types import Document, TokenVectors

_json = msgspec.json.Encoder()
_EXPLAINED = {"explanation", "snippet"}


class Target(NamedTuple):
    """The shards of one version, and how queries are put to them; a request keeps to the one it began with."""

    fleet: Fleet
    queries: QueryCache
    alignment: str


class Routed:
    """The same methods as `weft.serving.served.Served`, answered by shards.

    Parameters
    ----------
    name : str
    fleet : Fleet
    encoder : Encoder
    alignment : str
        The shards' alignment for searches that name none.
    pool, limits
        Of the server.
    writable : bool
        Whether documents lie where `shard_of` says, so that they can be replaced.
    """

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        encoder: Encoder,
        alignment: str,
        pool: Pool,
        limits: Limits,
        *,
        writable: bool = False,
    ) -> None:
        self.name, self.target = name, Target(fleet, QueryCache(encoder), alignment)
        self.pool, self.limits, self.writable = pool, limits, writable
        self.failed = self.partial = 0

    @property
    def fleet(self) -> Fleet:
        """The shards that are asked now."""
        return self.target.fleet

    @property
    def encoder(self) -> Encoder:
        """The encoder of their version."""
        return self.target.queries.encoder

    @classmethod
    def maker(cls, name: str, fleet: Fleet, encoder: Encoder, alignment: str, **options: Any) -> Callable[..., Routed]:
        """Return what `Server` takes in place of an index."""
        return lambda pool, limits: cls(name, fleet, encoder, alignment, pool, limits, **options)

    def load(self) -> None:
        """Encode a query, so that the first client does not wait for the model."""
        self.target.queries.encode_query(["warm up"])

    def close(self) -> None:
        """Close the connections to the shards."""
        self.fleet.close()

    def point(self, fleet: Fleet, encoder: Encoder | None = None, alignment: str | None = None) -> None:
        """Answer from other shards from now on, which may be of another model; requests go on where they began.

        Parameters
        ----------
        fleet : Fleet
        encoder : Encoder, optional
        alignment : str, optional
            By default the same as before.
        """
        old, queries = self.target, self.target.queries
        if encoder is not None and encoder is not queries.encoder:
            queries = QueryCache(encoder)
            queries.encode_query(["warm up"])
        self.target = Target(fleet, queries, alignment or old.alignment)
        old.fleet.retire()

    def gauges(self) -> dict[str, float]:
        """Return what `weft.serving.metrics` shows of it."""
        return {"hits": self.target.queries.hits, "misses": self.target.queries.misses}

    def families(self) -> Iterable[Metric]:
        """Yield what else is shown."""
        asked = CounterMetricFamily("weft_shard_requests", "Requests to a replica.", labels=["shard", "replica"])
        failed = CounterMetricFamily("weft_shard_failures", "Those that failed.", labels=["shard", "replica"])
        rests = GaugeMetricFamily("weft_shard_rests", "Replicas that failed lately.", labels=["shard", "replica"])
        hedges = CounterMetricFamily("weft_shard_hedges", "Requests sent to a second replica.", labels=["shard"])
        for number, shard in enumerate(self.fleet.shards):
            hedges.add_metric([str(number)], shard.hedges)
            for replica in shard.members:
                labels = [str(number), replica.url]
                asked.add_metric(labels, replica.asked)
                failed.add_metric(labels, replica.failed)
                rests.add_metric(labels, float(replica.rests))
        yield from (asked, failed, rests, hedges)
        yield CounterMetricFamily("weft_partial_answers", "Answers without all shards.", self.partial)
        yield CounterMetricFamily("weft_failed_searches", "Searches that a shard made fail.", self.failed)

    # -- searching -----------------------------------------------------------------------------------

    async def search(self, request: schemas.SearchRequest, deadline: Deadline) -> schemas.SearchAnswer:
        """Answer a search."""
        begun, target = time.perf_counter(), self.target
        fleet, encoder = target.fleet, target.queries.encoder
        limits = self.limits
        given = [part for part in (request.query, request.queries, request.vectors) if part is not None]
        if len(given) != 1:
            raise invalid("query", "the request", "one of query, queries and vectors", f"{len(given)} of them")
        for name in ("k", "n_probe", "k_prime", "refine"):
            limits.most(getattr(request, name), name)
        self._check(request.alignment, request.filter)
        fields = tuple(dict.fromkeys(request.fields))
        if request.vectors is not None:
            if request.hybrid is not None:
                raise invalid("hybrid", "the request", "left out: vectors have no words for BM25", request.hybrid)
            if _EXPLAINED & set(fields):
                raise invalid("fields", "the request", "text, metadata or spans for a query of vectors", fields)
            limits.count(request.vectors, "vectors", "queries")
            arrays = [read_vectors(one, encoder.dim, limits.query_tokens) for one in request.vectors]
            texts = [""] * len(arrays)
            tokens = [TokenVectors.trusted(array, np.array([0, len(array)], dtype=np.int64)) for array in arrays]
        else:
            texts = [request.query] if request.query is not None else list(request.queries or [])
            limits.count(texts, "queries", "queries")
            for text in texts:
                limits.text(text, "query", "query_characters")
            tokens = await self._encoded(target, texts, deadline)
        options = {name: value for name in OPTIONS if (value := getattr(request, name)) is not None}
        at_least = self._versions(fleet, request.at_least)
        alignment, results, least = request.alignment or target.alignment, [], len(fleet.shards)
        for text, query in zip(texts, tokens, strict=True):
            deadline.check()
            asked = Asked(text, query, request.k, alignment, options, fields, at_least)
            waiting = self._one(fleet, asked, request.hybrid, partial=request.partial)
            found, answered = await _within(deadline, waiting)
            least = min(least, answered)
            made = schemas.Found(found.hits, found.certified and answered == len(fleet.shards))
            if request.vectors is None and {"spans", *_EXPLAINED} & set(fields):
                made.tokens = query_tokens(encoder, text, query)
            results.append(made)
        self.partial += least < len(fleet.shards)
        seconds = round(time.perf_counter() - begun, 6)
        shown = str(Alignment.parse(alignment))
        return schemas.SearchAnswer(shown, results, seconds, len(fleet.shards), least)

    def _check(self, alignment: str | None, wanted: str | None) -> None:
        self.limits.alignment(alignment)
        if wanted is not None:
            if len(wanted) > self.limits.filter_characters:
                most = f"at most {self.limits.filter_characters:,} characters"
                raise invalid("filter", "the request", most, f"{len(wanted):,}")
            parse_filter(wanted)

    def _versions(self, fleet: Fleet, text: str | None) -> dict[int, int]:
        found = {} if text is None else read_version(text)
        if any(shard >= len(fleet.shards) for shard in found):
            raise invalid("at_least", "the request", f"of {len(fleet.shards)} shards", text)
        return found

    async def _encoded(self, target: Target, texts: Sequence[str], deadline: Deadline) -> list[TokenVectors]:
        queries = target.queries
        salience = True if queries.has_salience else None
        made: TokenVectors = await self.pool.run(lambda: queries.encode_query(texts, salience=salience), deadline)
        return [made[at : at + 1] for at in range(len(texts))]

    async def _one(self, fleet: Fleet, asked: Asked, method: str | None, *, partial: bool) -> tuple[Merged, int]:
        among = fleet.every()
        try:
            if method is not None:
                found, _ = await fleet.hybrid(asked, method, among, partial=partial)
            elif _EXPLAINED & set(asked.fields):  # costly: only for what is in the answer
                found = await fleet.search(asked._replace(fields=("spans",)), among, partial=partial)
                await self._explain(fleet, found, asked)
            else:
                found = await fleet.search(asked, among, partial=partial)
        except ShardError as error:
            self.failed += 1
            raise RefusedError(503, str(error), retry=1) from None
        return found, len(among)

    async def _explain(self, fleet: Fleet, found: Merged, asked: Asked) -> None:
        owners: dict[int, list[str]] = {}
        for hit, number in zip(found.hits, found.owner, strict=True):
            owners.setdefault(number, []).append(hit.id)
        scored, _ = await fleet.show(asked, owners) if owners else ({}, {})
        for place, hit in enumerate(found.hits):
            shown = scored.get(hit.id)
            if shown is not None:
                found.hits[place] = shown
                if isinstance(shown.explanation, dict):
                    shown.explanation["rank"] = place + 1

    async def explain(self, request: schemas.ExplainRequest, deadline: Deadline) -> schemas.ExplainAnswer:
        """Explain the best documents, or one of them."""
        limits, target = self.limits, self.target
        fleet, alignment = target.fleet, request.alignment or self.target.alignment
        limits.text(request.query, "query", "query_characters")
        limits.most(request.k, "k")
        self._check(request.alignment, request.filter)
        (tokens,) = await self._encoded(target, [request.query], deadline)
        options = {name: value for name in ("filter", "exact", "beta_q") if (value := getattr(request, name))}
        asked = Asked(request.query, tokens, request.k, alignment, options, ("explanation",))
        found, _ = await _within(deadline, self._one(fleet, asked, None, partial=False))
        if request.id is None:
            return schemas.ExplainAnswer([_explanation(hit) for hit in found.hits])
        ranks = {hit.id: place for place, hit in enumerate(found.hits, 1)}
        members = await self._family(request.id, deadline)
        if not members:
            raise RefusedError(404, "no document has this id")
        if asked.alignment.startswith("xtr") is False:  # a score of its own, whatever the filter says
            asked = asked._replace(options={n: v for n, v in options.items() if n != "filter"})
        everywhere = {number: [member.id for member in members] for number in range(len(fleet.shards))}
        scored, _ = await self._all(fleet.show(asked, everywhere), deadline)
        why = [_explanation(hit) for hit in scored.values()]
        for one in why:
            one["rank"] = ranks.get(one["id"])
        if not why:
            raise RefusedError(422, f"{request.id!r} has no score under {asked.alignment}")
        return schemas.ExplainAnswer(sorted(why, key=lambda one: -one["score"])[: request.k])

    # -- documents -----------------------------------------------------------------------------------

    async def _family(self, id: str, deadline: Deadline) -> list[schemas.DocumentOut]:  # noqa: A002
        from urllib.parse import quote

        answers = await self._all(self.fleet.documents(f"/documents/{quote(id, safe='')}"), deadline)
        return [one for body in answers for one in msgspec.json.decode(body, type=schemas.DocumentsAnswer).documents]

    async def _all(self, waiting: Awaitable[Any], deadline: Deadline) -> Any:
        try:
            return await _within(deadline, waiting)
        except ShardError as error:
            raise RefusedError(503, str(error), retry=1) from None

    async def get(self, id: str, deadline: Deadline) -> schemas.DocumentsAnswer:  # noqa: A002
        """Return a document, or its passages."""
        found = await self._family(id, deadline)
        if not found:
            raise RefusedError(404, "no document has this id")
        return schemas.DocumentsAnswer(found)

    async def add(self, request: schemas.AddRequest, deadline: Deadline) -> schemas.AddAnswer:
        """Add documents, each in its shard; when this returns they are durable."""
        self.limits.count(request.documents, "documents", "documents")
        fleet = self.fleet
        groups: dict[int, list[schemas.DocumentIn]] = {}
        for given in request.documents:
            name = given.id or text_source(Document("", given.text, given.metadata)).id
            groups.setdefault(shard_of(name, len(fleet.shards)), []).append(given)
        bodies = {n: schemas.AddRequest(documents=group, split=request.split) for n, group in groups.items()}
        answers = await self._write(fleet, "/documents", bodies, schemas.AddAnswer, deadline)
        ids = {n: iter(answer.ids) for n, answer in answers.items()}
        owner = {id(given): n for n, group in groups.items() for given in group}
        return schemas.AddAnswer(
            sum(answer.added for answer in answers.values()),
            sum(answer.updated for answer in answers.values()),
            sum(answer.unchanged for answer in answers.values()),
            [next(ids[owner[id(given)]]) for given in request.documents],
            _version(answers),
        )

    async def delete(self, request: schemas.DeleteRequest, deadline: Deadline) -> schemas.DeleteAnswer:
        """Remove documents; unknown ids are ignored."""
        self.limits.count(request.ids, "ids", "documents")
        fleet = self.fleet
        groups: dict[int, list[str]] = {}
        for name in request.ids:
            groups.setdefault(shard_of(name, len(fleet.shards)), []).append(name)
        bodies = {number: schemas.DeleteRequest(ids=group) for number, group in groups.items()}
        answers = await self._write(fleet, "/documents/delete", bodies, schemas.DeleteAnswer, deadline)
        return schemas.DeleteAnswer(sum(answer.deleted for answer in answers.values()), _version(answers))

    async def _write(
        self, fleet: Fleet, path: str, bodies: Mapping[int, Any], answer: type[Any], deadline: Deadline
    ) -> Any:
        if not self.writable:
            raise RefusedError(403, "this index is served for reading only")

        async def one(number: int, shard: Replicas) -> Any:
            return msgspec.json.decode((await shard.write(path, _json.encode(bodies[number]))).body, type=answer)

        among = {number: fleet.shards[number] for number in bodies}
        try:
            return await _within(deadline, fleet.ask(among, one, partial=False))
        except ShardError as error:
            detail = f"{error}; other shards may have been written: send it again, what is there already is left alone"
            raise RefusedError(503, detail, retry=1) from None

    # -- looking at it -------------------------------------------------------------------------------

    async def _posted(self, path: str, body: Any, answer: type[Any], deadline: Deadline) -> list[Any]:
        data, fleet = _json.encode(body), self.fleet

        async def one(_: int, shard: Replicas) -> Any:
            return msgspec.json.decode((await shard.ask("POST", path, data)).body, type=answer)

        return list((await self._all(fleet.ask(fleet.every(), one, partial=False), deadline)).values())

    async def info(self, deadline: Deadline) -> schemas.IndexInfo:
        """Return sizes of all shards together, and their settings."""
        fleet = self.fleet

        async def one(_: int, shard: Replicas) -> Any:
            return msgspec.json.decode((await shard.ask("GET", "")).body, type=schemas.IndexInfo)

        answers = await self._all(fleet.ask(fleet.every(), one, partial=False), deadline)
        found: list[schemas.IndexInfo] = list(answers.values())
        sums = {name: sum(getattr(row, name) for row in found) for name in ("documents", "tokens", "segments", "bytes")}
        sums["deleted"] = sum(row.deleted for row in found)
        return msgspec.structs.replace(found[0], name=self.name, writable=self.writable, version=0, **sums)

    async def matching(self, request: schemas.FilterRequest, deadline: Deadline) -> schemas.MatchingAnswer:
        """Return the ids that a filter lets through."""
        self._check(None, request.filter)
        found = await self._posted("/matching", request, schemas.MatchingAnswer, deadline)
        ids = [name for one in found for name in one.ids]
        return schemas.MatchingAnswer(sum(one.total for one in found), ids[:MATCHING])

    async def fields(self, request: schemas.FilterRequest, deadline: Deadline) -> schemas.FieldsAnswer:
        """Return the metadata that is there; values that are rare in a shard are not counted there."""
        self._check(None, request.filter)
        found = await self._posted("/fields", request, schemas.FieldsAnswer, deadline)
        counts: dict[tuple[str, bool], dict[Any, int]] = {}
        for one in found:
            for field in one.fields:
                mine = counts.setdefault((field.name, field.many), {})
                for value in field.values:
                    key = (type(value.value).__name__, value.value)
                    mine[key] = mine.get(key, 0) + value.count
        listed = [
            schemas.FieldCounts(
                *name, [schemas.FieldValue(key[1], n) for key, n in sorted(mine.items(), key=lambda kv: -kv[1])[:20]]
            )
            for name, mine in sorted(counts.items())
        ]
        return schemas.FieldsAnswer(sum(one.documents for one in found), listed)

    async def encode(self, request: schemas.EncodeRequest, deadline: Deadline) -> schemas.EncodeAnswer:
        """Return token vectors of texts."""
        return await encode_texts(self.encoder, request, self.limits, self.pool, deadline)

    async def compact(self, deadline: Deadline) -> None:
        """Refuse: shards merge in the background."""
        raise RefusedError(403, "shards merge in the background")


async def _within(deadline: Deadline, waiting: Awaitable[Any]) -> Any:
    """Wait no longer than the deadline: a server that is stopped, and not dead, breaks no connection."""
    try:
        async with asyncio.timeout(deadline.at - time.monotonic()):
            return await waiting
    except TimeoutError:
        raise RefusedError(504, "a shard took too long and was given up") from None


def _explanation(hit: schemas.Hit) -> dict[str, Any]:
    assert isinstance(hit.explanation, dict)
    return hit.explanation


def _version(answers: Mapping[int, Any]) -> str | msgspec.UnsetType:
    found = {n: int(answer.version) for n, answer in answers.items() if answer.version is not msgspec.UNSET}
    return to_version(found) if found else msgspec.UNSET
