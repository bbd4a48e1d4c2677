"""What several experiments share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from weft.alignment import Alignment, SumOfMax, TopK, TopP
from weft.analysis.estimates import Interval, estimate, macro
from weft.analysis.lab import Lab, Model
from weft.evaluation.pools import Pool
from weft.evaluation.scoring import score_all
from weft.evaluation.tables import Cell, Table

NDCG = "nDCG@10"
MRR = "MRR@10"
PerQuery = NDArray[np.float64]
"""One value for each query of a pool."""


def shown(alignment: Alignment | str) -> str:
    """Return an alignment as the papers write it.

    Examples
    --------
    >>> shown("top-k:4"), shown("top-p:0.015"), shown("sum-of-max,z=query"), shown("xtr-in-batch:64")
    ('top-4', 'top-1.5 %', 'sum of max', 'xtr-in-batch:64')
    """
    alignment = Alignment.parse(alignment)
    if isinstance(alignment, TopK):
        return f"top-{alignment.k}"
    if isinstance(alignment, TopP):
        return f"top-{100 * alignment.p:g} %"
    return "sum of max" if isinstance(alignment, SumOfMax) else str(alignment)


def own_alignment(model: Model) -> str:
    """Return the alignment to score a model with: if its saliences weigh, the one it was trained with, and its Z."""
    encoder = model.encoder
    weighs = encoder.has_salience and encoder.salience_weighs
    return (encoder.alignment if weighs else "") or "sum-of-max"


def by_alignment(
    lab: Lab, model: Model, pool: Pool, named: Mapping[str, Alignment], measured: str = NDCG
) -> dict[str, PerQuery]:
    """Measure every query under each alignment, all documents of the pool scored."""
    encoded = lab.encoded(model, pool)
    found = {}
    for name, alignment in named.items():
        scores = score_all(encoded, alignment, threads=lab.options.threads)
        found[name] = lab.measure(pool, scores, measured).values(measured)
    return found


def collections_table(found: Mapping[str, Mapping[str, PerQuery]], name: str, title: str, note: str = "") -> Table:
    """Return a row for each collection and one for their average, a column for each system; the best are bold."""
    columns = list(next(iter(found.values())))
    rows: list[list[Cell]] = [[pool, *(estimate(values[c]) for c in columns)] for pool, values in found.items()]
    if len(found) > 1:
        rows.append(["average", *(macro([values[c] for values in found.values()]) for c in columns)])
    note = f"± is half of the 95 % bootstrap interval over queries; the best of each row is bold. {note}".strip()
    return Table(name, title, ["collection", *columns], rows, note, best="rows")


def points(gain: Interval, decimals: int = 1) -> str:
    """Write a difference in points of a hundred, with its interval."""
    value, low, high = (f"{100 * bound:+.{decimals}f}" for bound in gain)
    return f"{value} [{low}, {high}]"


def measured_on(pools: Sequence[Pool]) -> str:
    """Say what was measured on."""
    sizes = ", ".join(f"{p.name} ({len(p.documents):,} documents, {len(p.queries):,} queries)" for p in pools)
    said = f"Measured on {sizes}."
    if any(not pool.whole for pool in pools):
        said += " Collections that were cut to pools compare systems with each other, never with published figures."
    return said
