"""SEAL's scoring: from n-grams that a model decodes to documents that hold them.

The model gives log p(n | q) for each n-gram n of its beam search. An n-gram counts for the documents that hold it: the
more, the likelier it is by the model and the rarer in the corpus. Corpus frequency F(n), corpus size T (tokens):

    s = log p(n | q)        r = log((F(n) + 5) / (T + 5))
    w(n) = max(0, [s + log(1 − eʳ)] − [r + log(1 − eˢ)])^α        unigrams without the exponent

A document's score is Σ w(n) · cover(n) over the n-grams chosen in it: best first, each once, at its first place that
overlaps none chosen before. cover(n) = 1 − β + β · |set(n) ∖ C| / |set(n)|, C the tokens of those chosen before. Single
tokens follow where no n-gram was chosen, each once, with cover 1, or 1 − β if a chosen n-gram has the token. As an
alignment: S is w, A is cover, Z is 1; the pairs of a `Ranking` say which tokens of the document each n-gram stands on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.checks import numbers
from weft.errors import invalid
from weft.generative.corpus_index import NGramIndex
from weft.types import Hits, Ranking

SCORINGS = ("log-odds", "lm")
SMOOTHING = 5.0
CERTAIN = -1e-7
"""log p is taken to be no more than this: the odds of certainty are infinite."""

NGram = tuple[int, ...]


@dataclass(frozen=True)
class SealSettings:
    """How n-grams weigh and which documents are looked at.

    Attributes
    ----------
    scoring : {"log-odds", "lm"}
        ``"lm"`` leaves the corpus out: w = (s − min s + 0.1)^α over the n-grams alone, no further unigrams.
    alpha : float
        Exponent α of the weights.
    beta : float
        How much (0 to 1) tokens said before make an n-gram count less.
    max_frequency : int
        First stage: n-grams that occur more often than this name no candidates.
    candidates : int
        Documents of the first stage, the best by the sum of their n-grams' weights, that are scored in full.
    unigrams : int
        How many of the tokens that the model finds likeliest count as unigrams.
    """

    scoring: str = "log-odds"
    alpha: float = 2.0
    beta: float = 0.8
    max_frequency: int = 1500
    candidates: int = 1500
    unigrams: int = 5000

    def __post_init__(self) -> None:
        if self.scoring not in SCORINGS:
            raise invalid("scoring", "SealSettings", f"one of {', '.join(SCORINGS)}", self.scoring)
        if not 0 < self.alpha < np.inf:
            raise invalid("alpha", "SealSettings", "a finite number > 0", self.alpha)
        if not 0 <= self.beta <= 1:
            raise invalid("beta", "SealSettings", "from 0 to 1", self.beta)
        for name, least in (("max_frequency", 1), ("candidates", 1), ("unigrams", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise invalid(name, "SealSettings", f"an integer >= {least}", value)


class SealAnswer(NamedTuple):
    """A ranking, and the n-grams that ``query_token`` of its hits counts."""

    ranking: Ranking
    keys: tuple[NGram, ...]


def log_odds(log_p: ArrayLike, frequency: ArrayLike, corpus: int) -> NDArray[np.float64]:
    """Return the log-odds weight max(0, …) before the exponent; shapes broadcast.

    Examples
    --------
    >>> log_odds(np.log([0.5, 0.5, 0.001]), [0, 95, 95], 995).round(3).tolist()
    [5.293, 2.197, 0.0]
    """
    s = np.minimum(np.asarray(log_p, dtype=np.float64), CERTAIN)
    r = np.log((np.asarray(frequency, dtype=np.float64) + SMOOTHING) / (corpus + SMOOTHING))
    with np.errstate(divide="ignore", invalid="ignore"):  # r = 0, a corpus of one word: the weight is 0, not NaN
        weight = (s + _log1mexp(r)) - (r + _log1mexp(s))
    return np.where(weight > 0, weight, 0.0)


def rank_by_ngrams(
    index: NGramIndex,
    keys: Mapping[NGram, float],
    unigrams: ArrayLike | None = None,
    *,
    k: int = 10,
    settings: SealSettings | None = None,
) -> SealAnswer:
    """Rank the documents that hold n-grams decoded by a model.

    Parameters
    ----------
    index : NGramIndex
        The corpus.
    keys : mapping from tuples of token ids to log p
        All partial hypotheses of a beam search. Those that the corpus does not have are ignored.
    unigrams : array of float, shape (vocabulary,), optional
        log p of each token as the first one. Keys of one token need not be repeated here; of both the key's counts.
    k : int
        Documents to return; fewer come where fewer hold any of the rarer n-grams.
    settings : SealSettings, optional

    Returns
    -------
    SealAnswer
        Each result's hits are (n-gram, token of the document): similarity w / |n|, weight cover; they sum to the score.

    Examples
    --------
    >>> from weft.generative.corpus_index import TokenTextIndex
    >>> index = TokenTextIndex.build([[5, 6, 7, 9], [6, 8, 9], [9] * 200], ["a", "b", "c"], vocabulary=10)
    >>> answer = rank_by_ngrams(index, {(6,): -0.5, (6, 7): -0.7, (6, 8): -2.0})
    >>> answer.ranking.ids, answer.keys
    (('a', 'b'), ((6, 7), (6, 8)))
    >>> answer.ranking.hits[0].document_token.tolist()
    [1, 2]
    """
    settings = settings or SealSettings()
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise invalid("k", "rank_by_ngrams", "an integer >= 1", k)
    grams, log_p = _checked(keys)
    states = index.find(grams)
    there = states.counts > 0
    grams = [gram for gram, keep in zip(grams, there.tolist(), strict=True) if keep]
    log_p, frequency = log_p[there], states.counts[there]
    single = np.array([len(gram) == 1 for gram in grams], dtype=bool)
    weights = _weights(log_p, frequency, single, index.n_tokens, settings)
    first_token = np.array([gram[0] for gram in grams], dtype=np.int64)
    tokens = _token_weights(index, unigrams, settings)
    if settings.scoring == "log-odds":
        tokens[first_token[single]] = weights[single]

    documents = _candidates(index, grams, weights, frequency, settings)
    # Keys of one token are unigrams: they count where no longer one was chosen.
    chosen = np.flatnonzero((weights > 0) & ~(single & (settings.scoring == "log-odds")))
    return _rank(index, documents, [grams[i] for i in chosen.tolist()], weights[chosen], tokens, k, settings)


def _checked(keys: Mapping[NGram, float]) -> tuple[list[NGram], NDArray[np.float64]]:
    """Return the keys in order, and their log p."""
    grams = sorted(tuple(int(token) for token in gram) for gram in keys)
    if grams and not grams[0]:
        raise invalid("keys", "rank_by_ngrams", "n-grams of at least one token", ())
    log_p = np.array([keys[gram] for gram in grams], dtype=np.float64)
    if not (log_p <= 1e-6).all():
        raise invalid("keys", "rank_by_ngrams", "log-probabilities, none above 0", float(log_p.max(initial=-np.inf)))
    possible = log_p > -np.inf
    return [gram for gram, keep in zip(grams, possible.tolist(), strict=True) if keep], log_p[possible]


def _weights(
    log_p: NDArray[np.float64],
    frequency: NDArray[np.int64],
    single: NDArray[np.bool_],
    corpus: int,
    settings: SealSettings,
) -> NDArray[np.float64]:
    if settings.scoring == "lm":
        lowest = log_p.min() if len(log_p) else 0.0
        weights: NDArray[np.float64] = (log_p - lowest + 0.1) ** settings.alpha
        return weights
    odds = log_odds(log_p, frequency, corpus)
    return np.where(single, odds, odds**settings.alpha)


def _token_weights(index: NGramIndex, unigrams: ArrayLike | None, settings: SealSettings) -> NDArray[np.float64]:
    """Return the weight of each token as a unigram, shape (vocabulary,), 0 for those that do not count."""
    weights = np.zeros(index.vocabulary)
    if unigrams is None or settings.scoring == "lm":
        return weights
    log_p = numbers(unigrams, "unigrams", "rank_by_ngrams").astype(np.float64)
    if log_p.shape != (index.vocabulary,) or np.isnan(log_p).any() or (log_p > 1e-6).any():
        constraint = f"log-probabilities of shape ({index.vocabulary},), one a token of the index's vocabulary"
        raise invalid("unigrams", "rank_by_ngrams", constraint, log_p.shape)
    _, tokens, counts = index.continuations(index.start(1))
    if len(tokens) > settings.unigrams:
        best = np.argsort(-log_p[tokens], kind="stable")[: settings.unigrams]
        tokens, counts = tokens[best], counts[best]
    weights[tokens] = log_odds(log_p[tokens], counts, index.n_tokens)
    return weights


def _candidates(
    index: NGramIndex,
    grams: Sequence[NGram],
    weights: NDArray[np.float64],
    frequency: NDArray[np.int64],
    settings: SealSettings,
) -> NDArray[np.int64]:
    """First stage: the documents with the largest sum of weights over the rarer n-grams in them."""
    rare = np.flatnonzero((frequency <= settings.max_frequency) & (weights > 0))
    places = index.locate(index.find([grams[i] for i in rare.tolist()]))
    if not len(places.documents):
        return np.zeros(0, np.int64)
    gram = np.repeat(np.arange(len(rare)), np.diff(places.offsets))
    pairs = np.unique(gram * len(index) + places.documents)  # an n-gram counts once in a document
    gram, document = np.divmod(pairs, len(index))
    documents, which = np.unique(document, return_inverse=True)
    sums = np.bincount(which, weights=weights[rare][gram])
    order = np.lexsort((documents, -sums))[: settings.candidates]
    return documents[order]


def _rank(
    index: NGramIndex,
    documents: NDArray[np.int64],
    grams: Sequence[NGram],
    weights: NDArray[np.float64],
    tokens: NDArray[np.float64],
    k: int,
    settings: SealSettings,
) -> SealAnswer:
    """Score the candidates in full and keep the best, with what their scores are the sums of."""
    scores, offsets, key, position, cover = index.seal(documents, grams, weights, tokens, settings.beta)
    best = np.lexsort((documents, -scores))[:k]
    best = best[scores[best] > 0]
    kept = np.concatenate([np.arange(offsets[b], offsets[b + 1]) for b in best]) if len(best) else np.zeros(0, np.int64)
    # The n-grams of all results, the heaviest first, are what the hits' query tokens count.
    distinct = np.unique(key[kept])
    named = [grams[i] if i >= 0 else (-1 - i,) for i in distinct.tolist()]
    weight = np.array([weights[i] if i >= 0 else tokens[-1 - i] for i in distinct.tolist()], dtype=np.float64)
    order = np.argsort(-weight, kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    size = np.array([len(gram) for gram in named], dtype=np.int64)

    hits = []
    for b in best.tolist():
        mine = slice(int(offsets[b]), int(offsets[b + 1]))
        which = np.searchsorted(distinct, key[mine])
        lengths = size[which]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        hits.append(
            Hits(
                query_token=np.repeat(number[which], lengths),
                document=np.full(len(within), documents[b]),
                document_token=np.repeat(position[mine], lengths) + within,
                similarity=np.repeat(weight[which] / lengths, lengths),
                weight=np.repeat(cover[mine], lengths),
            )
        )
    ids = [index.ids[d] for d in documents[best].tolist()]
    ranking = Ranking(ids, scores[best].astype(np.float32), hits, z=np.ones(len(ids), np.float32))
    return SealAnswer(ranking, tuple(named[i] for i in order.tolist()))


def _log1mexp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(1 − eˣ) for x <= 0, without loss at either end."""
    near = np.maximum(x, -np.log(2))
    far = np.minimum(x, -np.log(2))
    return np.where(x > -np.log(2), np.log(-np.expm1(near)), np.log1p(-np.exp(far)))
