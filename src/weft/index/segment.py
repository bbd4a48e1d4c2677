"""A segment: the token vectors of some documents, in one immutable file.

Small segments are flat: the vectors as they came. Large ones are coded (see `codec.py`): bytes, and centroids to
find documents by. Documents are known here by their ordinal, 0 … N−1. Which user's id lives at an ordinal, and which
ordinals no longer count, only the catalogue knows.
"""

from __future__ import annotations

import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.errors import CorruptIndexError
from weft.index import codec
from weft.index.arrays import Arrays, Streamed, write_arrays
from weft.types import TokenVectors

CODED_TOKENS = 50_000
"""From this many tokens on a codebook is worth its training; below, scoring everything is fast enough."""
ROTATION_SEED = 1
"""The same for every segment, so that coding a vector that was decoded gives its old code."""
PROBED = ("cell_codes", "cell_starts", "cell_blocks", "centroid_codes", "list_starts", "lists", "rotation")
"""Arrays of a coded segment that any query may read anywhere."""


def write_segment(path: Path, vectors: TokenVectors) -> None:
    """Write the vectors of some documents as a segment, safe on disk when this returns."""
    arrays: dict[str, NDArray[Any] | Streamed] = {"offsets": vectors.offsets.astype("<i8")}
    if vectors.token_ids is not None:
        arrays["token_ids"] = vectors.token_ids.astype("<i4")
    if vectors.salience is not None:
        arrays["salience"] = vectors.salience.astype("<f4")
    info: dict[str, Any] = {"dim": vectors.dim, "dtype": vectors.values.dtype.str}
    if vectors.n_tokens < CODED_TOKENS:
        write_arrays(path, {**arrays, "values": vectors.values.astype(vectors.values.dtype.newbyteorder("<"))}, info)
        return
    # The rotated vectors are read over and over: on disk, so that memory does not grow with the segment.
    matrix = codec.rotation(vectors.dim, ROTATION_SEED)
    with tempfile.TemporaryFile(dir=path.parent) as file:
        shape = (vectors.n_tokens, matrix.shape[1])
        rotated: NDArray[Any] = np.memmap(file, dtype=np.float16, mode="w+", shape=shape)
        for start, part in zip(range(0, len(rotated), codec.CHUNK), codec.chunks(vectors.values), strict=True):
            rotated[start : start + len(part)] = part @ matrix
        scale = codec.choose_scale(rotated)
        clusters = codec.cluster(rotated)
        starts, lists = codec.list_documents(clusters.assigned, vectors.offsets, len(clusters.centroids))
        blocks, cell_blocks = codec.block_layout(codec.encode(clusters.centroids, scale), clusters.cell_starts)
        codes = (codec.encode(part @ matrix, scale) for part in codec.chunks(vectors.values))
        coded: dict[str, NDArray[Any] | Streamed] = {
            "codes": Streamed(np.dtype("u1"), shape, codes),
            "cell_codes": codec.encode(clusters.cells, scale),
            "cell_starts": clusters.cell_starts.astype("<i4"),
            "cell_blocks": cell_blocks.astype("<i4"),
            "centroid_codes": blocks,
            "list_starts": starts.astype("<i8"),
            "lists": lists.astype("<i4"),
            "rotation": matrix.astype("<f4"),
        }
        write_arrays(path, {**arrays, **coded}, {**info, "scale": scale})


