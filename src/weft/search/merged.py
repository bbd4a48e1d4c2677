"""One query over all segments of a state: each is searched, and what they found becomes one ranking.

The score of a result is the sum of the pairs that the ranking carries for it, divided by Z: one computation, whose
terms are kept where they are wanted and summed in either case.

Between two searches little of this code is left in the processor's caches. So few things are done here to a handful of
documents, and plain lists are faster than arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from weft.alignment import XTR
from weft.errors import invalid
from weft.search.tokens import search_tokens
from weft.storage.catalogue import Catalogue
from weft.storage.segments import Allowed, Bar, Found, Plan, Terms
from weft.storage.segments.terms import MaxTerms, scores_of
from weft.storage.views import View
from weft.types import Hits, Ranking, TokenRetrieval, TokenVectors


class Query(NamedTuple):
    """One query, and what is wanted of it."""

    tokens: TokenVectors
    hits: bool
    """Whether the pairs are"""
    documents: bool
    """Whether the documents are"""
    rows: NDArray[np.int64] | None = None
    """Where its tokens stood before β_q pruned it; None where it did not."""


_Candidate = tuple[float, int, int, int]
"""One of the best documents of all segments: its score, negative; the catalogue's number; which segment of the view it
is of; and its place in what that segment found. They sort as they rank: of equal scores the older comes first."""


class _Scored(NamedTuple):
    """A candidate again, by the sum of its terms. These sort alike."""

    lost: float
    number: int
    owner: int
    ordinal: int
    """Which document of its segment it is"""
    terms: Sequence[Terms]
    place: int
    """Which of these are its own"""

    @property
    def z(self) -> float:
        """What the sum was divided by."""
        return self.terms.z if isinstance(self.terms, MaxTerms) else self.terms[self.place].z


def rank(
    query: Query,
    plan: Plan,
    view: View,
    allowed: Sequence[Allowed],
    ranked: Sequence[NDArray[np.bool_]] | None,
    catalogue: Catalogue,
) -> Ranking:
    """Return the ranking of one query.

    Parameters
    ----------
    query : Query
    plan : Plan
    view : View
    allowed : one for each segment
        Which documents may be scored.
    ranked : one (N,) mask for each segment, optional
        Which of them may be in the ranking; by default all.
    catalogue : Catalogue
        Of the same state.
    """
    answers, retrieval = _answers(query.tokens, plan, view, allowed, ranked)
    found = _candidates(answers, view, plan.wanted)
    near = found[: plan.wanted]  # a few more than asked for: the last digits of their scores are still to come
    again = _scored(near, answers)
    best = again[: plan.k]
    scores = np.array([-one.lost for one in best], dtype=np.float32)
    rest, margin = [answer.rest for answer in answers], None
    certified = all(bound < np.inf for bound in rest) and not isinstance(plan.alignment, XTR)
    if certified and best:
        # The best of those left out, and of those cut off by their last digits.
        left = [one[0] for one in found[plan.wanted :][:1]] + [one.lost for one in again[plan.k :][:1]]
        bound = max([*rest, *(-lost for lost in left)])
        margin = float(scores[-1] - bound) if bound > -np.inf else None
    documents = catalogue.read([one.number for one in best]) if query.documents else None
    return Ranking.trusted(
        ids=_ids(best, view, catalogue) if documents is None else tuple([document.id for document in documents]),
        scores=scores,
        hits=_Pairs(best, query.rows) if query.hits else None,
        certified=certified,
        margin=margin,
        z=np.array([one.z for one in best], dtype=np.float32) if query.hits else None,
        retrieval=retrieval,
        places=tuple([(one.owner, one.ordinal) for one in best]),
        documents=documents,
    )


def _answers(
    query: TokenVectors,
    plan: Plan,
    view: View,
    allowed: Sequence[Allowed],
    ranked: Sequence[NDArray[np.bool_]] | None,
) -> tuple[list[Found], TokenRetrieval | None]:
    """What each segment found, in the view's order, and under XTR how tokens were retrieved."""
    among = allowed if ranked is None else [a.within(mask) for a, mask in zip(allowed, ranked, strict=True)]

    def search_sums(plan: Plan) -> list[Found]:
        answers: list[Found | None] = [None] * len(among)
        bar = Bar()
        for position in sorted(range(len(among)), key=lambda i: -view.segments[i].segment.n_tokens):
            answers[position] = view.segments[position].segment.search(query, plan, among[position], bar)
        return [answer for answer in answers if answer is not None]

    if isinstance(plan.alignment, XTR):
        return search_tokens(query, plan, [s.segment for s in view.segments], allowed, ranked, search_sums)
    return search_sums(plan), None


