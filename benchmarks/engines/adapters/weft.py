"""The index of this project."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from workload import DIM

from adapters import Adapter
from weft.search import Index
from weft.storage.codecs.clustering import TOKENS_PER_CENTROID

Effort = tuple[int, int, int]  # cells, centroids for each query token, documents scored in full


def forget(mapped: np.memmap) -> None:
    """Unmap what was read of the workload: it is not the memory of the index."""
    mapped._mmap.madvise(mmap.MADV_DONTNEED)


class Engine(Adapter):
    """weft."""

    packages = ("weft-search",)
    bits = 8
    ten: tuple[Effort, ...] = (
        (4, 32, 30),
        (6, 32, 30),
        (4, 32, 40),
        (6, 32, 40),
        (8, 64, 40),
        (8, 64, 60),
        (8, 64, 80),
        (10, 64, 140),
        (12, 32, 120),
        (12, 64, 100),
        (16, 64, 120),
        (16, 128, 160),
        (16, 128, 240),
        (24, 128, 300),
        (32, 192, 400),
    )
    hundred: tuple[Effort, ...] = ((12, 64, 250), (16, 128, 400), (24, 128, 600), (32, 192, 1000))
    untuned = ({"exact": True},)

    def knobs(self, work: Any, k: int) -> list[dict[str, Any]]:  # noqa: ARG002
        return [
            {"n_probe": cells, "k_prime": centroids * TOKENS_PER_CENTROID, "refine": documents}
            for cells, centroids, documents in (self.ten if k <= 10 else self.hundred)
        ]

    def texts(self, work: Any) -> Iterator[tuple[str, np.ndarray]]:
        for d in range(work.documents):
            if d % 1000 == 0:
                forget(work.vectors)
            yield str(d), np.array(work.document(d))

    def build(self, work: Any, folder: Path) -> None:
        with Index.create(folder / "index", dim=DIM, bits=self.bits) as index:
            index.build(self.texts(work))

    def open(self, work: Any, folder: Path) -> None:  # noqa: ARG002
        self.index = Index.open(folder / "index")

    def search(self, query: np.ndarray, k: int, **knob: Any) -> np.ndarray:
        (ranking,) = self.index.search(query, k=k, hits=False, **knob)  # no engine here explains its results
        return np.array([int(result.id) for result in ranking], np.int64)
