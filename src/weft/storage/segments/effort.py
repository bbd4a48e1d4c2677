"""How far a search looks into a coded segment: cells, centroids, documents. The default effort."""

from __future__ import annotations

from typing import NamedTuple

from weft.storage.segments.plan import Effort

CELLS = 16
K_PRIME = 1800
"""About this many document tokens are looked at for each query token: the lists of their centroids are read."""
REFINE = 120
"""At most this many documents are scored in full."""
TOKENS = 1_000_000
"""`K_PRIME` and `REFINE` are for a segment of this many tokens. Below, `K_PRIME` falls with the root of their
number."""
GROWTH = 0.25
"""Above, both grow with this power of it, since more documents lie equally near to each other."""
SKETCHED = 8
"""Where tokens have sketches, this many times `refine` documents are found, and the best by sketch scored in full."""
UNSKETCHED = 3
"""Without sketches, this many times as many must be scored in full for the same recall."""
WEIGHED = 10
"""Where saliences weigh scores, this many times as many are scored in full: a centroid does not tell which of a
document's tokens is the nearest, and neighbouring tokens may weigh very differently. With 3 instead of 10, recall@10
fell to .82."""
WIDER = 2
"""Where saliences weigh scores, this many times as many cells and tokens are looked at."""
FINE = 64
"""With fewer dimensions than this a sketch has fewer bits and tells less, so proportionally more documents are scored
in full: in 16 dimensions recall@10 rose from .89 to .98."""
LEAST_CELLS = 10
LEAST_K_PRIME = 512
LEAST_CANDIDATES = 15
"""The least that is probed, and the least number of documents looked at for each one wanted, even in a small segment
among many: it may hold all that a query is about."""
WIDEST = 8
"""Under a filter that keeps few documents, at most this many times as many centroids are probed."""
FEW = 3200
"""Filters that keep at most this many documents are not probed for: all that they keep are looked at."""


class Size(NamedTuple):
    """What the default effort depends on."""

    tokens: int
    documents: int
    dim: int
    tokens_per_centroid: float
    sketched: bool
    """Tokens have sketches."""
    weighed: bool
    """Lists say what documents weigh at their centroids."""

    @property
    def k_prime(self) -> float:
        """Tokens to look at for each query token: of few tokens, fewer."""
        size = self.tokens / TOKENS
        return float(K_PRIME * size ** (0.5 if size < 1 else GROWTH))

    @property
    def refine(self) -> int:
        """Documents to score in full: more without sketches to choose them by, with short ones, and with weights."""
        more = float(max(self.tokens / TOKENS, 1) ** GROWTH) * max(FINE / max(self.dim, 16), 1)
        return round(REFINE * more * (WEIGHED if self.weighed else 1 if self.sketched else UNSKETCHED))

    @property
    def centroids(self) -> float:
        """Centroids whose lists are read for each query token."""
        return self.k_prime / self.tokens_per_centroid


class Reach(NamedTuple):
    """How far one search looks."""

    cells: int
    """Probed for each query token"""
    centroids: int
    """Whose lists are read, for each query token"""
    documents: int
    """Found by their centroids"""
    kept: int
    """Of those, by their sketches"""


def reach(size: Size, effort: Effort, k: int, allowed: int, share: float, *, later: bool, weighing: bool) -> Reach:
    """Return how far a search for k documents looks.

    Parameters
    ----------
    size : Size
        Of the segment.
    effort : Effort
        What the caller chose.
    k : int
        Documents wanted.
    allowed : int
        Documents that a filter lets through.
    share : float
        Their share of the documents that are searched in all segments.
    later : bool
        Whether other segments were searched before, and have set a bar.
    weighing : bool
        Whether documents are found by what saliences weigh.
    """
    let_through = max(allowed, 1) / max(size.documents, 1)
    whole = size if share == 1 else size._replace(tokens=round(size.tokens / share))  # as if all segments were one
    keep = max(effort.refine or max(whole.refine, 4 * k), k)
    wider = WIDER if weighing else 1
    cells, k_prime = CELLS * wider, size.k_prime * wider
    # A filter thins out the lists: probe deeper for what it keeps, and look at all of a small remainder.
    widened = min(1 / let_through, WIDEST)
    count = SKETCHED * keep if size.sketched and not weighing else keep
    if let_through < 1 / WIDEST:
        count = max(count, min(allowed, FEW))
        keep = max(keep, REFINE if size.sketched else count)
    elif share < 1:
        # One of several segments: the best centroids and documents of all lie in each by its share. The first looks
        # further, because what it reaches is the bar for the others.
        cells = max(round(cells * share**0.5), LEAST_CELLS)
        k_prime = max(round(k_prime * (share if later else share**0.5)), LEAST_K_PRIME)
        count = max(round(count * share**0.6), LEAST_CANDIDATES * k)
        keep = max(round(keep * share**0.4), 4 * k)
        count = max(count, keep)
    centroids = (effort.k_prime or k_prime) / size.tokens_per_centroid
    return Reach(round((effort.n_probe or cells) * min(widened, 2)), max(round(centroids * widened), 1), count, keep)
