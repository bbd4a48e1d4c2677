"""A segment: the token vectors of some documents, in one immutable file.

Small segments are flat: the vectors as they came. Large ones are coded (see `codec.py`): bytes, and centroids to
find documents by. Documents are known here by their ordinal, 0 … N−1. Which user's id lives at an ordinal, and which
ordinals no longer count, only the catalogue knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.errors import CorruptIndexError
from weft.storage import codec, residual, sketch
from weft.storage.arrays import Arrays, Streamed, release, scratch_array, write_arrays
from weft.storage.sample import Sample, take_sample
from weft.types import TokenVectors

CODED_TOKENS = 50_000
"""From this many tokens on a codebook is worth its training; below, scoring everything is fast enough."""
ROTATION_SEED = 1
"""The same for every segment, so that coding a vector that was decoded gives its old code."""
PROBED = ("cell_codes", "cell_starts", "cell_blocks", "centroid_codes", "list_starts", "lists", "rotation")
"""Arrays of a coded segment that any query may read anywhere."""
RESIDUAL = ("cell_codes", "cell_starts", "centroid_rows", "levels", "list_starts", "lists", "rotation")
"""The same with 4 or 2 bits."""
OPTIONAL = ("spread", "codebooks", "sketches")
"""What the first segments lack, and those of 4 or 2 bits but for `spread`: they are searched without. Sketches are read
a document at a time."""


def write_segment(
    path: Path, vectors: TokenVectors, bits: int = 8, *, flat: bool = False, scale: float | None = None
) -> None:
    """Write the vectors of some documents as a segment, safe on disk when this returns.

    Large segments are coded with 8, 4 or 2 bits per coordinate, unless `flat`. `scale` is one that many of the vectors
    were coded with before: where it still fits it is kept, so that their codes come out as they were.
    """
    assert bits in (8, 4, 2), bits
    arrays: dict[str, NDArray[Any] | Streamed] = {"offsets": vectors.offsets.astype("<i8")}
    if vectors.token_ids is not None:
        arrays["token_ids"] = vectors.token_ids.astype("<i4")
    if vectors.salience is not None:
        arrays["salience"] = vectors.salience.astype("<f4")
    info: dict[str, Any] = {"dim": vectors.dim, "dtype": vectors.values.dtype.str}
    if flat or vectors.n_tokens < CODED_TOKENS:
        write_arrays(path, {**arrays, "values": vectors.values.astype(vectors.values.dtype.newbyteorder("<"))}, info)
        return
    # The rotated vectors are read over and over: on disk, so that memory does not grow with the segment; as float16,
    # and so that the longest has a norm of 1, for float16 has no room for large numbers.
    matrix = codec.rotation(vectors.dim, ROTATION_SEED)
    length = codec.longest(vectors.values) or 1.0
    shape = (vectors.n_tokens, matrix.shape[1])
    with scratch_array(path.parent, np.float16, shape) as rotated:
        turned = matrix / np.float32(length)
        for start, part in zip(range(0, len(rotated), codec.CHUNK), codec.chunks(vectors.values), strict=True):
            rotated[start : start + len(part)] = part @ turned
            release(rotated)
        best = codec.choose_scale(rotated)
        known = 0.0 if scale is None else scale * length
        scale = known if 0.7 * best <= known <= best else best
        clusters = codec.cluster(rotated, tokens_per_centroid=64 if bits == 2 else codec.TOKENS_PER_CENTROID)
        starts, lists = codec.list_documents(clusters.assigned, vectors.offsets, len(clusters.centroids))
        cells, centroids = codec.encode(clusters.cells, scale), codec.encode(clusters.centroids, scale)
        coded: dict[str, NDArray[Any] | Streamed] = {
            "cell_codes": cells,
            "cell_starts": clusters.cell_starts.astype("<i4"),
            "rotation": matrix.astype("<f4"),
            "spread": (clusters.spread * np.float32(length)).astype("<f4"),
        }
        info["scale"] = scale / length
        if bits == 8:
            blocks, cell_blocks = codec.block_layout(centroids, clusters.cell_starts)
            coded |= {"cell_blocks": cell_blocks.astype("<i4"), "centroid_codes": blocks}
            coded |= {"list_starts": starts.astype("<i8"), "lists": lists.astype("<i4")}
            if len(cells) <= 1 << 16:
                coded |= sketch.arrays(rotated, clusters, cells, scale)
            codes = (codec.encode(part @ turned, scale) for part in codec.chunks(vectors.values))
            coded["codes"] = Streamed(np.dtype("u1"), shape, codes)
            write_arrays(path, {**arrays, **coded}, info)
            return
        starts, steps = codec.listed_steps(starts, lists)
        coded |= {"centroid_rows": centroids, "list_starts": starts.astype("<i8"), "lists": steps.astype("<u2")}
        width = residual.packed_width(shape[1], bits)
        with scratch_array(path.parent, np.uint8, (shape[0], width)) as packed:
            levels, labels, norm = residual.code(rotated, clusters.assigned, centroids, scale, bits, packed)
            info["norm"] = max(norm, residual.longest(centroids), residual.longest(cells))
            parts = _in_passing(packed)
            coded |= {"levels": levels, "token_centroids": labels, "codes": Streamed(packed.dtype, packed.shape, parts)}
            write_arrays(path, {**arrays, **coded}, info)


def _in_passing(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    for start in range(0, len(array), codec.CHUNK):
        yield array[start : start + codec.CHUNK]
        release(array)


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
            self.bits = self._read_bits()
            self._check()
        except BaseException as error:
            self._arrays.close()
            if isinstance(error, KeyError | TypeError | ValueError):
                raise CorruptIndexError(f"{path}: damaged: it is not a segment ({error})") from None
            raise

    def _read_bits(self) -> int:
        """Bits per coordinate of the codes: 8, 4 or 2; 0 in a flat segment."""
        if not self.coded:
            return 0
        return 8 if "levels" not in self._arrays else 4 if self._arrays["levels"].shape[1:] == (16,) else 2

    @property
    def _width(self) -> int:
        """Numbers in a row of codes or values."""
        if self.bits in (4, 2):
            return residual.packed_width(codec.padded_dim(self.dim), self.bits)
        return codec.padded_dim(self.dim) if self.coded else self.dim

    def _check(self) -> None:
        # Native code will trust these numbers: nothing may point outside the arrays.
        offsets, values = self.offsets, self._arrays["codes" if self.coded else "values"]
        sound = (
            offsets.ndim == 1
            and len(offsets) >= 1
            and offsets[0] == 0
            and bool((np.diff(offsets) >= 0).all())
            and values.ndim == 2
            and values.shape == (offsets[-1], self._width)
            and self._dtype in (np.float16, np.float32)
            and (self.coded or values.dtype == self._dtype)
            and all(self._arrays[name].shape == (len(values),) for name in self._per_token())
            and (not self.coded or self._sound_codes(len(values)))
        )
        if not sound:
            raise CorruptIndexError(f"{self.path}: damaged: its arrays do not fit together")

    def _sound_codes(self, tokens: int) -> bool:
        # The rest is checked where it is used, by native code: here only that it is there.
        stored, size = self._arrays, codec.padded_dim(self.dim)
        for name in ("scale",) if self.bits == 8 else ("scale", "norm"):
            if not (np.isfinite(stored.info[name]) and stored.info[name] > 0):
                return False
        for name in PROBED if self.bits == 8 else RESIDUAL:
            _ = stored[name]
        return stored["rotation"].shape == (self.dim, size) and (
            self.bits == 8
            or (
                stored["token_centroids"].shape == (tokens, 3)
                and stored["levels"].shape in ((residual.TABLES, 16), (residual.TABLES, 4))
                and stored["centroid_rows"].shape[1:] == (size,)
                and (len(stored["centroid_rows"]) > 0 or tokens == 0)
            )
        )

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
    def scale(self) -> float | None:
        """The scale of the codes, if there are any."""
        return float(self._arrays.info["scale"]) if self.coded else None

    @property
    def salient(self) -> bool:
        """True if tokens carry saliences."""
        return "salience" in self._arrays

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def with_tokens(self, allowed: NDArray[np.bool_] | None) -> NDArray[np.int64]:
        """Return the allowed documents that have tokens at all: the others have no score to rank by."""
        filled = np.diff(self.offsets) > 0
        return np.flatnonzero(filled if allowed is None else filled & allowed)

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
        if self.bits != 8:
            codes = self._expand(codes, ordinals)
        decoded = (codes.astype(np.float32) - 128) / np.float32(self._arrays.info["scale"])
        values = (decoded @ self._arrays["rotation"].T).astype(self._dtype)
        return TokenVectors.trusted(values, chosen.offsets, chosen.token_ids, chosen.salience)

    def _expand(self, codes: NDArray[np.uint8], ordinals: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Byte rows of the residual codes of some documents."""
        for name in ("levels", "centroid_rows"):
            self._arrays.verify(name)
        starts, stops = self.offsets[ordinals], self.offsets[ordinals + 1]
        self._arrays.verify_rows("token_centroids", starts, stops)
        labels = self._arrays["token_centroids"][_row_numbers(starts, stops)]
        return residual.decode(codes, labels, self._arrays["centroid_rows"], self._arrays["levels"])

    def _select(self, ordinals: NDArray[np.int64], main: str) -> TokenVectors:
        starts, stops = self.offsets[ordinals], self.offsets[ordinals + 1]
        offsets = np.concatenate([[0], np.cumsum(stops - starts)]).astype(np.int64)
        rows = _row_numbers(starts, stops)
        taken = {}
        for name in (main, *self._per_token()):
            self._arrays.verify_rows(name, starts, stops)
            taken[name] = self._arrays[name][rows]
        return TokenVectors.trusted(taken[main], offsets, taken.get("token_ids"), taken.get("salience"))

    # -- codes ---------------------------------------------------------------------------------------

    @cached_property
    def _engine(self) -> _native.Engine:
        for name in PROBED if self.bits == 8 else RESIDUAL:
            self._arrays.verify(name)
        for name in ("spread", "codebooks"):
            if name in self._arrays:
                self._arrays.verify(name)
        try:
            return self._make_engine()
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CorruptIndexError(f"{self.path}: damaged: its codes do not fit together ({error})") from None

    def _make_engine(self) -> _native.Engine:
        stored, scale = self._arrays, float(self._arrays.info["scale"])
        more: dict[str, Any] = {name: stored[name] for name in OPTIONAL if name in stored}
        if self.bits == 8:
            probed: Any = [stored[name] for name in PROBED[:-1]]
            return _native.Engine(self.offsets, stored["codes"], scale, *probed, **more)
        # Centroids are stored once, in rows; probing wants them in blocks.
        rows = stored["centroid_rows"]
        blocks, cell_blocks = codec.block_layout(rows, stored["cell_starts"])
        return _native.Engine(
            self.offsets,
            stored["codes"],
            scale,
            stored["cell_codes"],
            stored["cell_starts"],
            cell_blocks,
            blocks,
            stored["list_starts"],
            stored["lists"],
            norm=float(stored.info["norm"]),
            centroid_rows=rows,
            levels=stored["levels"],
            token_centroids=stored["token_centroids"],
            **more,
        )

    @cached_property
    def _checked(self) -> dict[str, NDArray[np.bool_]]:
        """For codes and for sketches, (N,): documents whose checksums were verified, so that it is asked only once."""
        return {name: np.zeros(len(self), dtype=bool) for name in ("codes", "sketches")}

    def _verify_documents(self, name: str, listed: NDArray[np.int32]) -> None:
        checked = self._checked[name]
        if checked[listed].all():
            return
        starts, stops = self.offsets[listed], self.offsets[listed + 1]
        self._arrays.verify_rows(name, starts, stops)
        if name == "codes" and self.bits != 8:
            self._arrays.verify_rows("token_centroids", starts, stops)
        checked[listed] = True

    @cached_property
    def _rotation(self) -> NDArray[np.float32]:
        self._arrays.verify("rotation")
        return self._arrays["rotation"]

    def rotate(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Bring query vectors (n, dim) into the space of the codes."""
        return np.ascontiguousarray(query @ self._rotation, dtype=np.float32)

    @property
    def sketched(self) -> bool:
        """True if tokens have sketches."""
        return "sketches" in self._arrays

    def candidates(
        self,
        rotated: NDArray[np.float32],
        allowed: NDArray[np.bool_] | None,
        cells: int,
        centroids: int,
        count: int,
        keep: int | None = None,
    ) -> NDArray[np.int32]:
        """Return the most promising documents, best first; with `keep`, as many, by sketch: native/engine.hpp."""
        flags = None if allowed is None else allowed.view(np.uint8)
        if keep is None or keep >= count or not self.sketched:
            return self._engine.candidates(rotated, flags, cells, centroids, count)
        checked = self._checked["sketches"].view(np.uint8)
        while True:
            found, ready = self._engine.sketched(rotated, flags, cells, centroids, count, keep, checked)
            if ready:
                return found
            self._verify_documents("sketches", found)

    def rerank(
        self, rotated: NDArray[np.float32], listed: NDArray[np.int32], keep: int, patience: int = 0
    ) -> tuple[NDArray[np.int32], NDArray[np.float32], float]:
        """Return the best `keep` of the listed documents by integer sum-of-max, their scores, and an error bound."""
        self._verify_documents("codes", listed)
        return self._engine.rerank(rotated, listed, keep, patience)

    def best(
        self,
        rotated: NDArray[np.float32],
        listed: NDArray[np.int32],
        keep: int,
        missing: NDArray[np.float32] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the best `keep` of the listed documents by integer sum-of-max, ranked by `score`, and that.

        With `missing`, (n,), a query token counts so much at the least: XTR's imputation.
        """
        self._verify_documents("codes", listed)
        documents, scores, _ = self._engine.best(rotated, listed, keep, 0, missing)
        return documents, scores

    def score(self, rotated: NDArray[np.float32], listed: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return sum-of-max of the listed documents with the query as it is, saliences aside."""
        self._verify_documents("codes", listed)
        return self._engine.score(rotated, listed)

    def decoded(self, listed: NDArray[np.int32]) -> TokenVectors:
        """Return the listed documents in the space of the codes, with their saliences."""
        starts, stops = self.offsets[listed], self.offsets[listed + 1]
        offsets = np.concatenate([[0], np.cumsum(stops - starts)]).astype(np.int64)
        self._verify_documents("codes", listed)
        values = np.empty((offsets[-1], codec.padded_dim(self.dim)), dtype=np.float32)
        self._engine.decode(listed, values)
        if not self.salient:
            return TokenVectors.trusted(values, offsets)
        self._arrays.verify_rows("salience", starts, stops)
        return TokenVectors.trusted(values, offsets, None, self._arrays["salience"][_row_numbers(starts, stops)])

    @cached_property
    def sample(self) -> Sample:
        """Some of its tokens in the space of the codes."""
        return take_sample(self)

    def release(self) -> None:
        """Give back the memory of what was read so far."""
        self._arrays.release()

    def verify(self) -> None:
        """Check every byte."""
        self._arrays.verify()

    def close(self) -> None:
        """Unmap the file."""
        for name in ("_engine", "_rotation"):
            self.__dict__.pop(name, None)
        self._arrays.close()


def _row_numbers(starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows starts[0]:stops[0], starts[1]:stops[1], … as one array."""
    lengths = stops - starts
    rows: NDArray[np.int64] = np.arange(int(lengths.sum())) + np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
    return rows
