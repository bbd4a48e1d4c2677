"""Qdrant Edge (PyPI `qdrant-edge-py`): the mean of the tokens finds candidates, MaxSim over float16 ranks them.

Or MaxSim over everything (`exact`). Settings and calls are those of the stream benchmark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import qdrant_edge as edge

from adapters import Adapter, batches, of_stream

stream = of_stream("qdrant")


class Engine(Adapter):
    """Qdrant Edge, two stages."""

    packages = stream.Engine.packages
    two_stages = True
    quantization: Any = None

    def knobs(self, work: Any, k: int) -> list[dict[str, Any]]:  # noqa: ARG002
        some = (50, 100, 200, 400, 800, 1600, 3200) if k <= 10 else (200, 400, 800, 1600, 3200, 6400)
        return [*({"prefetch": n} for n in some), {"exact": True}]

    def engine(self) -> Any:
        made = stream.Engine()
        made.two_stages, made.quantization = self.two_stages, self.quantization
        return made

    def build(self, work: Any, folder: Path) -> None:
        made = self.engine()
        made.create(folder)
        for texts in batches(work):
            made.write(texts, (), ())
        made.finish()
        made.close()

    def open(self, work: Any, folder: Path) -> None:  # noqa: ARG002
        self.opened = self.engine()
        self.opened.shard = edge.EdgeShard.load(str(folder / "shard"))

    def search(self, query: np.ndarray, k: int, **knob: Any) -> np.ndarray:
        return np.array([int(name) for name in self.opened.search(query, k, **knob)], np.int64)
