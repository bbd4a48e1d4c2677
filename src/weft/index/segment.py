"""A segment: the token vectors of some documents, in one immutable file.

Documents are known here by their ordinal, 0 … N−1. Which user's id lives at an ordinal, and which ordinals no
longer count, only the catalogue knows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import CorruptIndexError
from weft.index.arrays import Arrays, write_arrays
from weft.types import TokenVectors


def write_segment(path: Path, vectors: TokenVectors) -> None:
    """Write the vectors of some documents as a segment, safe on disk when this returns."""
    arrays: dict[str, NDArray[Any]] = {
        "offsets": vectors.offsets.astype("<i8"),
        "values": vectors.values.astype("<f2") if vectors.values.dtype == np.float16 else vectors.values.astype("<f4"),
    }
    if vectors.token_ids is not None:
        arrays["token_ids"] = vectors.token_ids.astype("<i4")
    if vectors.salience is not None:
        arrays["salience"] = vectors.salience.astype("<f4")
    write_arrays(path, arrays, {"kind": "flat", "dim": vectors.dim})


class Segment:
    """An open segment. Its arrays stay on disk until read."""

    def __init__(self, path: Path) -> None:
        self._arrays = Arrays(path)
        try:
            self._arrays.verify("offsets")
            self.offsets: NDArray[np.int64] = self._arrays["offsets"]
            self._check()
        except BaseException as error:
            self._arrays.close()
            if isinstance(error, KeyError):
                raise CorruptIndexError(f"{path}: damaged: there is no array {error}") from None
            raise

    def _check(self) -> None:
        # Native code will trust these numbers: nothing may point outside the arrays.
        offsets, values = self.offsets, self._arrays["values"]
        sound = (
            offsets.ndim == 1
            and len(offsets) >= 1
            and offsets[0] == 0
            and bool((np.diff(offsets) >= 0).all())
            and values.ndim == 2
            and offsets[-1] == len(values)
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
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self._arrays["values"].shape[1])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def vectors(self, start: int = 0, stop: int | None = None) -> TokenVectors:
        """Return the vectors of documents start:stop, checked, without a copy."""
        stop = len(self) if stop is None else stop
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
        starts, stops = self.offsets[ordinals], self.offsets[ordinals + 1]
        lengths = stops - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        taken = {}
        for name in ("values", *self._per_token()):
            self._arrays.verify_rows(name, starts, stops)
            taken[name] = self._arrays[name][rows]
        return TokenVectors.trusted(taken["values"], offsets, taken.get("token_ids"), taken.get("salience"))

    def verify(self) -> None:
        """Check every byte."""
        self._arrays.verify()

    def close(self) -> None:
        """Unmap the file."""
        self._arrays.close()
