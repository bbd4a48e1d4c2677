"""`Fleet`: the shards of one index, asked together. It returns what one index over all of them would."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from weft.alignment import XTR, Alignment
from weft.cluster.replicas import Replicas, ShardError
from weft.cluster.wire import Response
from weft.search.hybrid import BLEND, Parts, blend, fuse
from weft.search.parts import Retrieved, Words, retrieved_from_all
from weft.search.searcher import DEPTH
from weft.serving import parts, schemas
from weft.serving.problems import RefusedError
from weft.types import Ranking, TokenVectors

OPTIONS = ("filter", "exact", "n_probe", "k_prime", "refine", "beta_q")
"""Fields of a search that are passed to the shards unchanged."""
TOTALS = 64
"""Filters whose numbers of tokens are remembered."""
_packer = msgspec.msgpack.Encoder()
_UNPACK: dict[str, Callable[[bytes], Any]] = {
    "search": msgspec.msgpack.Decoder(parts.PartAnswer).decode,
    "tokens": msgspec.msgpack.Decoder(parts.TokensAnswer).decode,
    "words": msgspec.msgpack.Decoder(parts.WordsAnswer).decode,
    "lexical": msgspec.msgpack.Decoder(parts.LexicalAnswer).decode,
}


class Asked(NamedTuple):
    """A query on its way to the shards."""

    query: str
    tokens: TokenVectors
    k: int
    alignment: str
    options: Mapping[str, Any]
    fields: tuple[str, ...] = ()
    at_least: Mapping[int, int] = {}


class Merged(NamedTuple):
    """What the shards found together, best first."""

    hits: list[schemas.Hit]
    owner: list[int]
    """The shard of each"""
    certified: bool


class Fleet:
    """The shards of one index.

    Parameters
    ----------
    shards : sequence of Replicas
    """

    def __init__(self, shards: Sequence[Replicas]) -> None:
        self.shards = list(shards)
        self._totals: dict[str | None, list[int]] = {}

    def every(self) -> dict[int, Replicas]:
        """Return all shards by their number."""
        return dict(enumerate(self.shards))

    async def ask(
        self, among: dict[int, Replicas], call: Callable[[int, Replicas], Awaitable[Any]], *, partial: bool
    ) -> dict[int, Any]:
        """Ask shards at the same time; those that fail are taken out of `among`, or the first failure is raised."""
        found = await asyncio.gather(*(call(n, shard) for n, shard in among.items()), return_exceptions=True)
        answers = {}
        for number, answer in zip(list(among), found, strict=True):
            if isinstance(answer, ShardError) and partial:
                del among[number]
            elif isinstance(answer, BaseException):
                raise answer
            else:
                answers[number] = answer
        if not answers:
            raise ShardError("no shard answers")
        return answers

    async def _step(
        self, name: str, among: dict[int, Replicas], request: Callable[[int], Any], *, partial: bool
    ) -> dict[int, Any]:
        """Ask shards for a step of a search at the same time: `ask`, with as little work for each as possible."""
        waiting: dict[int, asyncio.Future[Response]] = {}
        last, body, answers, unpack = None, b"", {}, _UNPACK[name]
        try:
            for number, shard in among.items():
                made = request(number)
                if made is not last:
                    last, body = made, _packer.encode(made)
                waiting[number] = shard.step(name, body)
            for number, asked in waiting.items():
                try:
                    answers[number] = unpack((await asked).body)
                except ShardError:
                    if not partial:
                        raise
                    del among[number]
        finally:
            for asked in waiting.values():
                if not asked.cancel() and not asked.cancelled():
                    asked.exception()  # it is known; the first one counts
        if not answers:
            raise ShardError("no shard answers")
        return answers

    # -- by token vectors ----------------------------------------------------------------------------

    async def search(self, asked: Asked, among: dict[int, Replicas], *, partial: bool) -> Merged:
        """Search by token vectors."""
        retrieval = None
        if isinstance(Alignment.parse(asked.alignment), XTR):
            retrieval = await self._retrieval(asked, among, partial=partial)
        request = self._request(asked, retrieval)
        answers = await self._step("search", among, lambda n: _reaching(request, asked, n), partial=partial)
        return merged(answers, asked.k)

    def _request(self, asked: Asked, retrieval: parts.Retrieval | None) -> parts.PartRequest:
        return parts.PartRequest(
            query=asked.query,
            tokens=parts.Tokens.of(asked.tokens, readable=bool(asked.fields)),
            k=asked.k,
            alignment=asked.alignment,
            fields=asked.fields,  # type: ignore[arg-type]
            retrieval=retrieval,
            **asked.options,
        )

    async def _retrieval(self, asked: Asked, among: dict[int, Replicas], *, partial: bool) -> parts.Retrieval:
        """XTR's first step: the k′-th similarities over all shards.

        k′ may depend on the number of tokens. The shards are asked with the number known from the last time, and once
        more if it has changed.
        """
        options = asked.options
        key = options.get("filter")
        totals = self._totals.get(key, [0] * len(self.shards))
        packed = parts.Tokens.of(asked.tokens, readable=False)
        for _ in range(3):  # something may be written between two steps

            def request(number: int, told: list[int] = totals) -> parts.TokensRequest:
                return parts.TokensRequest(
                    tokens=packed,
                    alignment=asked.alignment,
                    total=sum(told[n] for n in among),
                    before=sum(told[n] for n in among if n < number),
                    at_least=asked.at_least.get(number, 0),
                    **options,
                )

            answers = await self._step("tokens", among, request, partial=partial)
            now = [answers[n].tokens if n in answers else 0 for n in range(len(self.shards))]
            if now == totals:
                break
            totals = now
        while len(self._totals) >= TOTALS:
            self._totals.pop(next(iter(self._totals)))
        self._totals[key] = now
        rows = max(answer.rows for answer in answers.values())
        found = [
            Retrieved(a.tokens, a.compared, np.frombuffer(a.best, "<f4").reshape(a.rows or rows, -1))
            for _, a in sorted(answers.items())
        ]
        made = retrieved_from_all(asked.alignment, found, exact=bool(options.get("exact")))
        return parts.Retrieval(made.k_prime, np.ascontiguousarray(made.last, "<f4").tobytes(), made.how)

    async def show(
        self, asked: Asked, owners: Mapping[int, Sequence[str]], *, family: str | None = None
    ) -> tuple[dict[str, schemas.Hit], dict[str, schemas.Hit]]:
        """Return documents with the fields that were asked for: those that token vectors score, and the others."""
        among = {n: self.shards[n] for n in owners}
        retrieval = None
        if isinstance(Alignment.parse(asked.alignment), XTR):
            retrieval = await self._retrieval(asked, self.every(), partial=True)
        base = self._request(asked, retrieval)

        def request(number: int) -> parts.PartRequest:
            wanted = list(owners[number]) if family is None else None
            most = max(asked.k, len(owners[number]))
            return replace(_reaching(base, asked, number), among=wanted, family=family, k=most)

        answers = await self._step("search", among, request, partial=False)
        scored = {hit.id: hit for answer in answers.values() for hit in answer.hits}
        return scored, {hit.id: hit for answer in answers.values() for hit in answer.bare}

    # -- with words ----------------------------------------------------------------------------------

    async def hybrid(
        self, asked: Asked, method: str, among: dict[int, Replicas], *, partial: bool
    ) -> tuple[Merged, dict[str, Parts]]:
        """Search by token vectors and by words: the flow of `weft.search.Searcher.search`."""
        depth = max(asked.k, DEPTH)
        deep = asked._replace(k=depth, fields=())
        found, (lexical, owner, exact, most) = await asyncio.gather(
            self.search(deep, among, partial=partial), self._words(deep, among, partial=partial)
        )
        ranking = Ranking([hit.id for hit in found.hits], np.array([hit.score for hit in found.hits], np.float32))
        owner |= dict(zip(ranking.ids, found.owner, strict=True))
        parts_of: dict[str, Parts] = {}
        if method != BLEND:
            fused = fuse([ranking, lexical], asked.k, method=method)
        else:
            rest: dict[int, list[str]] = {}
            for name in dict.fromkeys((*lexical.ids, *exact)):
                if name not in ranking.ids and owner[name] in among:
                    rest.setdefault(owner[name], []).append(name)
            others = (await self.show(deep, rest))[0] if rest else {}
            scores = {name: hit.score for name, hit in others.items()}
            fused, parts_of = blend(ranking, lexical, scores, exact, asked.k, most=most)
        hits = [schemas.Hit(*result) for result in fused]
        if asked.fields and hits:
            owners: dict[int, list[str]] = {}
            for hit in hits:
                owners.setdefault(owner[hit.id], []).append(hit.id)
            scored, bare = await self.show(asked, owners)
            for hit in hits:
                shown = scored.get(hit.id) or bare.get(hit.id)
                if shown is not None:
                    _fill(hit, shown)
        return Merged(hits, [owner[hit.id] for hit in hits], False), parts_of

    async def _words(
        self, asked: Asked, among: dict[int, Replicas], *, partial: bool
    ) -> tuple[Ranking, dict[str, int], set[str], float]:
        wanted = asked.options.get("filter")

        def count(number: int) -> parts.WordsRequest:
            return parts.WordsRequest(query=asked.query, filter=wanted, at_least=asked.at_least.get(number, 0))

        mine = dict(among)
        counts = await self._step("words", mine, count, partial=partial)
        whole = Words.together([Words(c.documents, c.words, tuple(c.holders)) for c in counts.values()])

        def rank(number: int) -> parts.LexicalRequest:
            return parts.LexicalRequest(
                query=asked.query,
                k=asked.k,
                documents=whole.documents,
                words=whole.words,
                holders=list(whole.holders),
                filter=wanted,
                at_least=asked.at_least.get(number, 0),
            )

        ranked = await self._step("lexical", mine, rank, partial=partial)
        rows = [
            (-score, number, place, name)
            for number, answer in ranked.items()
            for place, (name, score) in enumerate(zip(answer.ids, answer.scores, strict=True))
        ]
        best = sorted(rows)[: asked.k]
        exact = {name: number for number, c in counts.items() for name in c.exact}
        owner = {name: number for _, number, _, name in rows} | exact
        lexical = Ranking([row[3] for row in best], np.array([-row[0] for row in best], np.float32))
        return lexical, owner, set(exact) if len(exact) <= parts.EXACT else set(), whole.most_score

    # -- documents -----------------------------------------------------------------------------------

    async def documents(self, path: str) -> list[bytes]:
        """Return what each shard says of a path; those that know nothing of it are left out."""

        async def one(_: int, shard: Replicas) -> bytes | None:
            try:
                return (await shard.ask("GET", path)).body
            except RefusedError as refused:
                if refused.status == 404:
                    return None
                raise

        answers = await self.ask(self.every(), one, partial=False)
        return [answer for answer in answers.values() if answer is not None]

    def retire(self) -> None:
        """Keep no connection beyond the request that it serves."""
        for shard in self.shards:
            for member in shard.members:
                member.wire.keeps = False
                member.wire.close()

    def close(self) -> None:
        """Close all connections."""
        for shard in self.shards:
            shard.close()


def merged(answers: Mapping[int, parts.PartAnswer], k: int) -> Merged:
    """Merge what shards found; of equal scores the lower shard comes first."""
    rows = [
        (-hit.score, number, place)
        for number, answer in sorted(answers.items())
        for place, hit in enumerate(answer.hits)
    ]
    best = sorted(rows)[:k]
    hits = [answers[number].hits[place] for _, number, place in best]
    certified = all(answer.certified for answer in answers.values())
    return Merged(hits, [number for _, number, _ in best], certified)


def _reaching(request: parts.PartRequest, asked: Asked, number: int) -> parts.PartRequest:
    version = asked.at_least.get(number, 0)
    return replace(request, at_least=version) if version else request


def _fill(hit: schemas.Hit, shown: schemas.Hit) -> None:
    for name in ("text", "metadata", "snippet", "spans", "explanation"):
        setattr(hit, name, getattr(shown, name))