def _candidates(answers: list[Found], view: View, wanted: int) -> list[_Candidate]:
    """Return at least the `wanted` best and the best of the others, sorted."""
    found: list[_Candidate] = []
    for owner, (answer, live) in enumerate(zip(answers, view.segments, strict=True)):
        count, ordinal, score = len(answer.score), answer.ordinal, answer.score
        position: Sequence[int] = range(count)
        if count > wanted + 1:
            kept = np.flatnonzero(score >= np.partition(score, count - wanted - 1)[count - wanted - 1])  # and equals
            ordinal, score, position = ordinal[kept], score[kept], kept.tolist()
        if count:
            found += zip((-score).tolist(), live.segment.numbers[ordinal].tolist(), repeat(owner), position)
    if any(lost != lost for lost, *_ in found):
        raise invalid("queries", "search", "of numbers whose products are finite", "NaN as a score")
    return sorted(found)


def _scored(near: Sequence[_Candidate], answers: list[Found]) -> list[_Scored]:
    """Ask the segments that found some candidates for the terms of their scores, and sort by the sums."""
    by_owner: dict[int, list[_Candidate]] = {}
    for one in near:
        by_owner.setdefault(one[2], []).append(one)
    again = []
    for owner, mine in by_owner.items():
        positions = np.array([one[3] for one in mine])
        terms, ordinals = answers[owner].terms(positions), answers[owner].ordinal[positions].tolist()
        for place, (one, ordinal, score) in enumerate(zip(mine, ordinals, scores_of(terms), strict=True)):
            again.append(_Scored(-score, one[1], owner, ordinal, terms, place))
    return sorted(again)


def _ids(best: Sequence[_Scored], view: View, catalogue: Catalogue) -> tuple[str, ...]:
    """Look ids up, each once in the life of a segment."""
    unknown = [one for one in best if one.number not in view.segments[one.owner].ids]
    if unknown:
        names = catalogue.ids([one.number for one in unknown])
        for one, name in zip(unknown, names, strict=True):
            view.segments[one.owner].ids[one.number] = name
    return tuple([view.segments[one.owner].ids[one.number] for one in best])


class _Pairs(Sequence[Hits]):
    """The pairs of each result, made when they are asked for: most searches show those of a few results, or none."""

    def __init__(self, best: Sequence[_Scored], rows: NDArray[np.int64] | None) -> None:
        self._best, self._rows = best, None if rows is None else rows.astype(np.int32)
        self._places = np.arange(len(best))

    def __len__(self) -> int:
        return len(self._best)

    @overload
    def __getitem__(self, place: int) -> Hits: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Hits]: ...
    def __getitem__(self, place: int | slice) -> Hits | Sequence[Hits]:
        if isinstance(place, slice):
            return [self[at] for at in range(len(self))[place]]
        # Documents are named by their place in the ranking, query tokens as the caller does.
        (_, _, _, _, terms, mine), number = self._best[place], self._places[place]
        if isinstance(terms, MaxTerms):
            return terms.pairs(mine, number.repeat(terms.width), self._rows)
        pairs = terms[mine].pairs
        named = pairs.query_token if self._rows is None else self._rows[pairs.query_token]
        return Hits.trusted(**{**vars(pairs), "query_token": named, "document": number.repeat(len(pairs))})
