"""FAISS IVF-PQ fast-scan over single tokens, hits gathered into documents, the first `rerank` re-ranked exactly."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from workload import DIM, address, best, exact_rerank, kernels

from adapters import FULL_VECTOR, Adapter, folder_bytes

CHUNK = 200_000
HNSW_FROM = 16384  # from so many lists on, the nearest list is found through a graph


class Engine(Adapter):
    """FAISS IVF-PQ fast-scan + exact re-rank."""

    packages = ("faiss-cpu",)

    def knobs(self, work: Any, k: int) -> list[dict[str, Any]]:  # noqa: ARG002
        steps = (
            (1, 64, 50), (1, 128, 100), (2, 256, 150), (1, 256, 200), (2, 256, 200), (3, 384, 300), (2, 256, 400),
            (4, 512, 400), (4, 512, 800), (8, 512, 800), (8, 1024, 1500), (16, 1024, 1500), (16, 2048, 3000),
        )  # fmt: skip
        return [{"nprobe": p, "hits": h, "rerank": r} for p, h, r in steps]

    def build(self, work: Any, folder: Path) -> None:
        lists = int(2 ** np.round(np.log2(4 * np.sqrt(work.tokens))))
        coarse = f"IVF{lists}_HNSW32" if lists >= HNSW_FROM else f"IVF{lists}"
        index = faiss.index_factory(DIM, f"{coarse},PQ64x4fs", faiss.METRIC_INNER_PRODUCT)
        faiss.extract_index_ivf(index).cp.max_points_per_centroid = 64
        rng = np.random.default_rng(0)
        sample = np.sort(rng.choice(work.tokens, min(work.tokens, 64 * lists), replace=False))
        index.train(work.vectors[sample].astype(np.float32))
        for first in range(0, work.tokens, CHUNK):
            index.add(work.vectors[first : first + CHUNK].astype(np.float32))
        faiss.write_index(index, str(folder / "index.faiss"))

    def open(self, work: Any, folder: Path) -> None:
        faiss.omp_set_num_threads(1)
        self.work = work
        self.index = faiss.read_index(str(folder / "index.faiss"))
        self.owner = work.owner
        self.sums = np.zeros(work.documents, np.float32)
        self.seen = np.full(work.documents, -1, np.int32)
        self.touched = np.empty(work.documents, np.int32)

    def bytes_on_disk(self, work: Any, folder: Path, knob: dict[str, Any]) -> int:  # noqa: ARG002
        return folder_bytes(folder) + work.tokens * FULL_VECTOR + work.owner.nbytes

    def search(self, query: np.ndarray, k: int, nprobe: int, hits: int, rerank: int) -> np.ndarray:
        faiss.extract_index_ivf(self.index).nprobe = nprobe
        similarities, tokens = self.index.search(query, hits)
        count = kernels().gather_hits(
            address(tokens), address(similarities), ctypes.c_int64(len(query)), ctypes.c_int64(hits),
            address(self.owner), address(self.sums), address(self.seen), address(self.touched),
        )  # fmt: skip
        touched = self.touched[:count]
        candidates = touched[best(self.sums[touched], max(k, rerank))]
        self.sums[touched], self.seen[touched] = 0, -1
        return np.concatenate([exact_rerank(self.work, query, candidates[:rerank]), candidates[rerank:]])[:k]
