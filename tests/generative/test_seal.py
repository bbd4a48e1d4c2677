"""SEAL's scores against the definition, written down slowly."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pydivsufsort", reason="needs the generative extra: pip install 'weft-search[generative]'")

from weft.errors import InvalidParameterError
from weft.generative.corpus_index import FMIndex, TokenTextIndex
from weft.generative.seal import SealSettings, log_odds, rank_by_ngrams

VOCABULARY = 8
BREAK = 7


def occurs(gram, document):
    """The places of an n-gram."""
    return [i for i in range(len(document) - len(gram) + 1) if tuple(document[i : i + len(gram)]) == gram]


def odds(s, frequency, corpus):
    p, c = math.exp(min(s, -1e-7)), (frequency + 5) / (corpus + 5)
    return 0.0 if c == 1 else max(0.0, math.log(p / (1 - p)) - math.log(c / (1 - c)))


def slow(documents, keys, unigrams, settings):
    """Score every document: {number: (score, [(n-gram, position, cover)])}; only those of the first stage."""
    documents = [[None if token == BREAK else token for token in document] for document in documents]
    corpus = sum(token is not None for document in documents for token in document)
    frequency = {gram: sum(len(occurs(gram, document)) for document in documents) for gram in keys}
    keys = {gram: s for gram, s in keys.items() if frequency[gram] > 0}
    singles = {}
    if settings.scoring == "lm":
        weight = {gram: (s - min(keys.values()) + 0.1) ** settings.alpha for gram, s in keys.items()}
    else:
        weight = {gram: odds(s, frequency[gram], corpus) for gram, s in keys.items()}
        weight = {gram: w if len(gram) == 1 else w**settings.alpha for gram, w in weight.items()}
        there = {token for document in documents for token in document if token is not None}
        best = [] if unigrams is None else sorted(there, key=lambda t: (-unigrams[t], t))[: settings.unigrams]
        for token in best:
            singles[token] = odds(unigrams[token], sum(d.count(token) for d in documents), corpus)
        singles |= {gram[0]: w for gram, w in weight.items() if len(gram) == 1}
    rare = {gram for gram in weight if frequency[gram] <= settings.max_frequency and weight[gram] > 0}
    first = {d: sum(weight[gram] for gram in rare if occurs(gram, document)) for d, document in enumerate(documents)}
    found = sorted((d for d in first if first[d] > 0), key=lambda d: (-first[d], d))[: settings.candidates]
    ngrams = [gram for gram in weight if weight[gram] > 0 and (len(gram) > 1 or settings.scoring == "lm")]
    result = {}
    for d in found:
        document, free, said, score, parts = documents[d], [True] * len(documents[d]), set(), 0.0, []
        for gram in sorted(ngrams, key=lambda gram: (-weight[gram], gram)):
            for i in occurs(gram, document):
                if all(free[i : i + len(gram)]):
                    cover = 1 - settings.beta + settings.beta * len(set(gram) - said) / len(set(gram))
                    score += weight[gram] * cover
                    parts.append((gram, i, cover))
                    free[i : i + len(gram)] = [False] * len(gram)
                    said |= set(gram)
                    break
        used = set()
        for i, token in enumerate(document):
            if free[i] and singles.get(token, 0) > 0 and token not in used:
                used.add(token)
                cover = 1 - settings.beta if token in said else 1.0
                score += singles[token] * cover
                parts.append(((token,), i, cover))
        result[d] = (score, parts)
    return result


TOKENS = st.integers(0, VOCABULARY - 2)
LOG_P = st.floats(-12, 0)


@pytest.mark.parametrize("form", [TokenTextIndex, FMIndex])
@given(
    documents=st.lists(st.lists(st.integers(0, BREAK), max_size=10), max_size=7),
    keys=st.dictionaries(st.lists(TOKENS, min_size=1, max_size=4).map(tuple), LOG_P, max_size=12),
    unigrams=st.none() | st.lists(LOG_P, min_size=VOCABULARY, max_size=VOCABULARY),
    settings=st.builds(
        SealSettings,
        scoring=st.sampled_from(["log-odds", "lm"]),
        alpha=st.sampled_from([1.0, 2.0]),
        beta=st.sampled_from([0.0, 0.8, 1.0]),
        max_frequency=st.sampled_from([2, 1500]),
        candidates=st.sampled_from([2, 1500]),
        unigrams=st.sampled_from([0, 3, 5000]),
    ),
)
def test_scores_and_hits(form, documents, keys, unigrams, settings):
    ids = [f"d{i}" for i in range(len(documents))]
    index = form.build(documents, ids, vocabulary=VOCABULARY, breaks=[BREAK], allow_empty=True)
    ranking, named = rank_by_ngrams(index, keys, unigrams, k=20, settings=settings)
    want = slow(documents, keys, unigrams, settings)
    scores = dict(zip(ranking.ids, ranking.scores.tolist(), strict=True))
    if settings.candidates == 1500:  # sums that differ by rounding may choose other candidates
        assert set(scores) == {ids[d] for d, (score, _) in want.items() if score > 0}
    for rank, name in enumerate(ranking.ids):
        number = ids.index(name)
        if settings.candidates == 1500:
            assert scores[name] == pytest.approx(want[number][0], rel=1e-5, abs=1e-6)
        hits = ranking.hits[rank]
        assert ranking.contributions(rank).sum() == pytest.approx(scores[name], rel=1e-4, abs=1e-6)
        assert len(set(hits.document_token.tolist())) == len(hits)  # nothing overlaps
        for key, token in zip(hits.query_token.tolist(), hits.document_token.tolist(), strict=True):
            assert documents[number][token] in named[key]


def test_order_is_that_of_the_scores():
    rng = np.random.default_rng(1)
    documents = [rng.integers(8, 48, 30).tolist() for _ in range(60)]
    index = TokenTextIndex.build(documents, [str(i) for i in range(60)], vocabulary=48)
    keys = {
        tuple(documents[i][j : j + n]): -float(n + i % 3) for i in range(0, 60, 7) for j in (0, 9) for n in (1, 2, 3)
    }
    unigrams = np.log(rng.dirichlet(np.ones(48)))
    answer = rank_by_ngrams(index, keys, unigrams, k=60)
    want = slow(documents, keys, unigrams, SealSettings())
    order = sorted(want, key=lambda d: -want[d][0])
    assert [int(name) for name in answer.ranking.ids[:5]] == order[:5]
    assert rank_by_ngrams(index, keys, unigrams, k=5).ranking.ids == answer.ranking.ids[:5]


def test_log_odds_at_its_ends():
    assert log_odds(0.0, 0, 10**9) > 30  # certain and unheard of: large, not infinite
    assert log_odds(-1e4, 10, 100) == 0
    assert log_odds(-0.1, 100, 100) == 0  # a corpus that says nothing else
    p, c = 0.3, 105 / 10_005
    assert log_odds(math.log(p), 100, 10_000) == pytest.approx(math.log(p / (1 - p)) - math.log(c / (1 - c)))


def test_nothing_found():
    index = TokenTextIndex.build([[1, 2]], ["a"], vocabulary=4)
    for keys in ({}, {(3,): -1.0}, {(2, 1): -0.5}, {(1, 2): -math.inf}):
        answer = rank_by_ngrams(index, keys)
        assert (len(answer.ranking), answer.keys) == (0, ())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda index: rank_by_ngrams(index, {(): -1.0}), "at least one token"),
        (lambda index: rank_by_ngrams(index, {(1,): 0.5}), "none above 0. Got 0.5"),
        (lambda index: rank_by_ngrams(index, {(1,): math.nan}), "none above 0"),
        (lambda index: rank_by_ngrams(index, {(1,): -1.0}, np.zeros(5)), "'unigrams' .* shape \\(4,\\)"),
        (lambda index: rank_by_ngrams(index, {(1,): -1.0}, k=0), "'k'"),
        (lambda index: SealSettings(scoring="odds"), "one of log-odds, lm"),
        (lambda index: SealSettings(beta=1.5), "'beta'"),
        (lambda index: SealSettings(alpha=0), "'alpha'"),
        (lambda index: SealSettings(candidates=0), "'candidates'"),
    ],
)
def test_bad_input(call, message):
    index = TokenTextIndex.build([[1, 2]], ["a"], vocabulary=4)
    with pytest.raises(InvalidParameterError, match=message):
        call(index)
