"""The index of this project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from workload import DIM

from adapters import Adapter
from weft.search import Index
from weft.types import TokenVectors

BATCH = 2000  # documents added in one transaction


class Engine(Adapter):
    """weft."""

    packages = ("weft",)

    def knobs(self, work: Any) -> list[dict[str, Any]]:  # noqa: ARG002
        return [{}, {"exact": True}]

    def build(self, work: Any, folder: Path) -> None:
        with Index.create(folder / "index", dim=DIM) as index:
            for first in range(0, work.documents, BATCH):
                last = min(first + BATCH, work.documents)
                rows = slice(work.offsets[first], work.offsets[last])
                offsets = work.offsets[first : last + 1] - work.offsets[first]
                index.add([str(d) for d in range(first, last)], TokenVectors(np.array(work.vectors[rows]), offsets))
            index.compact()

    def open(self, work: Any, folder: Path) -> None:  # noqa: ARG002
        self.index = Index.open(folder / "index")

    def search(self, query: np.ndarray, k: int, **knob: Any) -> np.ndarray:
        (ranking,) = self.index.search(query, k=k, **knob)
        return np.array([int(result.id) for result in ranking], np.int64)
