"""A flat segment: the vectors as they came. Every allowed document is scored, every token compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.kernels import similarities
from weft.storage.codecs.clustering import Floats, encode
from weft.storage.segments.base import Segment, in_parts
from weft.storage.segments.plan import Allowed, Bar, Found, Plan, Sample, Terms
from weft.storage.segments.terms import aligned_terms, floor_terms, score_documents
from weft.types import TokenVectors


class FlatSegment(Segment):
    """Vectors in float32 or float16."""

    @property
    def coded(self) -> bool:
        return False

    def _sound(self) -> bool:
        values = self._arrays["values"]
        return super()._sound() and values.shape == (self.n_tokens, self.dim) and values.dtype == self.dtype

    # -- vectors -------------------------------------------------------------------------------------

    def select(self, ordinals: NDArray[np.int64]) -> TokenVectors:
        if len(ordinals) == len(self) and len(self) and bool((ordinals[1:] > ordinals[:-1]).all()):
            self._arrays.verify("values")
            return self._beside(self._arrays["values"], ordinals)  # all of them: no copy
        self._arrays.verify_rows("values", self.offsets[ordinals], self.offsets[ordinals + 1])
        return self._beside(self._arrays["values"][self.token_rows(ordinals)], ordinals)

    def rotated(self, ordinals: NDArray[np.int64], matrix: Floats) -> Floats:
        turned: Floats = self.select(ordinals).values.astype(np.float32) @ matrix
        return turned

    def byte_codes(self, ordinals: NDArray[np.int64], matrix: Floats, scale: float) -> NDArray[np.uint8]:
        return encode(self.rotated(ordinals, matrix), scale)

    def warm(self) -> None:
        _ = self._whole

    # -- searching -----------------------------------------------------------------------------------

    def search(self, query: TokenVectors, plan: Plan, allowed: Allowed, bar: Bar) -> Found:  # noqa: ARG002
        if plan.missing is None and allowed.mask is None and self._whole is not None:
            ordinals, documents = np.arange(len(self)), self._whole
        else:
            ordinals = self.with_tokens(allowed.mask)
            if not len(ordinals):
                return Found.nothing()
            if plan.missing is not None:
                return self._search_above(query, plan, plan.missing, ordinals)
            documents = self.select(ordinals)
        scores = score_documents(query, documents, plan.alignment, plan.threads, self.full_lengths(ordinals))
        return _best(ordinals, scores, plan, partial(self._terms, query, plan))

    @cached_property
    def _whole(self) -> TokenVectors | None:
        """All documents as they lie in the file, if each of them has tokens."""
        filled = len(self) > 0 and bool((self.offsets[1:] > self.offsets[:-1]).all())
        return self.select(np.arange(len(self))) if filled else None

    def _search_above(self, query: TokenVectors, plan: Plan, missing: Floats, ordinals: NDArray[np.int64]) -> Found:
        """XTR's candidates are the documents of which a token reaches its m_i."""
        parts = []
        for some in in_parts(self, ordinals):
            documents = self.select(some)
            parts.append(np.maximum.reduceat(similarities(query, documents), documents.offsets[:-1], axis=1))
        maxima = np.concatenate(parts, axis=1)  # (n, documents)
        found = (maxima >= missing[:, None]).any(axis=0)
        sums = np.maximum(maxima[:, found], missing[:, None]).sum(axis=0, dtype=np.float64)
        scores = (sums / plan.z(query.n_tokens)).astype(np.float32)
        return _best(ordinals[found], scores, plan, partial(self._terms, query, plan))

    def _terms(self, query: TokenVectors, plan: Plan, ordinals: NDArray[np.int64]) -> Sequence[Terms]:
        if plan.missing is not None:
            return floor_terms(query, self.select(ordinals), plan.z(query.n_tokens), plan.missing)
        return aligned_terms(query, self.select(ordinals), plan.alignment, self.full_lengths(ordinals))

    def retrieve_tokens(
        self,
        query: TokenVectors,
        plan: Plan,  # noqa: ARG002
        allowed: Allowed,
        into: _native.TokenRetrieval,
        base: int,
    ) -> None:
        for some in in_parts(self, self.with_tokens(allowed.mask)):
            documents = self.select(some)
            into.add(similarities(query, documents), documents.offsets, base + some)

    def sample_tokens(
        self,
        query: TokenVectors,
        into: _native.TokenRetrieval,
        sample: Sample,
        share: float,  # noqa: ARG002
    ) -> None:
        self._arrays.verify_rows("values", sample.rows, sample.rows + 1)
        ends = np.array([0, len(sample.rows)])
        tokens = TokenVectors.trusted(self._arrays["values"][sample.rows], ends)
        into.add(similarities(query, tokens), ends, np.zeros(1, np.int64))

    def comparable(self, query: TokenVectors, ordinals: NDArray[np.int64]) -> tuple[TokenVectors, TokenVectors]:
        return query, self.select(ordinals)


def _best(
    ordinals: NDArray[np.int64],
    scores: NDArray[np.float32],
    plan: Plan,
    terms: Callable[[NDArray[np.int64]], Sequence[Terms]],
) -> Found:
    """Keep the best of all, of equals the first; what the best of the others has bounds them."""
    rest = -np.inf
    if len(scores) > plan.wanted:
        order = np.argsort(-scores, kind="stable")
        best, rest = order[: plan.wanted], float(scores[order[plan.wanted]])
        ordinals, scores = ordinals[best], scores[best]
    return Found(ordinals, scores, rest, lambda positions: terms(ordinals[positions]))
