"""Do alignments match words with themselves? By how rare the word is, from either side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.alignment import align
from weft.analysis.base import Experiment, Outcome
from weft.analysis.estimates import Interval
from weft.analysis.experiments.common import measured_on
from weft.analysis.generative import D_TO_Q, PER_SEED, Q_TO_D, SEAL, Workshop, over_seeds
from weft.analysis.lab import Lab
from weft.analysis.plots import bars, drawing
from weft.evaluation.tables import Cell, Table
from weft.generative.attention import softmax
from weft.generative.exact_match import ByType, bin_of, hard_match, is_word, same_word, soft_match, token_idf

if TYPE_CHECKING:
    from weft.generative.model import GenerativeModel
    from weft.generative.multivector import MultiVectorModel

FORWARD, BACKWARD, GR, EVEN = "MVDR (q→d)", "MVDR (q←d)", "GR", "even"
HARD, SOFT, SOFT_A = "hard", "soft", "soft, softmax of A"
ALL = "all"


class Rates:
    """Sums of rates by query and bin; tokens whose word the other text has are counted apart too."""

    def __init__(self, queries: int, bins: int) -> None:
        self.total, self.count = np.zeros((2, queries, bins)), np.zeros((2, queries, bins))

    def add(
        self, query: int, bins: NDArray[np.int64], rates: NDArray[Any], there: NDArray[np.bool_] | np.bool_
    ) -> None:
        """Add one rate for each token of a text."""
        known = bins >= 0
        for kind, some in enumerate((known, known & there)):
            np.add.at(self.total[kind, query], bins[some], rates[some])
            np.add.at(self.count[kind, query], bins[some], 1)

    def of(self, number: int | None, *, there: bool = False) -> NDArray[np.float64]:
        """Return the mean rate of each query that has such tokens, in one bin or (None) in all."""
        total, count = self.total[int(there)], self.count[int(there)]
        total, count = (total.sum(1), count.sum(1)) if number is None else (total[:, number], count[:, number])
        found: NDArray[np.float64] = total[count > 0] / count[count > 0]
        return found


Found = dict[tuple[str, str], list[Rates]]
"""(system, rate) → one for each seed."""
Published = dict[tuple[str, str], list[ByType]]
"""The same, counted as the paper's published code does."""


