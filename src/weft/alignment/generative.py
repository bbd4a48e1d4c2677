"""Dense alignments that look from the document to the query: MVDR(q←d) and generative retrieval.

The paper writes A with a row per document token; here as everywhere rows are query tokens, so its A is
transposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weft.alignment.backend import Array, detach, device_of
from weft.alignment.base import Alignment, Pairs
from weft.checks import check_positive
from weft.errors import invalid


@dataclass(frozen=True)
class DocumentToQuery(Alignment):
    """MVDR(q←d): each document token spreads a softmax over the query tokens (GR §5.2.3, Lemma 5.2).

    The paper leaves Z open. Here it is ΣA, the document's length: without it long documents win by length.
    """

    name: ClassVar[str] = "document-to-query"
    aliases: ClassVar[tuple[str, ...]] = ("mvdr-q-d",)
    reference: ClassVar[str] = "GR §5.2.3, Lemma 5.2"
    temperature: float = 1.0
    z: str = "sum"

    def _check(self) -> None:
        self._settle(temperature=check_positive(self.temperature, "temperature", type(self).__name__))

    def pairwise(self, pairs: Pairs) -> Array:
        xp = pairs.xp
        if pairs.S.shape[-2] == 0:
            return pairs.S
        valid = pairs.valid
        logits = xp.where(
            valid,
            pairs.S / self.temperature,
            xp.asarray(-xp.inf, dtype=pairs.S.dtype, device=device_of(pairs.S)),
        )
        top = xp.max(detach(logits), axis=-2, keepdims=True)
        weights = xp.exp(logits - xp.where(top == -xp.inf, xp.zeros_like(top), top))
        total = xp.sum(weights, axis=-2, keepdims=True)  # 0 only for padding
        return weights / xp.where(total > 0, total, xp.ones_like(total))


@dataclass(frozen=True)
class Attention(Alignment):
    """Generative retrieval: Ã is a given cross-attention matrix (GR eq. 14-16), Z is 1.

    The matrix is data, not a setting: pass it to `score` or `align` as ``attention=``, query tokens × document tokens.
    """

    name: ClassVar[str] = "attention"
    aliases: ClassVar[tuple[str, ...]] = ("gr",)
    reference: ClassVar[str] = "GR eq. 14-16"
    z: str = "one"

    def pairwise(self, pairs: Pairs) -> Array:
        if pairs.attention is None:
            raise invalid(
                "attention",
                "the attention alignment",
                "given: the cross-attention matrix, query × document",
                None,
            )
        return pairs.attention * pairs.indicator(pairs.valid)
