"""From text to token ids, masks and character spans: the half of encoding that both back ends share.

The model's own tokenizer runs without truncation and without padding, so it keeps no state between calls and any number
of threads may use it; cutting and filling up happen here, as the checkpoint wants it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.encoders.settings import Side
from weft.errors import CheckpointError
from weft.types import BoolArray

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

OUTSIDE = -1
"""Start and stop of the span of a token that is not of the text."""

# One character each, so that spans still point into the text as it was given.
_SURROGATES = re.compile("[\ud800-\udfff]")
_IS_SPACE = np.array([chr(code).isspace() for code in range(0x3002)])  # by code; the last stands for all above it


@dataclass(frozen=True, eq=False)
class Tokens:
    """One text as the model reads it. All arrays have one entry a token, T in all.

    `ids` (T,) int32; `attended` (T,): the model attends to it; `scored` (T,): its vector is kept; `spans` (T, 2) int32;
    `lost`: tokens that were cut off.
    """

    ids: NDArray[np.int32]
    attended: BoolArray
    scored: BoolArray
    spans: NDArray[np.int32]
    lost: int

    def __len__(self) -> int:
        return len(self.ids)


class Reader:
    """Reads the texts of one side."""

    def __init__(self, tokenizer: Tokenizer, side: Side) -> None:
        self.side = side
        self._tokenizer = tokenizer
        self._skip = np.array(side.skip_ids, dtype=np.int32)
        self._keep = None if side.keep_ids is None else np.array(side.keep_ids, dtype=np.int32)
        if side.length <= tokenizer.num_special_tokens_to_add(False):
            raise CheckpointError(f"a length of {side.length} tokens leaves no room for text beside the special tokens")

    def read(self, texts: list[str], threads: int = 1) -> list[Tokens]:
        """Return the tokens of each text."""
        return [self._tokens(e, text) for e, text in zip(self._encode(texts, threads), texts, strict=True)]

    def counts(self, texts: list[str], threads: int = 1) -> NDArray[np.int64]:
        """Return how many tokens each text has in full, special tokens and prefix included."""
        return np.array([len(e.ids) for e in self._encode(texts, threads)], dtype=np.int64)

    def spans(self, text: str) -> NDArray[np.int32]:
        """Return the spans of all tokens of the text itself, none cut off, shape (T, 2)."""
        (encoding,) = self._encode([text], 1)
        special = np.array(encoding.special_tokens_mask, dtype=bool)
        spans = self._spans(np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2), special, text)
        return np.ascontiguousarray(spans[spans[:, 0] != OUTSIDE])

    def _encode(self, texts: list[str], threads: int) -> list[Encoding]:
        whole = [self.side.prefix + _SURROGATES.sub("\ufffd", text) for text in texts]
        if threads == 1 or len(whole) == 1:
            return [self._tokenizer.encode(text) for text in whole]
        return self._tokenizer.encode_batch(whole)  # all cores: the library has no smaller setting than that

    def _tokens(self, encoding: Encoding, text: str) -> Tokens:
        ids = np.array(encoding.ids, dtype=np.int32)
        special = np.array(encoding.special_tokens_mask, dtype=bool)
        spans = self._spans(np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2), special, text)
        lost = max(0, len(ids) - self.side.length)
        if lost:
            # Cut the text, not the special tokens that close it.
            closing = int(np.argmin(special[::-1])) if not special.all() else 0
            rows = np.r_[0 : self.side.length - closing, len(ids) - closing : len(ids)]
            ids, spans = ids[rows], spans[rows]
        attended = scored = np.ones(len(ids), dtype=bool)
        expansion = self.side.expansion
        if expansion is not None and len(ids) < expansion.length:
            more = expansion.length - len(ids)
            ids = np.concatenate([ids, np.full(more, expansion.token_id, dtype=np.int32)])
            spans = np.concatenate([spans, np.full((more, 2), OUTSIDE, dtype=np.int32)])
            attended = np.concatenate([attended, np.full(more, expansion.attend)])
            scored = np.ones(len(ids), dtype=bool)
        if len(self._skip):
            scored = scored & ~np.isin(ids, self._skip)
        if self._keep is not None:
            scored = scored & np.isin(ids, self._keep)
        return Tokens(ids, attended, scored, spans, lost)

    def _spans(self, offsets: NDArray[np.int32], special: BoolArray, text: str) -> NDArray[np.int32]:
        """Turn offsets into prefix + text to spans of the text."""
        spans: NDArray[Any] = offsets - len(self.side.prefix)
        outside = special | ((spans[:, 1] <= 0) & (self.side.prefix != ""))
        spans = np.maximum(spans, 0)
        if text:
            # SentencePiece and byte-level tokenizers count the space before a word as part of it.
            codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
            first = np.minimum(spans[:, 0], len(codes) - 1)
            space = _IS_SPACE[np.minimum(codes[first], len(_IS_SPACE) - 1)]
            spans[:, 0] += space & (spans[:, 1] - spans[:, 0] > 1)
        spans[outside] = OUTSIDE
        return spans.astype(np.int32)
