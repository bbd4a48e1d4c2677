"""What all codecs share: the codebook, the documents to be coded, and the protocol of a codec.

A codec is a file beside this one and a line in `CODECS` (`codecs/__init__.py`). It writes the arrays of a coded
segment, and from them makes the engine that searches it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.storage.arrays import Arrays, Streamed
from weft.storage.codecs.clustering import Bytes, Floats, list_documents, nearest

Columns = dict[str, "NDArray[Any] | Streamed"]
WEIGHTS = ("mean_weights", "list_weights")
"""Arrays of segments whose saliences weigh scores."""


@dataclass(frozen=True, eq=False)
class Codebook:
    """Cells and centroids that tokens are listed under, and the scale of their codes."""

    matrix: Floats
    """(dim, size) the rotation"""
    scale: float
    """Units of the codes in a unit of the vectors"""
    cells: Bytes
    """(K, size)"""
    cell_starts: NDArray[np.int32]
    """(K + 1,) the centroids of each cell"""
    centroids: Bytes
    """(C, size)"""
    spread: Floats
    """(K,) root mean squared distance of a cell's tokens to it"""
    trained: int
    """Tokens it was trained for"""

    def assign(self, codes: Bytes) -> tuple[NDArray[np.int32], float]:
        """Return the centroid of each token, by its byte codes (t, size), and the sum of squared distances to cells."""
        cell_of, distance = nearest(codes, self.cells)
        assigned = np.empty(len(codes), dtype=np.int32)
        order = np.argsort(cell_of, kind="stable")
        bounds = np.flatnonzero(np.diff(cell_of[order], prepend=-1, append=len(self.cells)))
        for begin, end in pairwise(bounds):
            members = order[begin:end]
            first, last = self.cell_starts[cell_of[members[0]] : cell_of[members[0]] + 2]
            inside = nearest(codes[members], self.centroids[first:last])[0] if last > first + 1 else 0
            assigned[members] = first + inside
        return assigned, float(distance.sum(dtype=np.float64)) / self.scale**2

    def cells_of(self, assigned: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the cells of centroids."""
        return np.searchsorted(self.cell_starts, assigned, side="right") - 1

    @property
    def usual_spread(self) -> float:
        """About the mean squared distance of the tokens it was trained on to their cells."""
        sizes = np.diff(self.cell_starts)
        return float((np.square(self.spread.astype(np.float64)) * sizes).sum() / max(int(sizes.sum()), 1))


def to_floats(codes: Bytes, scale: float) -> Floats:
    """Return the vectors behind byte codes."""
    floats: Floats = (codes.astype(np.float32) - 128) / np.float32(scale)
    return floats


class Incoming(Protocol):
    """Documents on their way into a coded segment, read as often as needed, a few thousand tokens at a time."""

    offsets: NDArray[np.int64]
    codes: Bytes
    """(tokens, size) byte codes, on disk"""

    def rotated(self, matrix: Floats) -> Iterator[Floats]:
        """Yield the tokens' vectors in the space of the codes, (t, size)."""
        ...

    def coded(self) -> Iterator[Bytes]:
        """Yield the tokens' byte codes, (t, size): those that had codes of the codebook's scale keep them."""
        ...


class Codec(ABC):
    """How tokens of a coded segment are stored: writing, and what the native engine needs to read them."""

    bits: int
    required: ClassVar[tuple[str, ...]]
    """Arrays that any query may read anywhere; verified before the engine is made."""
    optional: ClassVar[tuple[str, ...]] = ("spread", *WEIGHTS)
    """Those that older segments lack, or whose tokens all weigh the same."""
    per_token: ClassVar[tuple[str, ...]] = ("codes",)
    """Arrays with a row for each token that are read document by document, `codes` first."""
    tokens_per_centroid: int

    @abstractmethod
    def matches(self, stored: Arrays) -> bool:
        """Tell whether a segment was written by this codec."""

    @abstractmethod
    def sound(self, stored: Arrays, tokens: int, size: int) -> bool:
        """Tell whether the arrays fit together, as far as the engine does not check that itself."""

    @abstractmethod
    def engine(self, stored: Arrays, offsets: NDArray[np.int64]) -> _native.Engine:
        """Return the engine over a segment's arrays."""

    @staticmethod
    def beside(stored: Arrays, names: Iterable[str]) -> dict[str, Any]:
        """Return those of these arrays that the segment has, and the saliences, by the engine's names."""
        more: dict[str, Any] = {name: stored[name] for name in names if name in stored}
        if "salience" in stored:
            more["saliences"] = stored["salience"]
        if "list_weights" in stored:
            more["weight_unit"] = float(stored.info["weight_unit"])
        return more

    @abstractmethod
    def byte_rows(self, stored: Arrays, rows: NDArray[np.int64]) -> Bytes:
        """Return the byte codes of some tokens, (t, size)."""

    @abstractmethod
    def codebook(self, stored: Arrays, trained: int) -> Codebook | None:
        """Return the codebook of a segment, trained for that many tokens; None where it cannot code others."""

    @abstractmethod
    def listed(self, stored: Arrays) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the lists of a segment as pairs: centroids, and the documents that have a token there."""

    def list_weights(self, stored: Arrays) -> Floats | None:
        """Return the weights of the entries of `listed`; None where they are not stored."""
        if "list_weights" not in stored:
            return None
        weights: Floats = stored["list_weights"] * np.float32(stored.info["weight_unit"])
        return weights

    @abstractmethod
    def write(self, path: Path, columns: Columns, info: dict[str, Any], made: Made) -> None:
        """Write a segment: `columns` and `info`, which all segments have, and what this codec adds."""


class Weights(NamedTuple):
    """What documents are found by where saliences weigh scores."""

    listed: Bytes
    """Beside each entry of the lists: the mean salience of the document's tokens at that centroid"""
    unit: float
    """What a byte of `listed` counts"""
    means: Floats
    """(N,) of each document's saliences"""

    def arrays(self) -> Columns:
        """Return what is stored."""
        return {"list_weights": self.listed, "mean_weights": self.means.astype("<f4")}


@dataclass(frozen=True, eq=False)
class Made:
    """What a coded segment is written from: the documents, a codebook, and where every token went."""

    incoming: Incoming
    codebook: Codebook
    assigned: NDArray[np.int32]
    """(T,) each token's centroid; -1 for those that are copied"""
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]]
    """Centroids and documents, of the tokens that are copied"""
    donor: Arrays | None = None
    """The segment that the codebook was trained for, where it is another one"""
    copied: NDArray[np.int64] | None = None
    """(T,) which of its tokens each token is copied from; -1 for newcomers"""
    salience: Floats | None = None
    """(T,) where saliences weigh scores"""
    pair_weights: Floats | None = None
    """What documents weigh at the centroids of `pairs`"""
    finds: Bytes | None = None
    """(T,) 1 where documents are found by a token; None: by all"""

    @property
    def tokens(self) -> int:
        """T."""
        return int(self.incoming.offsets[-1])

    @property
    def shape(self) -> tuple[int, int]:
        """Of the byte codes, (T, size)."""
        return self.tokens, self.codebook.matrix.shape[1]

    def lists(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the documents with a token at each centroid: starts (C + 1,), and documents, ascending in a list."""
        return list_documents(*self._listings(), len(self.incoming.offsets) - 1, len(self.codebook.centroids))

    def _listings(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Centroids and documents: of all tokens that are new, and the pairs that are copied."""
        offsets = self.incoming.offsets
        documents = np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))
        new = self._listed
        centroid = np.concatenate([self.assigned[new].astype(np.int64), self.pairs[0]])
        return centroid, np.concatenate([documents[new], self.pairs[1]])

    @property
    def _listed(self) -> NDArray[np.bool_]:
        """(T,) the new tokens that documents are found by."""
        new: NDArray[np.bool_] = self.assigned >= 0
        return new if self.finds is None else new & (self.finds != 0)

    def weights(self) -> Weights | None:
        """Return what documents weigh, where saliences weigh scores."""
        if self.salience is None:
            return None
        offsets = self.incoming.offsets
        own = self.salience[self._listed]
        of_pairs = np.zeros(len(self.pairs[0]), np.float32) if self.pair_weights is None else self.pair_weights
        centroid, documents = self._listings()
        _, place = np.unique(centroid * (len(offsets) - 1) + documents, return_inverse=True)
        listed = np.bincount(place, np.concatenate([own, of_pairs])) / np.maximum(np.bincount(place), 1)
        unit = np.float32(max(float(listed.max(initial=0)), float(np.finfo(np.float32).tiny)) / 255)
        codes = np.clip(np.rint(listed / unit), 0, 255).astype(np.uint8)
        sums = np.concatenate([[0], np.cumsum(self.salience, dtype=np.float64)])
        means = np.diff(sums[offsets]) / np.maximum(np.diff(offsets), 1)
        return Weights(codes, float(unit), means.astype(np.float32))

    def parts(self, chunks: Iterator[NDArray[Any]]) -> Iterator[tuple[slice, NDArray[Any], NDArray[np.int64] | None]]:
        """Yield for each chunk of the tokens its rows, the chunk, and which of the donor's rows it is copied from.

        A chunk is of one segment, so it is copied as a whole or not at all (None).
        """
        start = 0
        for chunk in chunks:
            rows = slice(start, start + len(chunk))
            start = rows.stop
            source = None if self.copied is None else self.copied[rows]
            yield rows, chunk, None if source is None or not len(source) or source[0] < 0 else source
