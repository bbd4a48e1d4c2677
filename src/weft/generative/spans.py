"""Query-conditioned spans, the targets of SEAL's training: the places of a passage that answer the query.

For each word j of the passage that is no stop word the weight is Σ_i ratio(q[i:i+3], d[j:j+3]), a fuzzy string ratio
of 0 to 1 summed over the query's trigrams; spans begin at words drawn from the softmax of the weights, with
replacement.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import missing_extra

WORD = re.compile(r"\S+")
TRIGRAM = 3


def begin_probabilities(query: str, passage: str, temperature: float = 1.0) -> NDArray[np.float64]:
    """Return, for each word of a passage, how likely a span for the query begins there; they sum to 1.

    Examples
    --------
    >>> p = begin_probabilities("when did the oil crisis begin", "It was cold. The oil crisis began in 1973.")
    >>> int(p.argmax())  # words: It was cold. The oil crisis began in 1973.
    4
    """
    try:
        from rapidfuzz import fuzz, process
    except ImportError:
        raise missing_extra("rapidfuzz", "generative", "sampling of query-conditioned spans") from None

    words, asked = WORD.findall(passage.lower()), WORD.findall(query.lower())
    if not words:
        return np.zeros(0)
    content = np.array([word.strip(".,;:!?\"'()[]") not in stop_words() for word in words])
    if not content.any():
        content[:] = True
    weights = np.zeros(len(words))
    if asked:
        ratios = process.cdist(_trigrams(asked), _trigrams(words), scorer=fuzz.ratio, dtype=np.float32)
        weights = ratios.sum(axis=0, dtype=np.float64) / 100  # rapidfuzz counts in per cent
    weights = np.where(content, weights / temperature, -np.inf)
    likely = np.exp(weights - weights.max())
    return likely / likely.sum()


def word_tokens(tokenizer: Any, text: str) -> tuple[list[int], NDArray[np.int64]]:
    """Return a text's token ids and, for each of its words (as `begin_probabilities` counts them), its first token."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids: list[int] = encoded["input_ids"]
    ends = np.array([end for _, end in encoded["offset_mapping"]], dtype=np.int64)
    starts = np.array([match.start() for match in WORD.finditer(text)], dtype=np.int64)
    # The first token that reaches past the word's beginning: some tokenizers count the space before to the token.
    first = np.searchsorted(ends, starts, side="right")
    return ids, np.minimum(first, max(0, len(ids) - 1))


def span_end(words: NDArray[np.int64], word: int, tokens: int, in_words: int = 0) -> int | None:
    """Return where the span that begins at a word ends: after so many tokens, or words; None: with the text.

    Examples
    --------
    >>> words = np.array([0, 2, 3, 7])  # the first token of each word
    >>> span_end(words, 1, 10), span_end(words, 1, 10, in_words=2), span_end(words, 2, 10, in_words=2)
    (12, 7, None)
    """
    if not in_words:
        return int(words[word]) + tokens
    return int(words[word + in_words]) if word + in_words < len(words) else None


@cache
def stop_words() -> frozenset[str]:
    """Return English stop words."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return frozenset(ENGLISH_STOP_WORDS)


def _trigrams(words: list[str]) -> list[str]:
    return [" ".join(words[i : i + TRIGRAM]) for i in range(len(words))]
