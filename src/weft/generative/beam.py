"""Constrained beam search over an encoder-decoder: only what a `Constraint` allows is decoded.

log p is the model's own: a softmax over the whole vocabulary, masked afterwards and not renormalised, so that
probability given to forbidden tokens counts against the allowed ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from weft.errors import InvalidParameterError, invalid
from weft.generative.constraint import Constraint
from weft.generative.decoder import Decoder
from weft.generative.model import GenerativeModel

ROWS = 512
"""Beams decoded at a time: more are no faster on a CPU, and logits over 32,000 tokens take 64 MB."""


@dataclass(frozen=True)
class Decoded:
    """What decoding found for one query.

    `keys` has every complete identifier that was ever in the beam, those of earlier steps included, with its log p,
    best first. `unigrams` are the log p of every single token as the first one, shape (V,).
    """

    keys: dict[tuple[int, ...], float]
    unigrams: NDArray[np.float32]


def beam_search(
    model: GenerativeModel,
    ids: Sequence[Sequence[int]],
    constraint: Constraint[Any],
    *,
    beams: int = 15,
    length: int = 10,
    end: int | None = None,
    says: NDArray[np.int64] | None = None,
    batch_size: int = 16,
) -> Iterator[Decoded]:
    """Decode identifiers for queries, in their order.

    Parameters
    ----------
    model : GenerativeModel
    ids : token ids of queries
    constraint : Constraint
    beams : int
        Hypotheses kept for a query at each step. A step takes the best of all allowed continuations of all beams, so
        that no two are alike.
    length : int
        The maximum number of tokens of an identifier, not counting `end`.
    end : int, optional
        The token that ends an identifier: a complete prefix becomes a key with log p of `end` added. Without it every
        complete prefix is a key as it is (n-grams).
    says : array of int64, shape (V,), optional
        What each token of the decoder stands for, if several stand for one (the clusters of NP-decoding). Of hypotheses
        with the same meaning only the best stays, so that variants of one identifier do not fill the beam.
    batch_size : int
        The maximum number of queries decoded at a time: no more than make `ROWS` rows.
    """
    for name, value in (("beams", beams), ("length", length), ("batch_size", batch_size)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise invalid(name, "beam_search", "an integer >= 1", value)
    batch_size = min(batch_size, max(1, ROWS // beams))
    for start in range(0, len(ids), batch_size):
        with torch.inference_mode():
            found = _batch(model, ids[start : start + batch_size], constraint, beams, length, end, says)
        yield from found


def _batch(
    model: GenerativeModel,
    ids: Sequence[Sequence[int]],
    constraint: Constraint[Any],
    width: int,
    length: int,
    end: int | None,
    says: NDArray[np.int64] | None,
) -> list[Decoded]:
    n = len(ids)
    decoder = Decoder(model, ids)
    logits, normaliser = _scores(decoder)  # (n, V), (n,)
    unigrams = (logits - normaliser[:, None]).astype(np.float32)
    state = constraint.start(n)
    owner = np.arange(n)  # the query of each beam, ascending
    score = np.zeros(n)
    prefixes: list[tuple[int, ...]] = [()] * n
    keys: list[dict[tuple[int, ...], float]] = [{} for _ in ids]
    for depth in range(1, length + 1):
        offsets, tokens = constraint.continuations(state)
        _check_tokens(tokens, model.vocabulary)
        rows = np.repeat(np.arange(len(owner)), np.diff(offsets))
        candidates = score[rows] + (logits[rows, tokens] - normaliser[rows])
        if says is not None:
            kept = _best_said(rows, says[tokens], candidates)
            rows, tokens, candidates = rows[kept], tokens[kept], candidates[kept]
        best = _best_of_each(candidates, owner[rows], n, width)
        if not len(best):
            break
        rows, said, score = rows[best], tokens[best], candidates[best]
        prefixes = [(*prefixes[row], int(token)) for row, token in zip(rows, said, strict=True)]
        owner, state = owner[rows], constraint.advance(state, rows, said)
        complete = constraint.complete(state)
        if end is None:
            for row in np.flatnonzero(complete):
                keys[owner[row]][prefixes[row]] = float(score[row])
            if depth == length:
                break
        decoder.advance(rows, said)
        logits, normaliser = _scores(decoder)
        if end is not None:
            for row in np.flatnonzero(complete):
                keys[owner[row]][prefixes[row]] = float(score[row] + (logits[row, end] - normaliser[row]))
    ordered = [dict(sorted(found.items(), key=lambda item: -item[1])) for found in keys]
    return [Decoded(found, unigrams[query]) for query, found in enumerate(ordered)]


def _scores(decoder: Decoder) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return the logits of each row and what to take off them for log p: a softmax over the whole vocabulary."""
    logits = decoder.logits().float()
    return logits.cpu().numpy(), logits.logsumexp(-1).double().cpu().numpy()


def _best_said(rows: NDArray[np.int64], said: NDArray[np.int64], scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the positions of the best among the candidates of each row with the same meaning, ascending.

    Rows of one query already mean different things, so candidates of different rows do too.
    """
    order = np.lexsort((-scores, said, rows))
    first = np.ones(len(order), dtype=bool)
    first[1:] = (rows[order][1:] != rows[order][:-1]) | (said[order][1:] != said[order][:-1])
    return np.sort(order[first])


def _best_of_each(scores: NDArray[np.float64], owner: NDArray[np.int64], n: int, width: int) -> NDArray[np.int64]:
    """Return positions of each owner's `width` best scores, grouped by owner, best first; -∞ never counts."""
    bounds = np.searchsorted(owner, np.arange(n + 1))
    found = []
    for begin, stop in pairwise(bounds):
        part = scores[begin:stop]
        chosen = np.argpartition(-part, width - 1)[:width] if len(part) > width else np.arange(len(part))
        chosen = chosen[part[chosen] > -np.inf]
        found.append(begin + chosen[np.lexsort((chosen, -part[chosen]))])
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _check_tokens(tokens: NDArray[np.int32], vocabulary: int) -> None:
    if len(tokens) and int(tokens.max()) >= vocabulary:
        raise InvalidParameterError(
            f"the index allows token {int(tokens.max())}, but the model's decoder has {vocabulary} tokens: "
            "it was made with another tokenizer; use the model the index was made for"
        )
