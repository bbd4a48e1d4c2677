"""Documents' token ids as one text of symbols: what both forms of the index are built from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.checks import integers
from weft.errors import invalid, missing_extra

MAX_VOCABULARY = 1 << 24
"""Symbols take at most three bytes while the text is sorted; tables of the vocabulary's size stay small."""
MAX_ROWS = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class Corpus:
    """The text 0 d₁ 0 d₂ 0 … 0. A symbol is 1 + the token's rank among those that occur; 0 ends an n-gram."""

    text: NDArray[Any]  # (rows,) uint16, or uint32 where there are more symbols
    starts: NDArray[np.int64]  # (N + 1,): where each document begins in the text; the last is `rows`
    alphabet: NDArray[np.int32]  # (σ,): the tokens that occur, ascending
    first: NDArray[np.uint32]  # (σ + 2,): how many symbols of the text are less


def lay_out(
    documents: Iterable[ArrayLike], ids: Sequence[str], vocabulary: int, breaks: Collection[int], allow_empty: bool
) -> Corpus:
    """Check the documents and join them."""
    owner = "NGramIndex.build"
    if isinstance(vocabulary, bool) or not isinstance(vocabulary, int) or not 1 <= vocabulary <= MAX_VOCABULARY:
        raise invalid("vocabulary", owner, f"an integer from 1 to {MAX_VOCABULARY}", vocabulary)
    texts = [_tokens(document, owner) for document in documents]
    _check_ids(ids, len(texts), owner)
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    tokens = np.concatenate(texts) if texts else np.zeros(0, np.int64)
    rows = len(tokens) + len(texts) + 1
    if rows > MAX_ROWS:
        raise invalid("documents", owner, f"of at most {MAX_ROWS} tokens and documents", rows)
    if len(tokens) and (tokens.min() < 0 or tokens.max() >= vocabulary):
        bad = tokens[(tokens < 0) | (tokens >= vocabulary)][0]
        raise invalid("documents", owner, f"of token ids from 0 to {vocabulary - 1}, the vocabulary's", int(bad))
    broken = np.zeros(vocabulary, dtype=bool)
    for token in breaks:
        if not 0 <= token < vocabulary:
            raise invalid("breaks", owner, f"token ids from 0 to {vocabulary - 1}, the vocabulary's", token)
        broken[token] = True

    frequency = np.bincount(tokens, minlength=vocabulary)
    frequency[broken] = 0
    alphabet = np.flatnonzero(frequency).astype(np.int32)
    dtype = np.uint16 if len(alphabet) <= np.iinfo(np.uint16).max else np.uint32
    starts = np.concatenate([[0], np.cumsum(lengths + 1)]) + 1
    text = np.zeros(rows, dtype=dtype)
    within = np.ones(rows, dtype=bool)
    within[starts - 1] = False  # the separators, one before each document and the last one
    text[within] = symbols_of(alphabet, vocabulary).astype(dtype)[tokens]
    if not allow_empty:
        _check_filled(text, starts, ids, owner)
    counts = np.concatenate([[rows - frequency.sum()], frequency[alphabet]])
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    return Corpus(text, starts.astype(np.int64), alphabet, first)


def symbols_of(alphabet: NDArray[np.int32], vocabulary: int) -> NDArray[np.int32]:
    """Return each token's symbol, shape (vocabulary,), 0 for those that do not occur."""
    symbols = np.zeros(vocabulary, dtype=np.int32)
    symbols[alphabet] = np.arange(1, len(alphabet) + 1, dtype=np.int32)
    return symbols


def suffix_array(text: NDArray[Any]) -> NDArray[np.int32]:
    """Return the positions of the text's suffixes in their order, an end coming before any symbol.

    Examples
    --------
    >>> suffix_array(np.array([0, 2, 1, 2, 0], dtype=np.uint16)).tolist()
    [4, 0, 2, 3, 1]
    """
    try:
        from pydivsufsort import divsufsort
    except ImportError:
        raise missing_extra("pydivsufsort", "generative", "building a corpus index") from None
    if text.dtype == np.uint16:
        order = divsufsort(text.astype(">u2").view(np.uint8))
        return (order[(order & 1) == 0] >> 1).astype(np.int32, copy=False)
    # The sort is of bytes, most significant first; suffixes that begin within a symbol are left out afterwards.
    three = np.ascontiguousarray(text.astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:])
    order = divsufsort(three.reshape(-1))
    whole, rest = np.divmod(order, 3)
    return whole[rest == 0].astype(np.int32, copy=False)


def _tokens(document: ArrayLike, owner: str) -> NDArray[Any]:
    # Corpora have many documents: what is an array of integers already is not looked at further.
    if isinstance(document, np.ndarray) and document.ndim == 1 and document.dtype in (np.int32, np.int64):
        return document
    array: NDArray[Any] = integers(document, "documents", owner, np.int64)
    if array.ndim != 1:
        raise invalid("documents", owner, "one sequence of token ids each", array.shape)
    return array


def _check_ids(ids: Sequence[str], documents: int, owner: str) -> None:
    if len(ids) != documents:
        raise invalid("ids", owner, f"one for each of the {documents} documents", len(ids))
    seen: set[str] = set()
    for id in ids:  # noqa: A001
        if not isinstance(id, str) or not id or not _encodable(id):
            raise invalid("ids", owner, "strings of valid Unicode with at least one character", id)
        if id in seen:
            raise invalid("ids", owner, "different from each other", id)
        seen.add(id)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_filled(text: NDArray[Any], starts: NDArray[np.int64], ids: Sequence[str], owner: str) -> None:
    if not len(ids):
        raise invalid("documents", owner, "at least one document (or allow_empty=True)", [])
    filled = np.add.reduceat(text != 0, starts[:-1] - 1)  # the separator before each counts nothing
    if not filled.all():
        empty = ids[int(np.flatnonzero(filled == 0)[0])]
        constraint = "documents with at least one token that does not break the text (or allow_empty=True: never found)"
        raise invalid("documents", owner, constraint, f"none in document {empty!r}")