@dataclass(frozen=True)
class ExactMatch(Experiment):
    """Hard and soft exact match, by idf."""

    name: ClassVar[str] = "exact-match"
    title: ClassVar[str] = "Exact term match in alignments"
    reproduces: ClassVar[str] = "GR as MVDR figures 2 and 3"
    paper: ClassVar[str] = (
        "On NQ320k, MVDR aligns a query token with its own word in 11.4 % of the candidates, rare query tokens less "
        "than common ones. From the document to the query the rates of both MVDR and GR rise with the token's idf: "
        "both prefer exact matches."
    )
    trains: ClassVar[bool] = True
    quick: ClassVar[dict[str, Any]] = {"seeds": (1,), "candidates": 5}

    seeds: tuple[int, ...] = (17, 18, 19)
    candidates: int = 20
    """Documents looked at for each query: the relevant ones and BM25's best."""
    query_bins: tuple[float, ...] = (0.0, 3.0, 5.0, 8.0, 10.0)
    """Bounds of the bins of idf, of query tokens (figure 2)."""
    document_bins: tuple[float, ...] = (0.0, 3.0, 5.0, 7.0, 9.0, 11.0)
    """Of document tokens (figure 3)."""

    def run(self, lab: Lab) -> Outcome:
        """Measure every model."""
        shop = Workshop(lab, self.seeds)
        names = {query: found[: self.candidates] for query, found in shop.candidates(self.candidates).items()}
        forward: Found = {}
        backward: Found = {}
        ahead: Published = {}
        back: Published = {}
        for model in shop.trained(Q_TO_D):
            self._vectors(shop, shop.multivector(model), names, (forward, ahead), (backward, back), FORWARD)
        for model in shop.trained(D_TO_Q):
            self._vectors(shop, shop.multivector(model), names, ({}, {}), (backward, back), BACKWARD)
        for model in shop.trained(SEAL):
            self._attention(shop, shop.generative(model), names, (backward, back))
        outcome = Outcome(notes=[measured_on([shop.pool])])
        self._figure_2(forward, outcome)
        self._figure_3(backward, outcome)
        self._published(ahead, back, outcome)
        outcome.notes += [
            "A rate is the mean over the tokens of a query's candidates, then over queries. Soft is the alignment's "
            "mass on the same word: of softmax(S) along the other text; of the softmax that MVDR(q←d) aligns with; of "
            "GR's cross-attention, the last layer's mean over heads. All read the same tokens: passages cut at one "
            "length. Softmax of A is the paper's letter: of the 0/1 matrix of sum of max. Even is an alignment that "
            "spreads itself evenly.",
            "Where the word occurs: only pairs in which the other text has the word. As published: the counting of the "
            "paper's code, which leaves out stop words and punctuation, takes the mean of each token type and then of "
            "the types, and drops soft rates of 0; its ± are over token types. idf is "
            "ln(1 + (N − df + 0.5) / (df + 0.5)) of the model's own tokens. The end token is aligned to, but no word.",
        ]
        return outcome

    def _vectors(
        self,
        shop: Workshop,
        model: MultiVectorModel,
        names: dict[str, list[str]],
        forwards: tuple[Found, Published],
        backwards: tuple[Found, Published],
        system: str,
    ) -> None:
        from weft.generative.reranking import VectorReader

        (forward, ahead), (backward, behind) = forwards, backwards

        reader = VectorReader(model, shop.pool.documents)
        ids, offsets = reader.documents.token_ids, reader.documents.offsets
        assert ids is not None
        idf = token_idf((ids[a:b] for a, b in pairwise(offsets.tolist())), model.vocabulary)
        there = self._new(
            forward, [(system, HARD), (system, SOFT), (system, SOFT_A), (EVEN, SOFT)], shop, self.query_bins
        )
        back = self._new(backward, [(system, SOFT)], shop, self.document_bins)
        words = _words(model.tokenizer, model.vocabulary)
        hard, soft = (_by_type(ahead, (system, kind), bin_of(idf, self.query_bins), words) for kind in (HARD, SOFT))
        document_soft = _by_type(behind, (system, SOFT), bin_of(idf, self.document_bins), words)
        for number, (query, text) in enumerate(shop.pool.queries.items()):
            asked = reader.query(text)
            assert asked.token_ids is not None
            Q, q = asked[0], asked.token_ids[:-1]
            for name in names[query]:
                D, d = reader.document(name)
                S = Q @ D.T  # the last row and column are the end tokens'
                same = np.zeros(S.shape, np.bool_)
                same[:-1, :-1] = same_word(q, d[:-1])
                bins, has = bin_of(idf[q], self.query_bins), same[:-1].any(1)
                A = np.zeros_like(S)
                A[np.arange(len(A)), S.argmax(1)] = 1.0
                rates = {
                    (system, HARD): hard_match(S, same, 1),
                    (system, SOFT): soft_match(softmax(S, 1), same, 1),
                    (system, SOFT_A): soft_match(softmax(A, 1), same, 1),
                    (EVEN, SOFT): same.mean(1),
                }
                for key, values in rates.items():
                    there[key].add(number, bins, values[:-1], has)
                hard.add(q, rates[system, HARD][:-1], drop_zeros=False)
                soft.add(q, rates[system, SOFT][:-1], drop_zeros=True)
                P = softmax(S, 0) if system == FORWARD else np.asarray(align(Q, D, model.alignment))
                values = soft_match(P, same, 0)[:-1]
                back[system, SOFT].add(number, bin_of(idf[d[:-1]], self.document_bins), values, same[:, :-1].any(0))
                document_soft.add(d[:-1], values, drop_zeros=True)

    def _attention(
        self,
        shop: Workshop,
        model: GenerativeModel,
        names: dict[str, list[str]],
        backwards: tuple[Found, Published],
    ) -> None:
        from weft.generative.reranking import PassageReader

        backward, behind = backwards
        reader = PassageReader(model, shop.pool.documents, shop.document_length)
        idf = token_idf((reader.tokens(name) for name in shop.pool.documents), model.vocabulary)
        rates = self._new(backward, [(GR, SOFT), (EVEN, SOFT)], shop, self.document_bins)
        words, binned = _words(model.tokenizer, model.vocabulary), bin_of(idf, self.document_bins)
        soft = _by_type(behind, (GR, SOFT), binned, words)
        even = _by_type(behind, (EVEN, SOFT), binned, words)
        for number, (query, text) in enumerate(shop.pool.queries.items()):
            q = np.array(reader.query(text))
            for name in names[query]:
                d = np.array(reader.tokens(name))
                traced = reader.trace(text, name)
                attention = traced.attention(traced.layers - 1).mean(1)[0].numpy()  # (N, M)
                same = same_word(q, d)
                same[-1] = False
                bins, has, found = bin_of(idf[d], self.document_bins), same.any(0), soft_match(attention, same, 0)
                rates[GR, SOFT].add(number, bins, found, has)
                rates[EVEN, SOFT].add(number, bins, same.mean(0), has)
                soft.add(d, found, drop_zeros=True)
                even.add(d, same.mean(0), drop_zeros=True)

    def _new(
        self, found: Found, keys: Sequence[tuple[str, str]], shop: Workshop, edges: Sequence[float]
    ) -> dict[tuple[str, str], Rates]:
        made = {key: Rates(len(shop.pool.queries), len(edges) - 1) for key in keys}
        for key, rates in made.items():
            found.setdefault(key, []).append(rates)
        return made

    def _figure_2(self, found: Found, outcome: Outcome) -> None:
        named = _named_bins(self.query_bins, found[FORWARD, HARD])
        kinds = {HARD: (FORWARD, HARD), SOFT: (FORWARD, SOFT), SOFT_A: (FORWARD, SOFT_A), EVEN: (EVEN, SOFT)}
        rows = _rows(found, named, kinds)
        outcome.tables.append(
            Table("figure-2", f"{FORWARD}: exact match from the query to the document", _columns(kinds), rows, PER_SEED)
        )
        caption = (
            f"{FORWARD}: how often a query token is aligned with its own word (hard), and with what weight (soft)."
        )
        with drawing("figure-2", caption, outcome.plots, columns=2, size=(4.8, 3.8)) as axes:
            for ax, there in zip(axes[0], (False, True), strict=True):
                series = {kind: _line(found[key], named, there) for kind, key in kinds.items() if kind != SOFT_A}
                title = "where the word occurs" if there else "all candidates"
                bars(ax, list(named), series, xlabel="idf of the query token", ylabel="exact match rate", title=title)
        rate = over_seeds([rates.of(None) for rates in found[FORWARD, HARD]])
        occurs = over_seeds([rates.of(None, there=True) for rates in found[FORWARD, HARD]])
        outcome.findings.append(
            f"{FORWARD} aligns a query token with its own word in {rate.value:.1%} of the candidates, in "
            f"{occurs.value:.1%} of those that have it. {_trend(found[FORWARD, HARD], named, 'The hard rate')}"
        )

    def _figure_3(self, found: Found, outcome: Outcome) -> None:
        systems = (FORWARD, BACKWARD, GR, EVEN)
        named = _named_bins(self.document_bins, found[GR, SOFT])
        kinds = {system: (system, SOFT) for system in systems}
        rows = _rows(found, named, kinds)
        outcome.tables.append(
            Table("figure-3", "Soft exact match from the document to the query", _columns(kinds), rows, PER_SEED)
        )
        caption = "What share of a document token's alignment is on its own word in the query."
        with drawing("figure-3", caption, outcome.plots, columns=2, size=(4.8, 3.8)) as axes:
            for ax, there in zip(axes[0], (False, True), strict=True):
                series = {kind: _line(found[key], named, there) for kind, key in kinds.items()}
                title = "where the word occurs" if there else "all candidates"
                bars(ax, list(named), series, xlabel="idf of the document token", ylabel="soft match rate", title=title)
        for system in systems[:3]:
            rate = over_seeds([rates.of(None) for rates in found[system, SOFT]])
            trend = _trend(found[system, SOFT], named, "It")
            outcome.findings.append(f"{system}, from the document: a soft rate of {rate.value:.3f}. {trend}")

    def _published(self, ahead: Published, behind: Published, outcome: Outcome) -> None:
        """Both figures counted as the paper's published code does."""
        queries = _published_rows(ahead, self.query_bins, {kind: (FORWARD, kind) for kind in (HARD, SOFT)})
        systems = {system: (system, SOFT) for system in (FORWARD, BACKWARD, GR, EVEN)}
        documents = _published_rows(behind, self.document_bins, systems)
        title = f"{FORWARD}: exact match from the query to the document, as published"
        outcome.tables.append(Table("figure-2-published", title, ["idf", HARD, SOFT], queries, PER_SEED))
        title = "Soft exact match from the document to the query, as published"
        outcome.tables.append(Table("figure-3-published", title, ["idf", *systems], documents, PER_SEED))
        rate = queries[-1][1]
        if isinstance(rate, Interval):
            outcome.findings.append(
                f"Counted as published, {FORWARD} has a hard rate of {rate.value:.1%} (paper: 11.4 %)."
            )
        for place, system in enumerate(systems, 1):
            line = [row[place] for row in documents[:-1]]
            values = [cell.value for cell in line if isinstance(cell, Interval)]
            if system != EVEN and len(values) > 1:
                outcome.findings.append(f"Counted as published, {system}'s rate {_direction(values)}.")


