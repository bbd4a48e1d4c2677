"""Exact answers by brute force in NumPy, over the texts that are live when a query is asked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from workload import GROUP, QUERY_TOKENS, SAMPLED, STEP, K, Workload, lifetimes

QUERIES, TEXTS = 64, 10  # scored at a time


def exact_answers(work: Workload, queries: np.ndarray, at: np.ndarray) -> list[set[str]]:
    """Ids of the K best documents of each query (n, 32, dim), asked when `at` (n,) operations are done."""
    document, born, died = lifetimes(work.rows)
    best = np.full((len(queries), K), -np.inf, np.float32)
    who = np.full((len(queries), K), -1, np.int64)
    for start in range(0, len(born), STEP):
        stop = min(start + STEP, len(born))
        later = np.flatnonzero(at > born[start])  # a query asked before has no text here
        for some in (later[i : i + QUERIES] for i in range(0, len(later), QUERIES)):
            scores = maxsim(work, queries[some], start, stop)
            live = (born[start:stop] < at[some, None]) & (died[start:stop] >= at[some, None])
            scores = np.concatenate([best[some], np.where(live, scores, -np.inf)], axis=1)
            names = np.concatenate([who[some], np.broadcast_to(document[start:stop], live.shape)], axis=1)
            top = np.argsort(-scores, axis=1, kind="stable")[:, :K]
            best[some] = np.take_along_axis(scores, top, axis=1)
            who[some] = np.take_along_axis(names, top, axis=1)
    return [{str(d) for d, s in zip(*row, strict=True) if s > -np.inf} for row in zip(who, best, strict=True)]


def maxsim(work: Workload, queries: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Scores of queries (n, 32, dim) with some texts, (n, texts); a few texts at a time, so that they stay in cache."""
    flat = queries.reshape(-1, queries.shape[-1]).T
    maxima = np.empty((stop - start, flat.shape[1]), np.float32)
    for first in range(start, stop, TEXTS):
        bounds = work.offsets[first : min(first + TEXTS, stop) + 1]
        similarity = work.vectors[bounds[0] : bounds[-1]].astype(np.float32) @ flat
        for i, (a, b) in enumerate(pairwise(bounds - bounds[0]), first - start):
            similarity[a:b].max(axis=0, out=maxima[i])
    return maxima.reshape(len(maxima), len(queries), QUERY_TOKENS).sum(axis=2).T


def sampled_queries(work: Workload) -> np.ndarray:
    """Searches, spread over the stream, whose answers are compared: those after whole groups, and the final ones."""
    streamed = np.arange(work.final.start)
    streamed = streamed[work.asked_at[streamed] % GROUP == 0]
    spread = streamed[np.unique(np.linspace(0, len(streamed) - 1, SAMPLED).astype(int))]
    return np.concatenate([spread, np.arange(work.final.start, work.final.stop)])


def truth(work: Workload) -> dict[int, set[str]]:
    """Exact answers of the sampled queries, computed once."""
    path = work.folder / "truth.npz"
    if not path.exists():
        which = sampled_queries(work)
        answers = exact_answers(work, work.queries[which], work.asked_at[which])
        np.savez(path, which=which, answers=np.array([" ".join(sorted(answer)) for answer in answers]))
    with np.load(path) as known:
        pairs = zip(known["which"].tolist(), known["answers"].tolist(), strict=True)
        return {query: set(answer.split()) for query, answer in pairs}


def recall(found: Sequence[Sequence[str]], answers: Sequence[set[str]]) -> float:
    """recall@K: the mean share of the exact answers that were found."""
    return float(np.mean([len(set(f[:K]) & a) / max(len(a), 1) for f, a in zip(found, answers, strict=True)]))
