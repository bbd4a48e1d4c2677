"""Operations for a query: the papers' formula, counted on real candidates, and counted along our engine's search."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from weft.alignment import XTR
from weft.analysis.base import Experiment, Outcome
from weft.analysis.counting import SearchCounter, colbert_bytes, colbert_flops, count_scoring, xtr_bytes, xtr_flops
from weft.analysis.estimates import Interval, estimate
from weft.analysis.experiments.common import measured_on
from weft.analysis.lab import Lab, Model
from weft.analysis.plots import COLOURS, drawing, finish
from weft.evaluation.baselines import slug
from weft.evaluation.pools import Encoded
from weft.evaluation.scoring import Owners, top_tokens
from weft.evaluation.tables import Cell, Table
from weft.storage.merger import codec_for
from weft.storage.segments.coded import CodedSegment
from weft.storage.segments.pieces import Given
from weft.storage.segments.writing import write_segment
from weft.types import TokenVectors

PAPER = {"n": 16, "d": 128, "k_prime": 100, "m": 55, "r": 2.5}
"""The setting of XTR's table 1, of MS MARCO."""
TOGETHER = "all together"
QUERIES = 100
"""About how many queries are taken of all collections together."""


@dataclass(frozen=True)
class Flops(Experiment):
    """The scoring stage of ColBERT and XTR, and a whole search of weft's index."""

    name: ClassVar[str] = "flops"
    title: ClassVar[str] = "Operations of scoring and searching"
    reproduces: ClassVar[str] = "XTR table 1"
    paper: ClassVar[str] = (
        "With n = 16 query tokens, k′ = 100, documents of 55 tokens in 128 dimensions and 2.5 retrieved tokens a "
        "candidate, ColBERT's scoring stage takes n²k′(2m̄d + m̄ + 1) = 0.36·10⁹ operations for a query and XTR's "
        "n²k′(r̄ + 1) = 0.09·10⁶: 4,000 times fewer. Encoding and token retrieval are not counted."
    )
    quick: ClassVar[dict[str, Any]] = {"k_prime": (100,)}

    k_prime: tuple[int, ...] = (100, 1000)
    top: int = 10
    """Documents that a search is asked for."""

    def run(self, lab: Lab) -> Outcome:
        """Count for the first model: dimension and lengths decide, not quality."""
        model = lab.models[0]
        outcome = Outcome(notes=[measured_on(lab.pools)])
        worst = colbert_flops(PAPER["n"], PAPER["k_prime"], PAPER["m"], PAPER["d"])
        few = xtr_flops(PAPER["n"], PAPER["k_prime"], PAPER["r"])
        formula: list[list[Cell]] = [
            ["f_ColBERT", "n²k′(2m̄d + m̄ + 1)", worst, 0.36e9],
            ["f_XTR′", "n²k′(r̄ + 1)", few, 0.09e6],
        ]
        note = ", ".join(f"{name} = {value:g}" for name, value in PAPER.items()) + f"; a factor of {worst / few:,.0f}."
        columns = ["scoring", "operations a query", "computed", "in the paper"]
        outcome.tables.append(Table("formula", "Table 1, the paper's setting", columns, formula, note))
        n, m, d = PAPER["n"], PAPER["m"], PAPER["d"]
        loaded: list[list[Cell]] = [
            [f"{k:,}", colbert_bytes(n, k, m, d) / 1e6, "450" if k == 1000 else None, xtr_bytes(n, k) / 1e6]
            for k in (100, 1000)
        ]
        outcome.tables.append(
            Table(
                "formula-bytes",
                "Appendix B, the paper's setting: megabytes that scoring loads for a query",
                ["k′", "f_ColBERT: 4n·k′·m̄·d", "in the paper", "f_XTR′: 8n·k′"],
                loaded,
                "Vectors of all candidates in float32, against a similarity and a document's number a retrieved token.",
            )
        )
        rows: list[list[Cell]] = []
        stages: dict[str, dict[str, Interval]] = {}
        parts = {pool.name: lab.encoded(model, pool) for pool in lab.pools}
        for name, encoded in (parts | _together(parts)).items():
            rows += self._scoring(name, encoded, outcome)
            if len(parts) > 1 and name != TOGETHER:
                continue  # pools are too small for the engine: it is shown searching all of them
            stages[name] = self._engine(name, encoded, outcome) | {
                f"{score}, k′ = {row[1]:,}": Interval(float(row[at]), float(row[at]), float(row[at]))  # type: ignore[arg-type]
                for row in rows
                if row[0] == name
                for score, at in (("f_ColBERT", 7), ("f_XTR′", 9))
            }
        outcome.tables.append(
            Table(
                "scoring",
                f"The scoring stage, {model.name}: by the formula, and counted on real candidates",
                ["collection", "k′", "n", "m̄", "candidates", "r̄", "f_ColBERT, formula", "f_ColBERT, counted",
                 "f_XTR′, formula", "f_XTR′, counted", "factor, counted"],
                rows,
                "Means over queries. The formula takes n·k′ candidates, each of another document, with the n, m̄ "
                "and r̄ measured.",
            )
        )  # fmt: skip
        self._draw(model, stages, outcome)
        outcome.notes.append(
            "An operation is a multiplication, addition, comparison or look-up of one number. The engine works on "
            "bytes, 32 of them an instruction, ColBERT and XTR are counted as floats: counts compare work, not "
            "time. The engine's include token retrieval, which the paper's leave out. They are counted by walking "
            "its cells and lists in Python, lower than the truth by ties only; saliences are left out."
        )
        return outcome

    def _scoring(self, pool: str, encoded: Encoded, outcome: Outcome) -> list[list[Cell]]:
        owner, lengths, d = Owners(encoded.documents).document, encoded.documents.lengths, encoded.documents.dim
        rows: list[list[Cell]] = []
        for k in self.k_prime:
            counted = []
            for number in range(len(encoded.queries)):
                query = encoded.queries[number]
                if not len(query):
                    continue
                found, _ = top_tokens(query, encoded.documents, min(k, encoded.documents.n_tokens))
                of = count_scoring(owner[found].ravel(), len(query), lengths, d)
                counted.append((len(query), of.candidates, of.tokens_hit, of.colbert, of.xtr))
            n, candidates, r, colbert, xtr = np.mean(counted, axis=0)
            m = float(lengths.mean())
            rows.append(
                [
                    pool, k, float(n), m, float(candidates), float(r), colbert_flops(n, k, m, d), float(colbert),
                    xtr_flops(n, k, r), float(xtr), float(colbert / xtr),
                ]
            )  # fmt: skip
            outcome.findings.append(
                f"{pool}, k′ = {k:,}: counted, scoring takes {colbert:.2e} operations with gathered tokens and "
                f"{xtr:.2e} with retrieved ones, {colbert / xtr:,.0f} times fewer."
            )
        return rows

    def _engine(self, pool: str, encoded: Encoded, outcome: Outcome) -> dict[str, Interval]:
        plain = TokenVectors.trusted(encoded.documents.values, encoded.documents.offsets)
        with tempfile.TemporaryDirectory(prefix="weft-flops-") as folder:
            tokens = encoded.documents.n_tokens
            codec = codec_for(tokens, 8, tokens)
            coded, counts = codec is not None, dict[str, list[float]]()
            k_prime, lasts = XTR().retrieves(tokens), list[int]()
            if coded:
                path = Path(folder) / "pool.seg"
                write_segment(path, [Given(plain)], codec)
                counter = SearchCounter(CodedSegment.open(path))
            for query in encoded.queries:
                found = (
                    counter.count(query.astype(np.float32), self.top)
                    if coded
                    else {"all documents": len(query) * (2 * tokens * plain.dim + tokens + len(plain))}
                )
                if coded:
                    lasts.append(counter.count_last(query.astype(np.float32), k_prime))
                for stage, count in found.items():
                    counts.setdefault(stage, []).append(count)
        per_query = encoded.queries.lengths
        brute = estimate(per_query * (2.0 * tokens * encoded.documents.dim + tokens + len(encoded.documents)))
        means = {stage: estimate(values) for stage, values in counts.items()}
        total = estimate(np.sum(list(counts.values()), axis=0))
        rows: list[list[Cell]] = [[stage, *_cells(of), of.value / brute.value] for stage, of in means.items()]
        rows.append(["a search, all together", *_cells(total), total.value / brute.value])
        if coded:
            last, under_xtr = estimate(lasts), estimate(np.sum(list(counts.values()), axis=0) + lasts)
            rows.append([f"xtr: the k′-th similarities, k′ = {k_prime:,}", *_cells(last), last.value / brute.value])
            rows.append(["a search under xtr", *_cells(under_xtr), under_xtr.value / brute.value])
        rows.append(["brute force: every token of every document", *_cells(brute), 1.0])
        kind = "coded" if coded else "flat: too small for codes, all documents are scored"
        outcome.tables.append(
            Table(
                f"engine-{slug(pool)}",
                f"A search of weft's index for the best {self.top}, {pool} ({kind})",
                ["stage", "operations", "low", "high", "share of brute force"],
                rows,
                "Means over queries; low and high bound 95 % of resamples.",
            )
        )
        if coded:
            outcome.findings.append(
                f"{pool}: a search takes {total.value:.2e} operations, {total.value / brute.value:.1%} of brute force; "
                f"under xtr {under_xtr.value / total.value:.2f} times as many."
            )
        return means | {"brute force": brute}

    def _draw(self, model: Model, stages: dict[str, dict[str, Interval]], outcome: Outcome) -> None:
        names = list(dict.fromkeys(stage for of in stages.values() for stage in of))
        caption = f"Operations a query of weft's search by stage, and of brute force; {model.name}, mean over queries."
        height = 1.6 + 0.32 * len(names) * max(1, len(stages) / 2)
        with drawing("engine", caption, outcome.plots, size=(7.6, min(max(height, 3.0), 9.0))) as axes:
            ax = axes[0, 0]
            width = 0.8 / len(stages)
            for i, (pool, of) in enumerate(stages.items()):
                at = [names.index(stage) + (i - (len(stages) - 1) / 2) * width for stage in of]
                values = [interval.value for interval in of.values()]
                ax.barh(
                    at, values, width * 0.9, label=pool if len(stages) > 1 else None, color=COLOURS[i % len(COLOURS)]
                )
            ax.set_xscale("log")
            ax.set_yticks(range(len(names)), names)
            ax.invert_yaxis()
            ax.grid(axis="y", visible=False)
            finish(ax, "operations a query", "stage of the search")


def _together(parts: dict[str, Encoded]) -> dict[str, Encoded]:
    """Return all collections as one, with some queries of each; nothing, if there is but one."""
    if len(parts) < 2:
        return {}
    each = -(-QUERIES // len(parts))
    queries = [of.queries.select(range(min(each, len(of.queries)))).without_salience() for of in parts.values()]
    documents = [of.documents.without_salience() for of in parts.values()]
    return {
        TOGETHER: Encoded(TokenVectors.concatenate(queries), TokenVectors.concatenate(documents), salience_weighs=False)
    }


def _cells(of: Interval) -> list[Cell]:
    return [of.value, of.low, of.high]
