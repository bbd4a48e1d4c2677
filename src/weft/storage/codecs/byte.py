"""Eight bits a coordinate: u = 128 + round(x·scale), and a sketch of every token to choose documents by."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft import _native
from weft.storage.arrays import Arrays, Streamed, write_arrays
from weft.storage.codecs import clustering, sketch
from weft.storage.codecs.base import WEIGHTS, Codebook, Codec, Columns, Made
from weft.storage.codecs.clustering import Bytes


class ByteCodec(Codec):
    """Byte codes: the most exact codec, and the one that others decode to."""

    bits = 8
    required: ClassVar[tuple[str, ...]] = (
        "cell_codes", "cell_starts", "cell_blocks", "centroid_codes", "list_starts", "lists", "rotation",
    )  # fmt: skip
    optional: ClassVar[tuple[str, ...]] = ("spread", "codebooks", *WEIGHTS)
    tokens_per_centroid = clustering.TOKENS_PER_CENTROID

    def matches(self, stored: Arrays) -> bool:
        return "codes" in stored and "levels" not in stored

    def sound(self, stored: Arrays, tokens: int, size: int) -> bool:
        return stored["codes"].shape == (tokens, size)

    def engine(self, stored: Arrays, offsets: NDArray[np.int64]) -> _native.Engine:
        more = self.beside(stored, (*self.optional, "sketches"))
        probed: Any = [stored[name] for name in self.required[:-1]]
        return _native.Engine(offsets, stored["codes"], float(stored.info["scale"]), *probed, **more)

    def byte_rows(self, stored: Arrays, rows: NDArray[np.int64]) -> Bytes:
        return stored["codes"][rows]

    def codebook(self, stored: Arrays, trained: int) -> Codebook | None:
        if "spread" not in stored:
            return None
        matrix, starts = stored["rotation"], stored["cell_starts"]
        return Codebook(
            matrix,
            float(stored.info["scale"]),
            stored["cell_codes"],
            starts,
            clustering.unblock(stored["centroid_codes"], starts, stored["cell_blocks"], matrix.shape[1]),
            stored["spread"],
            trained,
        )

    def listed(self, stored: Arrays) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        counts = np.diff(stored["list_starts"])
        return np.repeat(np.arange(len(counts)), counts), stored["lists"].astype(np.int64)

    def write(self, path: Path, columns: Columns, info: dict[str, Any], made: Made) -> None:
        book = made.codebook
        starts, lists = made.lists()
        blocks, cell_blocks = clustering.block_layout(book.centroids, book.cell_starts)
        columns = columns | {
            "cell_codes": book.cells,
            "cell_starts": book.cell_starts.astype("<i4"),
            "rotation": book.matrix.astype("<f4"),
            "spread": book.spread.astype("<f4"),
            "cell_blocks": cell_blocks.astype("<i4"),
            "centroid_codes": blocks,
            "list_starts": starts.astype("<i8"),
            "lists": lists.astype("<i4"),
        }
        weights = made.weights()
        if weights is not None:
            columns |= weights.arrays()
            info = info | {"weight_unit": weights.unit}
        if len(book.cells) <= sketch.MOST_CELLS and (made.donor is None or "sketches" in made.donor):
            columns |= sketch.columns(made)
        codes = made.incoming.coded()
        columns["codes"] = Streamed(np.dtype("u1"), made.shape, codes)
        write_arrays(path, columns, {**info, "scale": book.scale, "trained": book.trained})
