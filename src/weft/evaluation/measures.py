"""Measures of a run, through `ir_measures`: for each query, and their means.

Any measure that `ir_measures` knows may be named: ``nDCG@10``, ``MRR@10`` (its RR), ``Recall@100`` (its R),
``Success@5``, ``AP``, ``RR(rel=2)@10``. ``top-20`` is the top-k accuracy of open-domain question answering (XTR
table 3): Success@20, the share of queries with an answer among the first 20.

Every query of the judgements counts. One that the run does not have counts 0, as trec_eval's ``-c`` and unlike
pytrec_eval, which leaves it out of the mean and so rewards a system for answering easy queries only.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import DataError, invalid, missing_extra
from weft.evaluation.runs import Qrels, Run, check_run, ranked

MEASURES = ("nDCG@10", "MRR@10", "Recall@100", "Success@5")
"""The default measures."""
_TOP = re.compile(r"^(?:top|accuracy|acc)[-@](\d+)$", re.IGNORECASE)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scores:
    """What `evaluate` found, by the measures' names as they were given."""

    per_query: dict[str, dict[str, float]]
    """{measure: {query: value}}, every judged query, in the order of the judgements."""

    @property
    def means(self) -> dict[str, float]:
        """The mean over queries, {measure: value}."""
        return {name: float(np.mean(list(values.values()))) for name, values in self.per_query.items()}

    @property
    def queries(self) -> list[str]:
        """The judged queries."""
        return list(next(iter(self.per_query.values())))

    def values(self, measure: str) -> NDArray[np.float64]:
        """Return one measure, a value for each of `queries`, shape (queries,)."""
        return np.array(list(self.per_query[measure].values()), dtype=np.float64)

    def __getitem__(self, measure: str) -> float:
        return self.means[measure]


def parse_measure(name: str) -> Any:
    """Return the `ir_measures` object of a name."""
    try:
        import ir_measures
    except ImportError:
        raise missing_extra("ir_measures", "eval", "measuring") from None
    top = _TOP.match(name.strip())
    try:
        found: Any = ir_measures.parse_measure(f"Success@{top[1]}" if top else name.strip())
        found.validate_params()
    except (ValueError, NameError, AssertionError, SyntaxError, TypeError, KeyError):
        raise invalid("measures", "evaluate", "names such as nDCG@10, MRR@10, Recall@100, top-20", name) from None
    return found


def evaluate(run: Run, qrels: Qrels, measures: Iterable[str] = MEASURES) -> Scores:
    """Measure a run against judgements.

    Parameters
    ----------
    run : {query: {document: score}}
        Queries that nobody judged are left out, with a message. An empty run scores 0.
    qrels : {query: {document: grade}}
    measures : names

    Returns
    -------
    Scores
        ``scores["nDCG@10"]`` is a mean, ``scores.per_query["nDCG@10"]`` a value for each query.

    Examples
    --------
    >>> import pytest; _ = pytest.importorskip("ir_measures")
    >>> scores = evaluate({"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 1}, "r": {"a": 1}}, ["MRR@10", "top-1"])
    >>> scores.per_query["MRR@10"], scores["top-1"]
    ({'q': 0.5, 'r': 0.0}, 0.0)
    """
    named = {name: parse_measure(name) for name in measures}
    if not named:
        raise invalid("measures", "evaluate", "at least one", list(named))
    if not qrels:
        raise DataError("there are no judgements to measure with")
    check_run(run)
    judged = {query: documents for query, documents in run.items() if query in qrels}
    if run and not judged:
        raise DataError(f"no query of the run is judged: the run has {_some(run)}, the judgements have {_some(qrels)}")
    if not any(judged.values()):
        logger.warning("the run has no results: every measure is 0")
    elif len(judged) < len(run):
        logger.info("%d queries of the run are not judged and are left out", len(run) - len(judged))
    per_query = {name: dict.fromkeys(qrels, 0.0) for name in named}
    names: dict[Any, list[str]] = {}
    for name, measure in named.items():
        names.setdefault(measure, []).append(name)
    for metric in _calculate(list(names), qrels, judged):
        for name in names[metric.measure]:
            per_query[name][metric.query_id] = float(metric.value)
    return Scores(per_query)


def _calculate(measures: list[Any], qrels: Qrels, run: Run) -> Iterable[Any]:
    import ir_measures

    # Libraries break ties in different ways, so they get scores without ties.
    strict = {
        query: {name: float(-rank) for rank, name in enumerate(ranked(documents))}
        for query, documents in run.items()
        if documents
    }
    plain = {query: {d: int(g) for d, g in grades.items()} for query, grades in qrels.items()}
    if not strict:
        return []
    try:
        found: list[Any] = list(ir_measures.iter_calc(measures, plain, strict))
    except (ValueError, RuntimeError) as error:
        raise DataError(f"ir_measures cannot calculate {', '.join(map(str, measures))}: {error}") from None
    return found


def _some(names: Mapping[str, Any]) -> str:
    listed = ", ".join(repr(name) for name in list(names)[:3])
    return listed + (", …" if len(names) > 3 else "")
