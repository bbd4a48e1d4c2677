"""One query over all segments of a state: each is searched, and what they found becomes one ranking.

The score of a result is the sum of the pairs that the ranking carries for it, divided by Z: one computation, whose
terms are kept where they are wanted and summed in either case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.alignment import XTR
from weft.search.tokens import search_tokens
from weft.storage.catalogue import Catalogue
from weft.storage.segments import Allowed, Bar, Found, Plan, Terms
from weft.storage.views import View
from weft.types import Hits, Ranking, TokenRetrieval, TokenVectors, contributions


class Query(NamedTuple):
    """One query, and where its tokens stood before β_q pruned it; None where no pairs are wanted."""

    tokens: TokenVectors
    rows: NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class _Candidates:
    """The best documents of all segments, in no order."""

    owner: NDArray[np.int64]
    """Which segment of the view each is of"""
    position: NDArray[np.int64]
    """Its place in what that segment found"""
    number: NDArray[np.int64]
    """The catalogue's number: of equal scores the older document comes first"""
    score: NDArray[np.float32]


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
    found = _joined(answers, view)
    order = np.lexsort((found.number, -found.score))
    near = order[: plan.wanted]  # a few more than asked for: the last digits of their scores are still to come
    terms = _terms(answers, found, near)
    scores = np.array([contributions(*term).sum() for term in terms], dtype=np.float32)
    again = np.lexsort((found.number[near], -scores))
    best = again[: plan.k]
    certified = all(answer.rest < np.inf for answer in answers) and not isinstance(plan.alignment, XTR)
    rest = _rest(answers, found.score[order[plan.wanted :]], scores[again[plan.k :]])
    margin = float(scores[best[-1]] - rest) if certified and len(best) and rest > -np.inf else None
    ids = _ids(found, near[best], view, catalogue)
    if query.rows is None:
        return Ranking(ids, scores[best], certified=certified, margin=margin, retrieval=retrieval)
    hits = [_named(terms[position].pairs, query.rows, place) for place, position in enumerate(best)]
    z = np.array([terms[position].z for position in best], dtype=np.float32)
    return Ranking(ids, scores[best], hits, certified=certified, margin=margin, z=z, retrieval=retrieval)


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


def _joined(answers: list[Found], view: View) -> _Candidates:
    nothing = np.zeros(0, np.int64)
    owners = [np.full(len(answer.score), i) for i, answer in enumerate(answers) if len(answer.score)]
    positions = [np.arange(len(answer.score)) for answer in answers if len(answer.score)]
    pairs = [(s.segment, answer) for s, answer in zip(view.segments, answers, strict=True) if len(answer.score)]
    return _Candidates(
        np.concatenate([nothing, *owners]),
        np.concatenate([nothing, *positions]),
        np.concatenate([nothing, *(segment.numbers[answer.ordinal] for segment, answer in pairs)]),
        np.concatenate([np.zeros(0, np.float32), *(answer.score for _, answer in pairs)]),
    )


def _terms(answers: list[Found], found: _Candidates, wanted: NDArray[np.int64]) -> list[Terms]:
    """What the scores of some candidates are the sums of, each asked of the segment that found it."""
    terms: dict[int, Terms] = {}
    for owner in np.unique(found.owner[wanted]):
        here = np.flatnonzero(found.owner[wanted] == owner)
        made = answers[owner].terms(found.position[wanted[here]])
        terms.update(zip(here.tolist(), made, strict=True))
    return [terms[place] for place in range(len(wanted))]


def _rest(answers: list[Found], left_out: NDArray[np.float32], cut_off: NDArray[np.float32]) -> float:
    """Bound the scores of all documents that are not in the ranking."""
    bounds = [answer.rest for answer in answers]
    return max([*bounds, *(float(part.max()) for part in (left_out, cut_off) if len(part))], default=-np.inf)


def _ids(found: _Candidates, best: NDArray[np.int64], view: View, catalogue: Catalogue) -> list[str]:
    """Look ids up, each once in the life of a segment."""
    unknown = [
        int(number)
        for owner, number in zip(found.owner[best], found.number[best], strict=True)
        if int(number) not in view.segments[owner].ids
    ]
    if unknown:
        names = dict(zip(unknown, catalogue.ids(unknown), strict=True))
        for owner, number in zip(found.owner[best].tolist(), found.number[best].tolist(), strict=True):
            if number in names:
                view.segments[owner].ids[number] = names[number]
    return [
        view.segments[o].ids[n] for o, n in zip(found.owner[best].tolist(), found.number[best].tolist(), strict=True)
    ]


def _named(pairs: Hits, rows: NDArray[np.int64], place: int) -> Hits:
    """Name query tokens as the caller does, and documents by their place in the ranking."""
    names = {"query_token": rows[pairs.query_token].astype(np.int32), "document": np.full(len(pairs), place)}
    return Hits.trusted(**{**vars(pairs), **names})