def _words(tokenizer: Any, vocabulary: int) -> NDArray[np.bool_]:
    from weft.generative.spans import stop_words

    pieces = tokenizer.convert_ids_to_tokens(list(range(min(vocabulary, len(tokenizer)))))
    return is_word([*pieces, *[""] * (vocabulary - len(pieces))], stop_words())


def _by_type(found: Published, key: tuple[str, str], bins: NDArray[np.int64], words: NDArray[np.bool_]) -> ByType:
    made = ByType(bins, words)
    found.setdefault(key, []).append(made)
    return made


def _published_rows(found: Published, edges: Sequence[float], kinds: dict[str, tuple[str, str]]) -> list[list[Cell]]:
    names: list[tuple[str, int | None]] = [(f"[{a:g}, {b:g})", i) for i, (a, b) in enumerate(pairwise(edges))]
    rows: list[list[Cell]] = []
    for name, number in [*names, (ALL, None)]:
        cells: list[Cell] = []
        for key in kinds.values():
            values = [of.of(number) for of in found[key]]
            cells.append(over_seeds(values) if all(len(v) for v in values) else None)
        if any(cell is not None for cell in cells):
            rows.append([name, *cells])
    return rows


def _direction(line: Sequence[float]) -> str:
    steps = np.diff(line)
    how = "rises" if (steps > 0).all() else "falls" if (steps < 0).all() else "neither rises nor falls steadily"
    return f"{how} with idf: {', '.join(f'{value:.3f}' for value in line)}"


