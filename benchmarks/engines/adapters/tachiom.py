"""Tachiom (PyPI `tachiom`): token-aware centroids, HNSW over them, PQ refinement."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from adapters import Adapter

NONE = 2**32 - 1  # fills up a short result


class Engine(Adapter):
    """Tachiom."""

    packages = ("tachiom",)
    options: ClassVar[dict[str, Any]] = {}

    def knobs(self, work: Any, k: int) -> list[dict[str, Any]]:  # noqa: ARG002
        steps = (
            (5, 50, 0.45), (10, 100, 0.45), (20, 200, 0.45), (20, 500, 0.45), (40, 500, 0.45),
            (40, 1000, 0.3), (80, 1000, 0.3), (160, 4000, 0.1),
        )  # fmt: skip
        return [
            {"k_centroids": c, "k_docs_to_score": n, "ef_search": max(30, c * 3 // 2), "alpha": a} for c, n, a in steps
        ]

    def build(self, work: Any, folder: Path) -> None:
        np.save(folder / "types.npy", work.types.astype(np.int64))
        np.save(folder / "lengths.npy", work.lengths.astype(np.int32))
        inputs = [str(path) for path in (work.folder / "tokens.npy", folder / "types.npy", folder / "lengths.npy")]
        index = _tachiom().Tachiom.build(*inputs, total_centroids=work.tokens // 48, **self.options)
        index.save(str(folder / "index.bin"))
        for path in inputs[1:]:
            Path(path).unlink()

    def open(self, work: Any, folder: Path) -> None:  # noqa: ARG002
        self.index = _tachiom().Tachiom.load(str(folder / "index.bin"))

    def search(self, query: np.ndarray, k: int, **knob: Any) -> np.ndarray:
        _, documents = self.index.search(query, k=k, **knob)
        return documents[documents != NONE].astype(np.int64)


def _tachiom() -> Any:
    return importlib.import_module("tachiom")
