"""The re-ranking setting (GR §6.3): a model's relevance of given documents, nothing retrieved.

A generative model says how likely it finds query-conditioned spans of the document: the `spans` likeliest places for
one to begin (`begin_probabilities`), `length` tokens each. The paper's published code sums the mean log-probabilities
of the spans' tokens; eq. 11 sums raw logits. Both are here, beside the part of the logits that is Σ S∘A (eq. 14). All
are means over the spans' tokens, then over the spans: a document too short for all of them gains nothing by it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from weft.alignment import score
from weft.errors import DataError
from weft.generative.model import EOS, Encoded, GenerativeModel
from weft.generative.multivector import MultiVectorModel
from weft.generative.relevance import PARTS, Trace, trace
from weft.generative.spans import begin_probabilities, span_end, word_tokens
from weft.types import TokenVectors

_AT_ONCE = 256
"""Spans decoded together: their logits over 8,000 tokens take 80 MB."""


class SpanScores(NamedTuple):
    """What a generative model says of some documents, a value for each."""

    log_p: NDArray[np.float64]
    """Mean log-probability."""
    logit: NDArray[np.float64]
    """Mean logit (eq. 11)."""
    parts: dict[str, NDArray[np.float64]]
    """What each of `weft.generative.relevance.PARTS` adds to the mean logit; cross-attention is eq. 14's Σ S∘A."""
    plain: NDArray[np.float64]
    """Eq. 14 with RMSNorm left out, the mean over tokens."""