def _named_bins(edges: Sequence[float], some: list[Rates]) -> dict[str, int]:
    """Return the bins that have tokens in every model."""
    names = [f"[{a:g}, {b:g})" for a, b in pairwise(edges)]
    return {name: i for i, name in enumerate(names) if all(len(rates.of(i)) for rates in some)}


def _line(rates: list[Rates], named: dict[str, int], there: bool) -> list[Interval | None]:
    found: list[Interval | None] = []
    for number in named.values():
        values = [of.of(number, there=there) for of in rates]
        found.append(over_seeds(values) if all(len(v) for v in values) else None)
    return found


def _columns(kinds: dict[str, tuple[str, str]]) -> list[str]:
    return ["idf", *kinds, *(f"{kind}, where it occurs" for kind in kinds)]


def _rows(found: Found, named: dict[str, int], kinds: dict[str, tuple[str, str]]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for name, number in [*named.items(), (ALL, None)]:
        row: list[Cell] = [name]
        for there in (False, True):
            for key in kinds.values():
                values = [of.of(number, there=there) for of in found[key]]
                row.append(over_seeds(values) if all(len(v) for v in values) else None)
        rows.append(row)
    return rows


def _trend(rates: list[Rates], named: dict[str, int], what: str) -> str:
    """Say whether a rate rises with idf."""
    line = [e.value for e in _line(rates, named, there=False) if e is not None]
    if len(line) < 2:
        return ""
    return f"{what} {_direction(line)}."
