"""What a search asks of a segment, and what a segment answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.alignment import Alignment
from weft.types import Hits, TokenRetrieval

SPARE = 4
"""This many more documents than asked for are ranked with the unrounded query."""


class Allowed(NamedTuple):
    """Which documents of a segment may be found at all."""

    mask: NDArray[np.bool_] | None
    """(N,); None: all"""
    number: int

    @classmethod
    def of(cls, mask: NDArray[np.bool_]) -> Allowed:
        """Count once what every query asks for."""
        number = int(np.count_nonzero(mask))
        return cls(None if number == len(mask) else mask, number)

    def within(self, mask: NDArray[np.bool_]) -> Allowed:
        """Return those that another mask lets through, too."""
        return Allowed.of(mask if self.mask is None else self.mask & mask)


@dataclass
class Sample:
    """Some tokens of a segment."""

    rows: NDArray[np.int64]
    """Which tokens."""
    documents: NDArray[np.int64]
    """Whose they are, each once, ascending."""
    asked: int = 0
    """How many queries were compared with them one by one."""
    laid_out: _native.TokenSample | None = None
    """The same by cells, which costs more to make than one comparison and less to compare with."""


@dataclass(frozen=True)
class Effort:
    """How hard to look. None leaves a choice to the segment."""

    n_probe: int | None = None
    """Cells probed for each query token."""
    k_prime: int | None = None
    """Document tokens looked at for each query token, about (XTR's k′): their centroids' lists are read."""
    refine: int | None = None
    """Documents scored in full."""


@dataclass
class Bar:
    """The score that one query's candidates must reach to matter, given what was found in other segments.

    Segments are searched from the largest on. What the last candidate of one reached, by centroids and by sketches, is
    what a document of the next must reach: so all segments together score about as many documents as one would.
    """

    promise: float = -np.inf
    sketch: float = -np.inf
    imputed: NDArray[np.float32] | None = None
    """(n,) what each query token counts where a document has no token at a centroid probed"""
    rotated: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    """The query in the space of codes, by the rotation's checksum: most segments share it"""
    best: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    """The best scores of coded segments so far, ascending"""

    def saw(self, scores: NDArray[np.float32], wanted: int) -> None:
        """Take note of what a segment found."""
        self.best = np.sort(np.concatenate([self.best, scores]))[-wanted:]

    def score(self, wanted: int) -> float:
        """Return the score that a document must reach to be among so many."""
        return float(self.best[0]) if len(self.best) == wanted else -np.inf


@dataclass(frozen=True, eq=False)
class Plan:
    """One search over all segments, resolved: the same for each of them."""

    k: int
    alignment: Alignment
    effort: Effort | None
    """None: look at every document."""
    threads: int = 1
    documents: int = 0
    """How many there are in all segments: a segment's effort is by its share of them."""
    missing: NDArray[np.float32] | None = None
    """(n,) what a query token counts where it finds less (XTR eq. 4), if scores come from floors."""
    retrieval: TokenRetrieval | None = None
    """How tokens were retrieved from a larger collection that this one is a part of (XTR)."""

    def with_floors(self, missing: NDArray[np.float32]) -> Plan:
        """Return the plan of a sum of max in which a query token counts at least m_i, `missing` (n,)."""
        return replace(self, missing=missing)

    def z(self, n: int) -> float:
        """Z of sums over the n query tokens, one pair each: the alignment divides by n, or not at all."""
        return 1.0 if self.alignment.divides_by == "one" else float(max(n, 1))

    @property
    def wanted(self) -> int:
        """How many documents a segment should return."""
        return self.k + max(SPARE, self.k // 8)


class Weighing(NamedTuple):
    """How saliences weigh while documents are looked for."""

    query: NDArray[np.float32] | None
    """(n,) u_q; None: all 1"""
    divides: bool
    """By Z = ΣA"""


class Terms(NamedTuple):
    """What a score is the sum of: the pairs of one document, and Z."""

    pairs: Hits
    z: float


TermsOf = Callable[[NDArray[np.int64]], Sequence[Terms]]


def _no_terms(positions: NDArray[np.int64]) -> list[Terms]:
    assert len(positions) == 0
    return []


@dataclass(frozen=True, eq=False)
class Found:
    """Documents of a segment with their scores, in no order."""

    ordinal: NDArray[np.int64]
    score: NDArray[np.float32]
    rest: float = -np.inf
    """No other allowed document of the segment scores higher; +inf where nothing is known of them."""
    terms: TermsOf = field(default=_no_terms)
    """Positions in `ordinal` → what their scores are the sums of."""

    @classmethod
    def nothing(cls) -> Found:
        """Return the answer of a segment that found nothing."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.float32))
