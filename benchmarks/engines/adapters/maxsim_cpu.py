"""PyPI `maxsim-cpu`: exact fp32 brute force, documents of equal length together (its fastest form)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from workload import DIM, best

from adapters import Adapter


class Engine(Adapter):
    """maxsim-cpu brute force (exact)."""

    packages = ("maxsim-cpu",)

    def build(self, work: Any, folder: Path) -> None:
        """Nothing to build: the vectors are the index."""

    def open(self, work: Any, folder: Path) -> None:  # noqa: ARG002
        self.scores = importlib.import_module("maxsim_cpu").maxsim_scores
        self.documents = work.documents
        self.blocks = []
        for length in np.unique(work.lengths):
            which = np.flatnonzero(work.lengths == length)
            self.blocks.append((which, np.stack([work.document(d) for d in which]).astype(np.float32)))

    def bytes_on_disk(self, work: Any, folder: Path, knob: dict[str, Any]) -> int:  # noqa: ARG002
        return work.tokens * DIM * 4

    def search(self, query: np.ndarray, k: int) -> np.ndarray:
        scores = np.empty(self.documents, np.float32)
        for which, documents in self.blocks:
            scores[which] = self.scores(query, documents)
        return best(scores, k)
