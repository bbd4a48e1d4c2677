"""Int8 brute force: a full scan of 8-bit codes, then an exact re-ranking of the first `rerank`.

All vectors are rotated at random first. Dot products stay the same, and no single coordinate is so large that the
8-bit codes would clip it, as happens with vectors of a PCA.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from workload import DIM, address, best, exact_rerank, kernels

from adapters import FULL_VECTOR, Adapter, folder_bytes

CHUNK = 500_000


class Engine(Adapter):
    """int8 brute force."""

    def knobs(self, work: Any, k: int) -> list[dict[str, Any]]:  # noqa: ARG002
        return [{"rerank": 0}, {"rerank": 20}, {"rerank": 100}]

    def build(self, work: Any, folder: Path) -> None:
        codes = np.lib.format.open_memmap(folder / "codes.npy", "w+", np.uint8, (work.tokens, DIM))
        for first in range(0, work.tokens, CHUNK):
            rows = work.vectors[first : first + CHUNK].astype(np.float32)
            turned = (rows @ rotation()).astype(np.float16)
            kernels().encode_i8(address(turned), ctypes.c_int64(len(turned)), address(codes[first : first + CHUNK]))
        codes.flush()

    def open(self, work: Any, folder: Path) -> None:
        self.work, self.rotation = work, rotation()
        self.codes = np.load(folder / "codes.npy", mmap_mode="r")

    def bytes_on_disk(self, work: Any, folder: Path, knob: dict[str, Any]) -> int:
        return folder_bytes(folder) + (work.tokens * FULL_VECTOR if knob["rerank"] else 0)

    def search(self, query: np.ndarray, k: int, rerank: int = 0) -> np.ndarray:
        scores = np.empty(self.work.documents, np.float32)
        turned = query @ self.rotation
        kernels().score_all_i8(
            address(self.codes), address(self.work.offsets), ctypes.c_int64(self.work.documents),
            address(turned), len(turned), address(scores),
        )  # fmt: skip
        found = best(scores, max(k, rerank))
        if rerank:
            found = np.concatenate([exact_rerank(self.work, query, found[:rerank]), found[rerank:]])
        return found[:k]


def rotation() -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(0).standard_normal((DIM, DIM)))[0].astype(np.float32)
