"""A coded segment: codes of all tokens, and cells and centroids to find documents by.

A search probes for candidates, re-ranks them in integers, and scores the best with the unrounded query, all in native
code where the alignment is the sum of max; other alignments score the best few from decoded vectors.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.alignment import SumOfMax
from weft.errors import CorruptIndexError
from weft.kernels import knows
from weft.storage.arrays import Arrays
from weft.storage.codecs import codec_of
from weft.storage.codecs.base import Codebook, Codec
from weft.storage.codecs.clustering import Floats, encode, padded_dim
from weft.storage.segments.base import Segment
from weft.storage.segments.effort import FINE, Reach, Size, reach
from weft.storage.segments.plan import Allowed, Bar, Effort, Found, Plan, Sample, Terms, Weighing
from weft.storage.segments.terms import MaxTerms, aligned_terms, score_documents
from weft.storage.validation import check_codes
from weft.types import TokenVectors

UNROUNDED = 30
"""Where saliences weigh scores, this many documents for each one wanted, and for ten at least, are scored with the
unrounded query in the end. With 10, recall@10 under ``top-k:1``, whose Z is the sum of the weights, fell from .985 to
.968 (2 bits)."""
SHORT = 0.02
"""A document's estimated score may fall short of the bar set by other segments by this share: centroids differ from
segment to segment, and with them the estimates."""
LAID_OUT = 4096
"""Samples of at least this many tokens are laid out by cells when they are asked for again."""
NEAR = 1 / 16
NEARER = 24
"""In a sample laid out by cells each query token visits this share of the cells, or this many times the share of tokens
that it retrieves. With half of that, m_i came out low and the overlap with eq. 4 fell by .01."""
PATIENCE = 8
LITTLE = 1 / 8
"""In a segment with less than this share of the documents, scoring stops after this many documents in a row, in the
order of their sketches, that fall short of what other segments found. With short vectors, whose sketches tell less, all
are scored."""
AT_ONCE = 2048
"""Documents decoded together."""
UNTHREADED = 1 << 18
"""OpenBLAS computes products of up to this size without waking its threads. On a busy machine waiting for them took 25
ms, ten times as long as the rest of a search."""


class CodedSegment(Segment):
    """Codes of one codec."""

    def __init__(self, stored: Arrays, codec: Codec, first: int = 0) -> None:
        self._codec = codec
        super().__init__(stored, first)

    @classmethod
    def open(cls, path: Path) -> CodedSegment:
        """Open a file that is known to be a coded segment."""
        stored = Arrays(path)
        codec = codec_of(stored)
        assert codec is not None, path
        return cls(stored, codec)

    def _sound(self) -> bool:
        stored, size = self._arrays, padded_dim(self.dim)
        scale = stored.info["scale"]
        if not (np.isfinite(scale) and scale > 0):
            return False
        for name in self._codec.required:  # the rest is checked where it is used, by native code: here that it is there
            _ = stored[name]
        return (
            super()._sound()
            and stored["rotation"].shape == (self.dim, size)
            and self._codec.sound(stored, self.n_tokens, size)
        )

    @property
    def coded(self) -> bool:
        return True

    @property
    def codec(self) -> Codec:
        """How tokens are stored."""
        return self._codec

    @property
    def scale(self) -> float:
        """Units of the codes in a unit of the vectors."""
        return float(self._arrays.info["scale"])

    @property
    def arrays(self) -> Arrays:
        """The file, for a merge that copies from it."""
        return self._arrays

    def donor(self, codec: Codec) -> CodedSegment | None:
        return self if codec is self._codec else None

    @property
    def trained(self) -> int:
        """Tokens that its codebook was trained for."""
        return int(self._arrays.info.get("trained", self.n_tokens))

    def codebook(self) -> Codebook | None:
        """Return the codebook that other documents can be coded with, if it is stored."""
        _ = self._engine  # which checks that the lists name documents
        return self._codec.codebook(self._arrays, self.trained)

    # -- vectors -------------------------------------------------------------------------------------

    def select(self, ordinals: NDArray[np.int64]) -> TokenVectors:
        decoded = self.decoded(ordinals.astype(np.int32))
        return self._beside((decoded.values @ self.rotation.T).astype(self.dtype), ordinals)

    def decoded(self, listed: NDArray[np.int32]) -> TokenVectors:
        """Return the listed documents in the space of the codes, with their saliences."""
        lengths = self.offsets[listed + 1] - self.offsets[listed]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self._verify_documents("codes", listed)
        values = np.empty((offsets[-1], padded_dim(self.dim)), dtype=np.float32)
        self._engine.decode(listed, values)
        salience = self.column("salience", listed.astype(np.int64)) if self.salient else None
        return TokenVectors.trusted(values, offsets, None, salience)

    def rotated(self, ordinals: NDArray[np.int64], matrix: Floats) -> Floats:
        values: Floats = self.decoded(ordinals.astype(np.int32)).values
        if not np.array_equal(matrix, self.rotation):
            values = np.asarray(values @ self.rotation.T @ matrix, dtype=np.float32)
        return values

    def byte_codes(self, ordinals: NDArray[np.int64], matrix: Floats, scale: float) -> NDArray[np.uint8]:
        if scale != self.scale or not np.array_equal(matrix, self.rotation):
            return encode(self.rotated(ordinals, matrix), scale)
        self._verify_documents("codes", ordinals.astype(np.int32))
        return self._codec.byte_rows(self._arrays, self.token_rows(ordinals))

    @cached_property
    def rotation(self) -> Floats:
        """The matrix that vectors were brought into the space of the codes by."""
        return self._probed["rotation"]

    @cached_property
    def _rotation_key(self) -> int:
        return zlib.crc32(self.rotation.tobytes())

    def rotate(self, query: NDArray[np.float32]) -> Floats:
        """Bring query vectors (n, dim) into the space of the codes."""
        matrix = self.rotation
        rows = max(UNTHREADED // matrix.size, 1)
        out = np.empty((len(query), matrix.shape[1]), dtype=np.float32)
        for start in range(0, len(query), rows):
            out[start : start + rows] = query[start : start + rows] @ matrix
        return out

    def _turned(self, query: TokenVectors) -> TokenVectors:
        return TokenVectors.trusted(self.rotate(query.values), query.offsets, query.token_ids, query.salience)

    # -- the engine ----------------------------------------------------------------------------------

    @cached_property
    def _probed(self) -> Arrays:
        """The arrays that any query may read anywhere, verified once."""
        for name in (*self._codec.required, *self._codec.optional):
            if name in self._arrays:
                self._arrays.verify(name)
        check_codes(self._arrays)
        return self._arrays

    @cached_property
    def _engine(self) -> _native.Engine:
        stored = self._probed
        try:
            return self._codec.engine(stored, self.offsets)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CorruptIndexError(f"{self.path}: damaged: its codes do not fit together ({error})") from None

    def warm(self) -> None:
        _ = self._engine, self._rotation_key, self._checked

    def verify(self) -> None:
        super().verify()
        for checked in self._checked.values():
            checked[:] = True

    @cached_property
    def _checked(self) -> dict[str, NDArray[np.bool_]]:
        """For codes, sketches and saliences, (N,): documents whose checksums were verified, to ask only once."""
        return {name: np.full(len(self), self._arrays.trusted) for name in ("codes", "sketches", "salience")}

    def _verify_documents(self, name: str, listed: NDArray[np.int32]) -> None:
        checked = self._checked[name]
        if checked[listed].all():
            return
        starts, stops = self.offsets[listed], self.offsets[listed + 1]
        for part in self._codec.per_token if name == "codes" else (name,):
            self._arrays.verify_rows(part, starts, stops)
        checked[listed] = True

    @cached_property
    def size(self) -> Size:
        """What the default effort depends on."""
        centroids = max(len(self._arrays["list_starts"]) - 1, 1)
        return Size(self.n_tokens, len(self), self.dim, self.n_tokens / centroids, self.sketched, self.weighed)

    @cached_property
    def sketched(self) -> bool:
        """True if tokens have sketches."""
        return "sketches" in self._arrays

    @cached_property
    def weighed(self) -> bool:
        """True if the lists say what documents weigh at their centroids, where saliences weigh scores."""
        return "list_weights" in self._arrays

    # -- searching -----------------------------------------------------------------------------------

    def search(self, query: TokenVectors, plan: Plan, allowed: Allowed, bar: Bar) -> Found:
        if not allowed.number:
            return Found.nothing()
        rotated = bar.rotated.get(self._rotation_key)
        if rotated is None:
            rotated = bar.rotated[self._rotation_key] = self.rotate(query.values)
        if plan.effort is None:
            return self._search_exactly(query, rotated, plan, allowed)
        if plan.missing is not None or self._summed(query, plan):
            return self._search_sums(rotated, plan, self.probe(rotated, plan, plan.effort, allowed, bar), bar)
        weighing = Weighing(query.salience, plan.alignment.divides_by == "sum")
        finding = rotated if query.salience is None else rotated * query.salience[:, None]
        listed = self.probe(finding, plan, plan.effort, allowed, bar, weighing if self.weighed else None)
        best = self._weigh(finding, listed, UNROUNDED * max(plan.k, 10), weighing)
        return self._score(query, plan, best, np.inf)

    def _weigh(self, finding: Floats, listed: NDArray[np.int32], keep: int, weighing: Weighing) -> NDArray[np.int32]:
        """The best `keep` of the listed documents by integers, under the sum of max with all saliences."""
        if not self.salient:
            return self.rerank(finding, listed, keep)[0]
        self._verify_documents("codes", listed)
        self._verify_documents("salience", listed)
        return self._engine.rerank_weighed(finding, listed, keep, weighing.query, weighing.divides)[0]

    def _summed(self, query: TokenVectors, plan: Plan) -> bool:
        """Whether scores are sums of maxima, which the engine computes."""
        return isinstance(plan.alignment, SumOfMax) and query.salience is None and not self.salient

    def _search_sums(self, rotated: Floats, plan: Plan, listed: NDArray[np.int32], bar: Bar) -> Found:
        """Score by the engine; its scores are the sums of the pairs that it returns."""
        self._verify_documents("codes", listed)
        z = plan.z(len(rotated))
        least = bar.score(plan.wanted) * z
        little = self.sketched and self.dim >= FINE and len(self) < LITTLE * plan.documents
        patience = PATIENCE if little and least > -np.inf else 0
        best, scores, _, tokens, similarity = self._engine.best(
            rotated, listed, plan.wanted, patience, plan.missing, least
        )
        if plan.missing is not None:  # a document of which no token reaches its m_i is none of XTR's candidates
            found = (tokens >= 0).any(axis=1)
            best, scores, tokens, similarity = best[found], scores[found], tokens[found], similarity[found]
        scores = scores / np.float32(z)
        bar.saw(scores, plan.wanted)

        def terms(positions: NDArray[np.int64]) -> Sequence[Terms]:
            return MaxTerms(tokens[positions], similarity[positions], z)

        return Found(best.astype(np.int64), scores, np.inf, terms)

    def _score(self, query: TokenVectors, plan: Plan, listed: NDArray[np.int32], rest: float) -> Found:
        """Score documents with the unrounded query under any alignment, a few thousand at a time."""
        parts = [np.zeros(0, np.float32)]
        for start in range(0, len(listed), AT_ONCE):
            some = listed[start : start + AT_ONCE].astype(np.int64)
            pair = self._compared(query, plan, some)
            parts.append(score_documents(*pair, plan.alignment, plan.threads, self.full_lengths(some)))
        ordinals = listed.astype(np.int64)
        return Found(ordinals, np.concatenate(parts), rest, partial(self._terms, query, plan, ordinals))

    def _compared(
        self, query: TokenVectors, plan: Plan, ordinals: NDArray[np.int64]
    ) -> tuple[TokenVectors, TokenVectors]:
        # Inner products are the same in the space of the codes; what needs more than those (token ids) reads vectors.
        return self.comparable(query, ordinals) if knows(plan.alignment) else (query, self.select(ordinals))

    def _terms(
        self, query: TokenVectors, plan: Plan, ordinals: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> list[Terms]:
        some = ordinals[positions]
        return aligned_terms(*self._compared(query, plan, some), plan.alignment, self.full_lengths(some))

    def _search_exactly(self, query: TokenVectors, rotated: Floats, plan: Plan, allowed: Allowed) -> Found:
        """Find the certified best k under the stored codes, and what the best document left out can reach at most."""
        listed = self.with_tokens(allowed.mask).astype(np.int32)
        rest = -np.inf
        if self._summed(query, plan) and len(listed) > plan.wanted:
            # Integer scores are off by at most `error`: only documents within twice that of the k-th can be in the top.
            order, scores, error = self.rerank(rotated, listed, len(listed))
            near = int(np.searchsorted(-scores, -(scores[plan.k - 1] - 2 * error), side="right"))
            listed = order[:near]
            if near < len(scores):
                rest = float(scores[near] + error) / plan.z(len(rotated))
        return self._score(query, plan, listed, rest)

    def rerank(
        self, rotated: Floats, listed: NDArray[np.int32], keep: int, patience: int = 0
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], float]:
        """Return the best `keep` of the listed documents by integer sum-of-max, their scores, and an error bound."""
        self._verify_documents("codes", listed)
        return self._engine.rerank(rotated, listed, keep, patience)

    def probe(
        self,
        rotated: Floats,
        plan: Plan,
        effort: Effort,
        allowed: Allowed,
        bar: Bar,
        weighing: Weighing | None = None,
    ) -> NDArray[np.int32]:
        """Return the documents worth scoring, best first; raise the bar for other segments."""
        later = bar.imputed is not None
        share = allowed.number / plan.documents if plan.documents > allowed.number else 1.0
        far = reach(self.size, effort, plan.k, allowed.number, share, later=later, weighing=weighing is not None)
        if weighing is not None:
            return self._candidates_weighed(rotated, allowed.mask, far, bar, weighing)
        return self.candidates(
            rotated, allowed.mask, far.cells, far.centroids, far.documents, far.kept, bar, plan.missing
        )

    def _candidates_weighed(
        self,
        finding: Floats,
        allowed: NDArray[np.bool_] | None,
        far: Reach,
        bar: Bar,
        weighing: Weighing,
    ) -> NDArray[np.int32]:
        """The most promising documents by what they weigh, without a bar: native/weighing.hpp."""
        flags = None if allowed is None else allowed.view(np.uint8)
        found, _, _, _, imputed = self._engine.probe(
            finding, flags, far.cells, far.centroids, far.documents, 0, None, imputed=bar.imputed,
            weighs=True, weights=weighing.query, divides=weighing.divides,
        )  # fmt: skip
        if bar.imputed is None and len(imputed):
            bar.imputed = imputed
        return found

    def candidates(
        self,
        rotated: Floats,
        allowed: NDArray[np.bool_] | None,
        cells: int,
        centroids: int,
        count: int,
        keep: int | None = None,
        bar: Bar | None = None,
        floors: Floats | None = None,
    ) -> NDArray[np.int32]:
        """Return the most promising documents, best first; with `keep`, as many, by sketch: native/probing.hpp."""
        flags = None if allowed is None else allowed.view(np.uint8)
        bar = Bar() if bar is None else bar
        checked = self._checked["sketches"].view(np.uint8)
        most = keep if keep is not None and self.sketched and (keep < count or bar.imputed is not None) else 0
        least = bar.promise - SHORT * abs(bar.promise)
        while True:
            found, ready, promise, sketch, imputed = self._engine.probe(
                rotated, flags, cells, centroids, count, most, checked, least, bar.sketch, bar.imputed, floors
            )
            if ready:
                bar.promise, bar.sketch = max(bar.promise, promise), max(bar.sketch, sketch)
                if bar.imputed is None and len(imputed):
                    bar.imputed = imputed
                return found
            self._verify_documents("sketches", found)

    # -- tokens --------------------------------------------------------------------------------------

    def retrieve_tokens(
        self, query: TokenVectors, plan: Plan, allowed: Allowed, into: _native.TokenRetrieval, base: int
    ) -> None:
        if not allowed.number:
            return
        self._verify_documents("codes", self.with_tokens(allowed.mask).astype(np.int32))
        flags = None if allowed.mask is None else allowed.mask.view(np.uint8)
        self._engine.scan_tokens(into, self.rotate(query.values), flags, base, plan.effort is None)

    def sample_tokens(self, query: TokenVectors, into: _native.TokenRetrieval, sample: Sample, share: float) -> None:
        rotated = self.rotate(query.values)
        if sample.laid_out is not None:
            cells = max(round(len(self._arrays["cell_codes"]) * max(NEAR, NEARER * share)), 1)
            if self._engine.retrieve_sampled(into, rotated, sample.laid_out, cells):
                return
        if not sample.asked:
            self._verify_documents("codes", sample.documents.astype(np.int32))
        elif sample.laid_out is None and len(sample.rows) >= LAID_OUT:
            self._verify_documents("sketches", sample.documents.astype(np.int32))
            sample.laid_out = self._engine.token_sample(sample.rows)
        sample.asked += 1
        self._engine.sample_tokens(into, rotated, sample.rows)

    def comparable(self, query: TokenVectors, ordinals: NDArray[np.int64]) -> tuple[TokenVectors, TokenVectors]:
        return self._turned(query), self.decoded(ordinals.astype(np.int32))
