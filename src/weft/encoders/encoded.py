"""`EncodedTexts`: token vectors that know how much of the texts was cut off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.checks import FloatArray
from weft.types import TokenVectors


@dataclass(frozen=True, eq=False)
class Truncation:
    """Which texts of a call are longer than the model reads, and by how many tokens. False if none is.

    `texts` (n,): their positions in the call; `tokens` (n,): how many tokens of each are cut off; `length`: the limit;
    `of`: how many texts there were; `kind`: ``"queries"`` or ``"documents"``.
    """

    texts: NDArray[np.int64]
    tokens: NDArray[np.int64]
    length: int
    of: int
    kind: str

    def __bool__(self) -> bool:
        return len(self.texts) > 0

    def __str__(self) -> str:
        return (
            f"{len(self.texts):,} of {self.of:,} {self.kind} are longer than {self.length} tokens: "
            f"{int(self.tokens.sum()):,} tokens were cut off"
        )


_NONE = Truncation(np.zeros(0, np.int64), np.zeros(0, np.int64), length=0, of=0, kind="texts")


@dataclass(frozen=True, eq=False, repr=False)
class EncodedTexts(TokenVectors):
    """What `Encoder.encode_query` and `Encoder.encode_document` return: `TokenVectors` that know what was cut off.

    Slices, copies and concatenations are plain `TokenVectors`: `truncation` is about the whole call.

    Examples
    --------
    >>> encoded = EncodedTexts([[1.0, 0.0], [0.0, 1.0]], [0, 1, 2])
    >>> bool(encoded.truncation), encoded[:1]
    (False, TokenVectors(1 texts, 1 tokens, dim 2, float32))
    """

    truncation: Truncation = _NONE

    @classmethod
    def of(
        cls,
        values: FloatArray,
        offsets: NDArray[np.int64],
        token_ids: NDArray[np.int32],
        salience: NDArray[np.float32] | None,
        spans: NDArray[np.int32],
        truncation: Truncation,
    ) -> EncodedTexts:
        """Take arrays known to be valid as they are."""
        made = cls.trusted(values, offsets, token_ids, salience, spans)
        assert isinstance(made, cls)
        object.__setattr__(made, "truncation", truncation)
        return made
