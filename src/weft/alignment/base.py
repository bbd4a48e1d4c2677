"""What an alignment is: from similarities S of a batch to the matrix Ã and the normaliser Z.

    rel(Q, D) = 1/Z · Σ_ij S_ij · A_ij        A = Ã ∘ (u_q ⊗ u_d)        (ALIGNER eq. 1-2)

An `Alignment` only chooses Ã and Z. `weft.alignment.scoring` applies saliences and sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from array_api_compat import array_namespace

from weft.alignment.backend import Array
from weft.alignment.spec import Spec
from weft.errors import invalid

LEAST_Z = 1e-6
"""A Z = ΣA above 0 counts as at least this much: tiny saliences must neither blow up a score nor make its gradient,
which has 1/Z², infinite."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Every query token against every document token of a batch: B queries, N documents.

    Attributes
    ----------
    S : array, shape (B, N, n, m)
        Similarities; whatever stands at padded positions is never looked at.
    query_mask, document_mask : bool arrays, shapes (B, n) and (N, m)
        True where a token is real.
    query_tokens, document_tokens : int arrays of the same shapes, or None
        Vocabulary ids, for exact lexical match.
    attention : array, shape (B, N, n, m), or None
        A given alignment, for generative retrieval.
    """

    S: Array
    query_mask: Array
    document_mask: Array
    query_tokens: Array | None = None
    document_tokens: Array | None = None
    attention: Array | None = None

    @property
    def xp(self) -> Any:
        """The array namespace of S."""
        return array_namespace(self.S)

    @property
    def valid(self) -> Array:
        """True where both tokens are real, shape (B, N, n, m)."""
        both = self.query_mask[:, None, :, None] & self.document_mask[None, :, None, :]
        return self.xp.broadcast_to(both, self.S.shape)

    @property
    def document_lengths(self) -> Array:
        """Number of real tokens of each document, shape (N,)."""
        return self.xp.sum(self.xp.astype(self.document_mask, self.xp.int64), axis=-1)

    def indicator(self, mask: Array) -> Array:
        """Return a bool mask as 0/1 in the type of S."""
        return self.xp.astype(mask, self.S.dtype)


class Alignment(Spec, ABC, family="alignment"):
    """Base of all alignments. A subclass is a frozen dataclass with `pairwise`, a `z` and what it cites.

    `z` says what Z is: ``"one"`` leaves the sum as it is, ``"sum"`` divides by ΣA (ALIGNER eq. 1),
    ``"query"`` by the number of query tokens (XTR eq. 1). If Z is 0 nothing aligned and the score is 0; a sum that is
    nearly 0 counts as `LEAST_Z`.
    """

    reference: ClassVar[str]
    """Where the paper defines it."""

    z: str

    def __post_init__(self) -> None:
        if self.z not in ("one", "sum", "query"):
            raise invalid("z", type(self).__name__, "'one', 'sum' or 'query'", self.z)
        self._check()

    def _check(self) -> None:
        """Validate the fields of a subclass."""

    @abstractmethod
    def pairwise(self, pairs: Pairs) -> Array:
        """Return Ã, shape (B, N, n, m), zero wherever `pairs.valid` is False."""

    def contributions(self, pairs: Pairs) -> Array | None:  # noqa: ARG002
        """Return Σ_j S∘Ã of each query token, (B, N, n), where it is known without Ã; None where it is not."""
        return None

    def solve(self, pairs: Pairs) -> tuple[Array, Array]:
        """Return the similarities that count and Ã. Only imputation changes the similarities."""
        return pairs.S, self.pairwise(pairs)

    @property
    def divides_by(self) -> str:
        """The Z in use: `z`, unless a subclass overrides it."""
        return self.z

    def normaliser(self, A: Array, pairs: Pairs) -> Array:
        """Return Z, shape (B, N), for the full alignment A (saliences included)."""
        xp = pairs.xp
        if self.divides_by == "sum":
            total = xp.sum(A, axis=(-2, -1))
            return xp.where((total > 0) & (total < LEAST_Z), xp.full_like(total, LEAST_Z), total)
        if self.divides_by == "query":
            n = xp.sum(pairs.indicator(pairs.query_mask), axis=-1)  # (B,)
            return xp.broadcast_to(n[:, None], A.shape[:2])
        return xp.ones_like(xp.sum(A, axis=(-2, -1)))
