"""An index that is a part of a larger collection: what it must tell the other parts, and learn from them.

Under the sum of max a score depends on its document alone. XTR's m_i is the k′-th similarity in the whole collection,
and BM25 weighs words by how many of all documents have them. So both take two steps: each part reports what it has,
then each part searches with what all of them have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.alignment import XTR
from weft.search.index import Index, searchable
from weft.search.lexical import K1, LEAST_IDF, terms_of
from weft.search.tokens import SAMPLE, bases_of, compare_samples, is_sampled, n_tokens, one_in, retrieve, samples_of
from weft.storage.filters import Filter
from weft.storage.filters import parse as parse_filter
from weft.storage.segments import Effort, Plan
from weft.storage.store import Store
from weft.types import TokenRetrieval, TokenVectors

B = 0.75
"""FTS5's b of BM25: how much the length of a document counts."""


class Retrieved(NamedTuple):
    """The best tokens of a part, for each query token."""

    tokens: int
    """Of all documents that the filter lets through"""
    compared: int
    """How many of them were looked at"""
    best: NDArray[np.float32]
    """(n, most): similarities, best first; −∞ where there are fewer"""


def retrieve_part(
    index: Index,
    query: TokenVectors,
    total: int,
    *,
    before: int = 0,
    alignment: XTR | str,
    filter: Filter | str | None = None,  # noqa: A002
    beta_q: float | None = None,
    effort: Effort | None = None,
) -> Retrieved:
    """Return the best similarities of a part's tokens, as many as can be among the k′ best of the whole.

    Parameters
    ----------
    index : Index
    query : TokenVectors
        One text.
    total, before : int
        Tokens of the whole collection, and in the parts before this one.
    alignment, filter, beta_q
        Of the search.
    effort : Effort, optional
        None: compare every token.
    """
    chosen = searchable(alignment)
    assert isinstance(chosen, XTR)
    text, _ = index.prepared(query, beta_q)
    plan = Plan(1, chosen, effort)
    k_prime = min(chosen.retrieves(total), max(total, 1))
    with index.view() as view:
        segments = [s.segment for s in view.segments]
        allowed = index.allowed(view, filter)
        tokens = n_tokens(segments, allowed)
        if not tokens:
            return Retrieved(0, 0, np.zeros((text.n_tokens, 0), np.float32))
        if is_sampled(plan, k_prime, total):
            every = one_in(k_prime)
            samples = samples_of(segments, allowed, every, before)
            compared = sum(len(sample.rows) for sample in samples)
            most = max(min(math.ceil(k_prime / every) + 2, compared), 1)
            search = _native.TokenRetrieval(text.n_tokens, most)
            compare_samples(text, segments, samples, search, k_prime / total)
        else:
            compared, most = tokens, min(k_prime, tokens)
            search = _native.TokenRetrieval(text.n_tokens, most)
            retrieve(text, plan, segments, allowed, search, bases_of(segments))
        search.settle()
        return Retrieved(tokens, compared, search.similarities(most))


def retrieved_from_all(alignment: XTR | str, parts: Sequence[Retrieved], *, exact: bool = False) -> TokenRetrieval:
    """Return what the parts retrieved together; each of them knew the number of tokens of all.

    Examples
    --------
    >>> parts = [Retrieved(3, 3, np.array([[0.9, 0.5]])), Retrieved(2, 2, np.array([[0.7, 0.6]]))]
    >>> retrieved_from_all("xtr:2", parts).last
    array([0.7], dtype=float32)
    """
    chosen = searchable(alignment)
    assert isinstance(chosen, XTR)
    tokens, compared = sum(part.tokens for part in parts), sum(part.compared for part in parts)
    k_prime = min(chosen.retrieves(tokens), max(tokens, 1))
    best = np.concatenate([part.best for part in parts], axis=1)
    rank = max(round(k_prime / tokens * compared), 1) if tokens else 1
    # The rank-th, the least where there are fewer, 0 where there is none: as one index would have it.
    counts = np.minimum(np.isfinite(best).sum(axis=1), rank)
    ordered = np.sort(best, axis=1)[np.arange(len(best)), best.shape[1] - np.maximum(counts, 1)] if best.size else 0
    last = np.where(counts > 0, ordered, 0).astype(np.float32)
    how = SAMPLE if compared < tokens else "exact" if exact else "scanned"
    return TokenRetrieval(k_prime, last, how)


class Words(NamedTuple):
    """What BM25 must know about a collection for a query."""

    documents: int
    words: int
    """Of all documents together"""
    holders: tuple[int, ...]
    """For each word of the query, how many documents have it"""

    @classmethod
    def of(cls, index: Store, text: str) -> Words:
        """Count the words of a query in one index."""
        with index.reading_catalogue() as catalogue:
            documents, words = catalogue.lexical_sizes()
            return cls(documents, words, tuple(catalogue.lexical_count(term) for term in terms_of(text)))

    @classmethod
    def together(cls, parts: Sequence[Words]) -> Words:
        """Return the sum over all parts.

        Examples
        --------
        >>> Words.together([Words(2, 30, (1, 0)), Words(3, 20, (2, 2))])
        Words(documents=5, words=50, holders=(3, 2))
        """
        holders = zip(*(part.holders for part in parts), strict=True)
        return cls(sum(p.documents for p in parts), sum(p.words for p in parts), tuple(map(sum, holders)))

    def idf(self) -> list[float]:
        """Return what each word weighs: FTS5's, ln((N − n + ½) / (n + ½))."""
        return [max(math.log((self.documents - n + 0.5) / (n + 0.5)), LEAST_IDF) for n in self.holders]

    @property
    def most_score(self) -> float:
        """The highest score that BM25 could give a document: see `weft.search.lexical.most_score`."""
        return (K1 + 1) * sum(self.idf())


def search_lexical_part(
    index: Store,
    text: str,
    k: int,
    whole: Words,
    *,
    filter: Filter | str | None = None,  # noqa: A002
) -> list[tuple[str, float]]:
    """Return a part's best documents, scored by the BM25 of the whole collection.

    FTS5 weighs words by the counts of its own table. From its score of a single word and the document's length follows
    how often the word occurs, and from that the score in the whole collection.
    """
    own = Words.of(index, text)
    totals: dict[int, float] = {}
    with index.reading_catalogue() as catalogue:
        for term, idf, theirs in zip(terms_of(text), whole.idf(), own.idf(), strict=True):
            numbers, scores, lengths = catalogue.lexical_rows(term)
            if not len(numbers):
                continue
            here = K1 * (1 - B + B * lengths * own.documents / max(own.words, 1))
            share = scores / (theirs * (K1 + 1))  # f / (f + here)
            frequency = np.rint(share * here / (1 - share))
            there = K1 * (1 - B + B * lengths * whole.documents / max(whole.words, 1))
            worth = idf * (K1 + 1) * frequency / (frequency + there)
            for number, gain in zip(numbers.tolist(), worth.tolist(), strict=True):
                totals[number] = totals.get(number, 0.0) + gain
        if filter is not None:
            allowed = set(catalogue.select(*parse_filter(filter).to_sql()).tolist())
            totals = {number: score for number, score in totals.items() if number in allowed}
        best = sorted(totals, key=lambda number: (-totals[number], number))[:k]
        ids = catalogue.ids(best, whole=filter is not None) if best else []
        return [(name, totals[number]) for name, number in zip(ids, best, strict=True)]