class SpanReader:
    """A generative model that reads documents in spans.

    Parameters
    ----------
    model : GenerativeModel
        Trained on spans (SEAL).
    texts : {id: text}
        The documents.
    spans : int
        Spans of a document for a query.
    length : int, optional
        Tokens of a span; by default as in training.
    words : int
        Words of a span, in place of so many tokens; 0: tokens.
    seed : int, optional
        Draw the places of spans at temperature 1, with replacement, as the paper does; None takes the likeliest ones.
        A query draws the same places of a document whatever else is read.
    """

    def __init__(
        self,
        model: GenerativeModel,
        texts: Mapping[str, str],
        spans: int = 3,
        length: int | None = None,
        words: int = 0,
        seed: int | None = None,
    ) -> None:
        self.model, self.texts, self.n_spans = model.eval(), texts, spans
        self.words, self.seed = words, seed
        self.length = length or int(model.settings.get("span", 10))
        self._tokens: dict[str, tuple[list[int], NDArray[np.int64]]] = {}

    def query(self, text: str) -> list[int]:
        """Return a query's token ids, with the end."""
        return self.model.token_ids([text], int(self.model.settings.get("query_length", 64)))[0]

    def tokens(self, name: str) -> list[int]:
        """Return a document's token ids."""
        return self._read(name)[0]

    def spans(self, query: str, name: str) -> list[tuple[int, int]]:
        """Return where a document's spans for a query stand, (begin, end) in tokens: the likeliest first, or drawn."""
        tokens, words = self._read(name)
        likely = begin_probabilities(query, self.texts[name])
        if self.seed is None:
            likeliest: dict[int, int] = {}  # of words at one token, the likeliest
            for word in np.argsort(-likely, kind="stable").tolist():
                likeliest.setdefault(int(words[word]), word)
            chosen = list(likeliest.values())[: self.n_spans]
        else:
            random = np.random.default_rng([self.seed, zlib.crc32(query.encode()), zlib.crc32(name.encode())])
            chosen = random.choice(len(likely), self.n_spans, p=likely).tolist() if len(likely) else []
        ends = [span_end(words, word, self.length, self.words) for word in chosen]
        spans = zip(chosen, ends, strict=True)
        return [(int(words[word]), len(tokens) if end is None else min(end, len(tokens))) for word, end in spans]

    def trace(self, query: str, names: Sequence[str]) -> tuple[Trace, list[tuple[int, int, int]]]:
        """Trace all spans of some documents; with it (document's place in `names`, begin, end) of each row."""
        rows = [(place, *span) for place, name in enumerate(names) for span in self.spans(query, name)]
        targets = [self.tokens(names[place])[begin:end] for place, begin, end in rows]
        with torch.no_grad():
            encoded = self.model.encode([self.query(query)])
        hidden = encoded.hidden.expand(len(rows), -1, -1)
        return trace(self.model, Encoded(hidden, encoded.mask.expand(len(rows), -1)), targets), rows

    def scores(self, query: str, names: Sequence[str]) -> SpanScores:
        """Score documents for a query."""
        sums: dict[str, list[NDArray[np.float64]]] = {}
        owner: list[int] = []
        step = max(1, _AT_ONCE // self.n_spans)
        for start in range(0, len(names), step):
            traced, rows = self.trace(query, names[start : start + step])
            owner += [start + place for place, _, _ in rows]
            every = {"log_p": traced.log_p, "logit": traced.logit, "plain": _plain(traced)} | traced.parts
            for key, values in every.items():
                mean = torch.where(traced.mask, values, 0.0).sum(1) / traced.mask.sum(1)
                sums.setdefault(key, []).append(mean.double().numpy())
        count = np.bincount(owner, minlength=len(names))
        means = {
            key: np.bincount(owner, np.concatenate(found), minlength=len(names)) / count for key, found in sums.items()
        }
        return SpanScores(means["log_p"], means["logit"], {name: means[name] for name in PARTS}, means["plain"])

    def _read(self, name: str) -> tuple[list[int], NDArray[np.int64]]:
        if name not in self._tokens:
            found = word_tokens(self.model.tokenizer, self.texts[name])
            if not found[0] or not len(found[1]):
                raise DataError(f"the document {name!r} has no words; nothing could identify it")
            self._tokens[name] = found
        return self._tokens[name]


class PassageReader:
    """A generative model that reads whole documents, cut to `length` tokens, as a multi-vector model does.

    Parameters
    ----------
    model : GenerativeModel
    texts : {id: text}
    length : int
        Maximum tokens of a document; the last of a multi-vector model's is its end, which is left out here.
    """

    def __init__(self, model: GenerativeModel, texts: Mapping[str, str], length: int) -> None:
        self.model, self.length = model.eval(), length
        self._ids = dict(zip(texts, model.token_ids(list(texts.values()), length - 1, end=False), strict=True))

    def query(self, text: str) -> list[int]:
        """Return a query's token ids, with the end."""
        return self.model.token_ids([text], int(self.model.settings.get("query_length", 64)))[0]

    def tokens(self, name: str) -> list[int]:
        """Return a document's token ids."""
        return self._ids[name]

    def trace(self, query: str, name: str) -> Trace:
        """Trace one document for a query."""
        with torch.no_grad():
            encoded = self.model.encode([self.query(query)])
        return trace(self.model, encoded, [self.tokens(name)])


class VectorReader:
    """A multi-vector model with the documents encoded once.

    Parameters
    ----------
    model : MultiVectorModel
    texts : {id: text}
    """

    def __init__(self, model: MultiVectorModel, texts: Mapping[str, str]) -> None:
        self.model = model.eval()
        self._place = {name: i for i, name in enumerate(texts)}
        length = int(model.settings.get("document_length", 256))
        ids = model.token_ids(list(texts.values()), length)
        self.documents = model.encode_texts(ids)

    def query(self, text: str) -> TokenVectors:
        """Return a query's token vectors, with their ids; the last is the end token, unless queries are filled up."""
        return self.model.encode_texts(self.model.query_ids([text]))

    def document(self, name: str) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Return a document's token vectors (m, dim) and ids (m,); the last is the end token."""
        place = self._place[name]
        assert self.documents.token_ids is not None
        a, b = self.documents.offsets[place], self.documents.offsets[place + 1]
        return self.documents.values[a:b], self.documents.token_ids[a:b]

    def scores(self, query: str, names: Sequence[str]) -> NDArray[np.float64]:
        """Score documents for a query; of one query, Z's n changes no order and is left out."""
        found = score(
            self.query(query), self.documents.select(self._place[name] for name in names), self.model.alignment
        )
        return np.asarray(found[0], np.float64)


def without_end(tokens: Sequence[int]) -> int:
    """Return how many tokens there are before the end token."""
    return len(tokens) - (len(tokens) > 0 and int(tokens[-1]) == EOS)


def _plain(traced: Trace) -> torch.Tensor:
    """Eq. 14 at each target token, without RMSNorm: Σ over layers and heads of ẽ_iᵀ Q α_i, (B, M)."""
    total = torch.zeros_like(traced.logit)
    for layer in range(traced.layers):
        pooled = torch.einsum("bhnm,bnd->bhmd", traced.attention(layer), traced.query)
        total += (pooled * traced.document_vectors(layer, norm=False)).sum(-1).sum(1)
    return total
