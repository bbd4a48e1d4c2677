"""The index of this project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from workload import DIM

from adapters import Adapter
from weft.index.codec import TOKENS_PER_CENTROID
from weft.search import Index


class Engine(Adapter):
    """weft."""

    packages = ("weft",)

    def knobs(self, work: Any) -> list[dict[str, Any]]:  # noqa: ARG002
        ten = [
            (6, 48, 80),
            (6, 48, 120),
            (8, 64, 150),
            (8, 64, 200),
            (12, 96, 300),
            (16, 128, 400),
            (24, 128, 600),
            (32, 192, 800),
        ]
        hundred = [(16, 128, 400), (32, 192, 1200)]
        return [
            {"top": k, "n_probe": cells, "k_prime": centroids * TOKENS_PER_CENTROID, "refine": documents}
            for k, efforts in ((10, ten), (100, hundred))
            for cells, centroids, documents in efforts
        ] + [{"top": 10, "exact": True}]

    def build(self, work: Any, folder: Path) -> None:
        texts = ((str(d), np.array(work.vectors[work.offsets[d] : work.offsets[d + 1]])) for d in range(work.documents))
        with Index.create(folder / "index", dim=DIM) as index:
            index.build(texts)

    def open(self, work: Any, folder: Path) -> None:  # noqa: ARG002
        self.index = Index.open(folder / "index")

    def search(self, query: np.ndarray, k: int, top: int = 0, **knob: Any) -> np.ndarray:
        # The harness wants 100 documents; who looks for 10 asks for 10. No engine here explains its results.
        (ranking,) = self.index.search(query, k=top or k, hits=False, **knob)
        return np.array([int(result.id) for result in ranking], np.int64)