class Segment:
    """An open segment. Its arrays stay on disk until read."""

    def __init__(self, path: Path) -> None:
        self._arrays = Arrays(path)
        try:
            self._arrays.verify("offsets")
            self.offsets: NDArray[np.int64] = self._arrays["offsets"]
            self.coded = "codes" in self._arrays
            self.dim = int(self._arrays.info["dim"])
            self._dtype = np.dtype(self._arrays.info["dtype"])
            self._check()
        except BaseException as error:
            self._arrays.close()
            if isinstance(error, KeyError | TypeError | ValueError):
                raise CorruptIndexError(f"{path}: damaged: it is not a segment ({error})") from None
            raise

    def _check(self) -> None:
        # Native code will trust these numbers: nothing may point outside the arrays.
        offsets, values = self.offsets, self._arrays["codes" if self.coded else "values"]
        sound = (
            offsets.ndim == 1
            and len(offsets) >= 1
            and offsets[0] == 0
            and bool((np.diff(offsets) >= 0).all())
            and values.ndim == 2
            and values.shape == (offsets[-1], codec.padded_dim(self.dim) if self.coded else self.dim)
            and self._dtype in (np.float16, np.float32)
            and (self.coded or values.dtype == self._dtype)
            and all(self._arrays[name].shape == (len(values),) for name in self._per_token())
        )
        if not sound:
            raise CorruptIndexError(f"{self.path}: damaged: its arrays do not fit together")

    def _per_token(self) -> list[str]:
        return [name for name in ("token_ids", "salience") if name in self._arrays]

    @property
    def path(self) -> Path:
        """The file."""
        return self._arrays.path

    @property
    def nbytes(self) -> int:
        """Size of the file."""
        return self._arrays.nbytes

    @property
    def salient(self) -> bool:
        """True if tokens carry saliences."""
        return "salience" in self._arrays

    def __len__(self) -> int:
        return len(self.offsets) - 1

    # -- vectors -------------------------------------------------------------------------------------

    def vectors(self, start: int = 0, stop: int | None = None) -> TokenVectors:
        """Return the vectors of documents start:stop, checked; those of a flat segment without a copy."""
        stop = len(self) if stop is None else stop
        if self.coded:
            return self.select(np.arange(start, stop))
        first, last = int(self.offsets[start]), int(self.offsets[stop])
        names = ["values", *self._per_token()]
        for name in names:
            self._arrays.verify(name, first, last)
        rows = {name: self._arrays[name][first:last] for name in names}
        return TokenVectors.trusted(
            rows["values"], self.offsets[start : stop + 1] - first, rows.get("token_ids"), rows.get("salience")
        )

    def select(self, ordinals: NDArray[np.int64]) -> TokenVectors:
        """Return the vectors of some documents, checked, copied together."""
        chosen = self._select(ordinals, "codes" if self.coded else "values")
        if not self.coded:
            return chosen
        self._arrays.verify("rotation")
        codes: Any = chosen.values
        decoded = (codes.astype(np.float32) - 128) / np.float32(self._arrays.info["scale"])
        values = (decoded @ self._arrays["rotation"].T).astype(self._dtype)
        return TokenVectors.trusted(values, chosen.offsets, chosen.token_ids, chosen.salience)

    def _select(self, ordinals: NDArray[np.int64], main: str) -> TokenVectors:
        starts, stops = self.offsets[ordinals], self.offsets[ordinals + 1]
        lengths = stops - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        taken = {}
        for name in (main, *self._per_token()):
            self._arrays.verify_rows(name, starts, stops)
            taken[name] = self._arrays[name][rows]
        return TokenVectors.trusted(taken[main], offsets, taken.get("token_ids"), taken.get("salience"))

    # -- codes ---------------------------------------------------------------------------------------

    @cached_property
    def _engine(self) -> _native.Engine:
        for name in PROBED:
            self._arrays.verify(name)
        try:
            return _native.Engine(
                self.offsets,
                self._arrays["codes"],
                float(self._arrays.info["scale"]),
                *(self._arrays[name] for name in PROBED[:-1]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptIndexError(f"{self.path}: damaged: its codes do not fit together ({error})") from None

    def rotate(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Bring query vectors (n, dim) into the space of the codes."""
        self._arrays.verify("rotation")
        return np.ascontiguousarray(query @ self._arrays["rotation"], dtype=np.float32)

    def candidates(
        self, rotated: NDArray[np.float32], allowed: NDArray[np.bool_] | None, cells: int, centroids: int, count: int
    ) -> NDArray[np.int32]:
        """Return the most promising documents, best first: see native/engine.hpp."""
        flags = None if allowed is None else allowed.view(np.uint8)
        return self._engine.candidates(rotated, flags, cells, centroids, count)

    def rerank(
        self, rotated: NDArray[np.float32], listed: NDArray[np.int32], keep: int, patience: int = 0
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], float]:
        """Return the best `keep` of the listed documents by integer sum-of-max, their scores, and an error bound."""
        self._arrays.verify_rows("codes", self.offsets[listed], self.offsets[listed + 1])
        return self._engine.rerank(rotated, listed, keep, patience)

    def decoded(self, listed: NDArray[np.int32]) -> TokenVectors:
        """Return the listed documents in the space of the codes, with their saliences."""
        lengths = self.offsets[listed + 1] - self.offsets[listed]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self._arrays.verify_rows("codes", self.offsets[listed], self.offsets[listed + 1])
        values = np.empty((offsets[-1], codec.padded_dim(self.dim)), dtype=np.float32)
        self._engine.decode(listed, values)
        if not self.salient:
            return TokenVectors.trusted(values, offsets)
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[listed] - offsets[:-1], lengths)
        self._arrays.verify_rows("salience", self.offsets[listed], self.offsets[listed + 1])
        return TokenVectors.trusted(values, offsets, None, self._arrays["salience"][rows])

    def verify(self) -> None:
        """Check every byte."""
        self._arrays.verify()

    def close(self) -> None:
        """Unmap the file."""
        self.__dict__.pop("_engine", None)
        self._arrays.close()
