"""Exact brute force over the float16 vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from workload import exact_rerank

from adapters import FULL_VECTOR, Adapter


class Engine(Adapter):
    """fp16 brute force (exact)."""

    def build(self, work: Any, folder: Path) -> None:
        """Nothing to build: the vectors are the index."""

    def open(self, work: Any, folder: Path) -> None:  # noqa: ARG002
        self.work = work
        self.everything = np.arange(work.documents, dtype=np.int32)

    def bytes_on_disk(self, work: Any, folder: Path, knob: dict[str, Any]) -> int:  # noqa: ARG002
        return work.tokens * FULL_VECTOR

    def search(self, query: np.ndarray, k: int) -> np.ndarray:
        return exact_rerank(self.work, query, self.everything)[:k]
