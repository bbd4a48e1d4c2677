"""Many systems on many collections: runs, measures, comparisons, tables."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from weft.evaluation.answers import judge
from weft.evaluation.baselines import System, candidates_with_gold, slug
from weft.evaluation.bm25 import BM25
from weft.evaluation.datasets import Task
from weft.evaluation.measures import Scores, evaluate
from weft.evaluation.pools import DEPTH, Pool, pool_of
from weft.evaluation.runs import Qrels, Run, write_run
from weft.evaluation.significance import Comparison, Interval, bootstrap, compare, macro_average
from weft.evaluation.tables import Cell, Table

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cut:
    """How much of each collection is looked at."""

    documents: int | None = None
    """None: all."""
    queries: int | None = None
    seed: int = 5

    def pool(self, task: Task) -> Pool:
        """Cut a collection to a pool."""
        collection = task.collection
        if not collection.relevant() and task.answers:  # questions that only answers judge
            texts = {document.id: document.full_text for document in collection.documents}
            lexical = BM25(texts).search(list(collection.queries.values()), DEPTH)
            bm25 = {q: {r.id: r.score for r in found} for q, found in zip(collection.queries, lexical, strict=True)}
            return Pool(task.name, texts, collection.queries, collection.qrels, True, bm25)
        if self.documents is None and self.queries is None:
            return pool_of(collection, whole=True, seed=self.seed)
        return pool_of(collection, self.documents or 10**12, self.queries or 10**12, seed=self.seed)


@dataclass
class Results:
    """What was measured: (collection, system) → scores, in the order of measuring."""

    measures: tuple[str, ...]
    scores: dict[tuple[str, str], Scores] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Documents and queries of each collection."""
    groups: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Of collections whose queries are averaged by groups."""

    @property
    def collections(self) -> list[str]:
        """Their names."""
        return list(dict.fromkeys(collection for collection, _ in self.scores))

    @property
    def systems(self) -> list[str]:
        """Their names."""
        return list(dict.fromkeys(system for _, system in self.scores))

    def mean(self, collection: str, system: str, measure: str) -> Interval | None:
        """Return a mean over queries with its interval; None if it was not measured."""
        scores = self.scores.get((collection, system))
        if scores is None:
            return None
        groups = self.groups.get(collection)
        if not groups:
            return bootstrap(scores.values(measure))
        return macro_average(grouped(scores, measure, groups))

    def average(self, system: str, measure: str) -> Interval | None:
        """Return the macro average over collections; None unless the system was measured on all of them."""
        parts: dict[str, Sequence[float]] = {}
        for collection in self.collections:
            scores = self.scores.get((collection, system))
            if scores is None:
                return None
            groups = self.groups.get(collection)
            if groups:
                means = grouped(scores, measure, groups).values()
                parts[collection] = [float(np.mean(values)) for values in means]
            else:
                parts[collection] = list(scores.per_query[measure].values())
        return macro_average(parts)

    def compare(self, collection: str, first: str, second: str, measure: str) -> Comparison:
        """Compare two systems on a collection."""
        return compare(self.scores[collection, first], self.scores[collection, second], measure)

    def tables(self) -> list[Table]:
        """Return one table: of one collection with all measures, or of many with the first; then one a measure."""
        if len(self.collections) == 1:
            (collection,) = self.collections
            rows: list[list[Cell]] = [
                [system, *(self.mean(collection, system, measure) for measure in self.measures)]
                for system in self.systems
            ]
            return [Table("measures", self._title(collection), ["", *self.measures], rows, best="columns")]
        made = []
        for measure in self.measures:
            rows = [
                [
                    system,
                    *(self.mean(collection, system, measure) for collection in self.collections),
                    self.average(system, measure),
                ]
                for system in self.systems
            ]
            made.append(Table(slug(measure), measure, ["", *self.collections, "average"], rows, best="columns"))
        return made

    def comparisons(self, base: str, systems: Iterable[str], measure: str) -> Table:
        """Return systems beside one of them: differences with intervals, and p-values."""
        rows: list[list[Cell]] = []
        for collection in self.collections:
            for system in systems:
                if system == base or not {(collection, system), (collection, base)} <= self.scores.keys():
                    continue
                found = self.compare(collection, system, base, measure)
                outcome = f"{found.wins} / {found.ties} / {found.losses}"
                rows.append([collection, system, found.difference, round(found.p_value, 4), outcome])
        columns = ["collection", "", f"{measure} − {base}", "p", "better / equal / worse"]
        return Table("comparisons", f"{measure} beside {base}", columns, rows, note=P_VALUES)

    def _title(self, collection: str) -> str:
        documents, queries = self.sizes.get(collection, (0, 0))
        of = f"{documents:,} documents, {queries:,} queries" if documents else f"{queries:,} queries"
        return f"{collection} ({of})"


P_VALUES = "Differences with paired bootstrap intervals of 95 %; p of a two-sided paired randomisation test."


def measure_all(
    tasks: Iterable[Task],
    systems: Sequence[System],
    measures: Sequence[str],
    *,
    cut: Cut | None = None,
    rerank: bool = False,
    save: Path | None = None,
) -> Iterator[Results]:
    """Measure systems on collections, one after the other; yield all results so far after each.

    Parameters
    ----------
    tasks : iterable of Task
    systems : sequence of System
    measures : names
    cut : Cut, optional
        By default whole collections.
    rerank : bool
        Rank only BM25's best 100 documents of each query together with the relevant ones (GR as MVDR §6.3).
    save : path, optional
        A folder for the runs: ``<collection>/<system>.run``.
    """
    results = Results(tuple(measures))
    depth = depth_of(measures)
    for task in tasks:
        pool = (cut or Cut()).pool(task)
        logger.info("%s: %d documents, %d queries", pool.name, len(pool.documents), len(pool.queries))
        among = candidates_with_gold(pool) if rerank else None
        results.sizes[pool.name] = len(pool.documents), len(pool.queries)
        if task.groups:
            results.groups[pool.name] = {query: task.groups.get(query, "") for query in pool.queries}
        for system in systems:
            run = system.search(pool, depth + task.drop_own, among)
            if task.drop_own:
                run = {q: {d: s for d, s in documents.items() if d != q} for q, documents in run.items()}
            if save is not None:
                folder = save / slug(pool.name)
                folder.mkdir(parents=True, exist_ok=True)
                write_run(folder / f"{slug(system.name)}.run", run, tag=slug(system.name))
            results.scores[pool.name, system.name] = evaluate(run, judgements(task, pool, run, depth), measures)
        yield results


def judgements(task: Task, pool: Pool, run: Run, depth: int) -> Qrels:
    """Return the judgements for a run: the pool's, or those made from the answers in its own passages."""
    if not task.answers:
        return pool.qrels
    answers = {query: task.answers[query] for query in pool.queries if query in task.answers}
    return judge(run, pool.documents, answers, depth)


def depth_of(measures: Iterable[str]) -> int:
    """Return how many documents of a query the measures look at: the largest number after an @, at least 100.

    Examples
    --------
    >>> depth_of(["nDCG@10"]), depth_of(["MRR@10", "Recall@1000"]), depth_of(["top-200"])
    (100, 1000, 200)
    """
    cuts = [int(found) for name in measures for found in re.findall(r"[@-](\d+)$", name)]
    return max([DEPTH, *cuts])


def grouped(scores: Scores, measure: str, groups: Mapping[str, str]) -> dict[str, list[float]]:
    """Return the values of each group of queries."""
    found: dict[str, list[float]] = {}
    for query, value in scores.per_query[measure].items():
        found.setdefault(groups.get(query, ""), []).append(value)
    return found
