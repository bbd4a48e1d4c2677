"""LEMUR with an index over its document weights (FAISS IVF, 8-bit codes), as its authors advise for large collections.

Uses the weights that the `lemur` adapter has built for the same workload.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from workload import exact_rerank

from adapters import FULL_VECTOR, folder_bytes
from adapters.lemur import FEATURES
from adapters.lemur import Engine as Lemur


class Engine(Lemur):
    """LEMUR (from the paper), FAISS IVF-SQ8."""

    packages = ("torch", "faiss-cpu")
    source = "lemur"

    def knobs(self, work: Any, k: int) -> list[dict[str, Any]]:  # noqa: ARG002
        steps = (
            (2, 25),
            (4, 50),
            (8, 50),
            (8, 100),
            (16, 100),
            (16, 200),
            (32, 200),
            (32, 400),
            (64, 800),
            (128, 1600),
        )
        return [{"nprobe": p, "rerank": r} for p, r in steps]

    def build(self, work: Any, folder: Path) -> None:
        weights = np.load(folder.parent / self.source / "weights.npy")
        lists = int(2 ** np.round(np.log2(np.sqrt(work.documents))))
        index = faiss.index_factory(FEATURES, f"IVF{lists},SQ8", faiss.METRIC_INNER_PRODUCT)
        index.train(weights)
        index.add(weights)
        faiss.write_index(index, str(folder / "index.faiss"))

    def open(self, work: Any, folder: Path) -> None:
        super().open(work, folder.parent / self.source)
        del self.weights
        faiss.omp_set_num_threads(1)
        self.index = faiss.read_index(str(folder / "index.faiss"))

    def bytes_on_disk(self, work: Any, folder: Path, knob: dict[str, Any]) -> int:  # noqa: ARG002
        net = (folder.parent / self.source / "net.pt").stat().st_size
        return folder_bytes(folder) + net + work.tokens * FULL_VECTOR

    @torch.inference_mode()
    def search(self, query: np.ndarray, k: int, nprobe: int, rerank: int) -> np.ndarray:
        summed = self.net(torch.from_numpy(query)).sum(0, keepdim=True).numpy()
        self.index.nprobe = nprobe
        _, found = self.index.search(summed, max(k, rerank))
        found = found[0][found[0] >= 0]
        return np.concatenate([exact_rerank(self.work, query, found[:rerank]), found[rerank:]])[:k]
