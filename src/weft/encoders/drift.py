"""How far one form of a model is from another: speed, token vectors, scores and ranking quality."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.checks import check_count
from weft.encoders.encoder import Encoder
from weft.errors import DataError
from weft.kernels import score_ragged
from weft.types import TokenVectors


@dataclass(frozen=True)
class Sample:
    """Queries and a pool of documents: those judged relevant, and others up to the number asked for.

    `relevant[i]` holds the grades of query i by position of the document.
    """

    name: str
    queries: list[str]
    documents: list[str]
    relevant: list[dict[int, int]]

    @classmethod
    def of(
        cls,
        name: str,
        queries: Mapping[str, str],
        documents: Mapping[str, str],
        qrels: Mapping[str, Mapping[str, int]],
        most_queries: int = 100,
        most_documents: int = 400,
    ) -> Sample:
        """Take queries evenly from a collection, with their relevant documents, and fill up with other documents."""
        check_count(most_queries, "queries", "Sample")
        check_count(most_documents, "documents", "Sample")
        judged = [q for q in queries if any(grade > 0 for grade in qrels.get(q, {}).values())]
        if not judged:
            raise DataError(f"{name} has no query with a relevant document")
        chosen = [judged[i] for i in _evenly(len(judged), most_queries)]
        pool = dict.fromkeys(d for q in chosen for d, grade in qrels[q].items() if grade > 0)
        others = [d for d in documents if d not in pool]
        pool |= dict.fromkeys(others[i] for i in _evenly(len(others), max(0, most_documents - len(pool))))
        place = {d: i for i, d in enumerate(pool)}
        relevant = [{place[d]: grade for d, grade in qrels[q].items() if grade > 0} for q in chosen]
        return cls(name, [queries[q] for q in chosen], [documents[d] for d in pool], relevant)


@dataclass(frozen=True)
class Drift:
    """One form of a model beside the reference.

    `query_ms`: processor time of one query on one thread, the median over queries; `cosine` and `cosine_low`: mean
    and 1st percentile over document tokens; `score`: mean absolute difference of sum-of-max scores, for each query
    token; `order`: the part of top tens that is the same; `ndcg`: nDCG@10 over the pool.
    """

    form: str
    query_ms: float
    cosine: float
    cosine_low: float
    score: float
    order: float
    ndcg: float


def compare(reference: Encoder, others: Mapping[str, Encoder], sample: Sample, rounds: int = 5) -> list[Drift]:
    """Measure the reference and other forms of it on one sample; the first row is the reference."""
    forms = {f"{reference.backend.kind} {reference.settings.precision}": reference} | dict(others)
    times = _query_times(forms, sample.queries[:20], rounds)
    rows = []
    first: tuple[TokenVectors, NDArray[np.float32]] | None = None
    for form, encoder in forms.items():
        documents = encoder.encode_document(sample.documents, truncation="ignore")
        queries = encoder.encode_query(sample.queries, truncation="ignore")
        scores = score_ragged(queries, documents)  # (queries, documents)
        first = first or (documents, scores)
        cosine = np.sum(first[0].values * documents.values, axis=1)
        per_token = np.abs(scores - first[1]) / np.maximum(queries.lengths, 1)[:, None]
        same = [len(set(a) & set(b)) / len(a) for a, b in zip(_tops(scores), _tops(first[1]), strict=True)]
        rows.append(
            Drift(
                form,
                times[form],
                float(cosine.mean()),
                float(np.quantile(cosine, 0.01)),
                float(per_token.mean()),
                float(np.mean(same)),
                float(np.mean([ndcg(top, grades) for top, grades in zip(_tops(scores), sample.relevant, strict=True)])),
            )
        )
    return rows


def table(rows: list[Drift], sample: Sample) -> list[str]:
    """Return the rows as a Markdown table with a line on what was measured."""
    lines = [
        f"{sample.name}: {len(sample.queries)} queries, a pool of {len(sample.documents)} documents; score drift: mean "
        "absolute difference of sum-of-max scores, for each query token.",
        "",
        "| form | CPU ms a query | × torch | token cosine (1st percentile) | score drift | same top 10 | nDCG@10 |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        ratio, quality = row.query_ms / rows[0].query_ms, f"{row.ndcg:.4f}"
        if row is not rows[0]:
            quality += f" ({row.ndcg - rows[0].ndcg:+.4f})"
        lines.append(
            f"| {row.form} | {row.query_ms:.2f} | {ratio:.2f} | {row.cosine:.5f} ({row.cosine_low:.4f}) "
            f"| {row.score:.5f} | {row.order:.3f} | {quality} |"
        )
    return lines


def ndcg(ranking: NDArray[np.int64], grades: Mapping[int, int], k: int = 10) -> float:
    """Return nDCG@k with linear gains.

    Examples
    --------
    >>> ndcg(np.array([3, 1, 2]), {1: 1})
    0.6309297535714575
    """
    discounts = 1 / np.log2(np.arange(2, k + 2))
    gains = np.array([grades.get(int(d), 0) for d in ranking[:k]])
    best = np.array(sorted(grades.values(), reverse=True)[:k])
    return float(np.sum(gains * discounts[: len(gains)]) / np.sum(best * discounts[: len(best)]))


def _query_times(forms: Mapping[str, Encoder], queries: list[str], rounds: int) -> dict[str, float]:
    """Return the median processor milliseconds of one query on one thread, the forms taking turns."""
    times: dict[str, list[float]] = {form: [] for form in forms}
    for round_number in range(rounds + 1):
        for form, encoder in forms.items():
            for query in queries:
                start = time.process_time()
                encoder.encode_query(query, threads=1, truncation="ignore")
                if round_number:  # the first warms up
                    times[form].append(1e3 * (time.process_time() - start))
    return {form: float(np.median(found)) for form, found in times.items()}


def _tops(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    return np.argsort(-scores, axis=1, kind="stable")[:, :10]


def _evenly(have: int, want: int) -> list[int]:
    return list(range(have)) if have <= want else [i * have // want for i in range(want)]
