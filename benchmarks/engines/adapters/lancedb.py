"""LanceDB (PyPI `lancedb`): multivectors in a table with its standard IVF_PQ index, as in the stream benchmark.

Everything is written first and indexed once. `nprobes` and `refine_factor` are swept; `flat` is the exact search
without the index.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lancedb
import numpy as np

from adapters import Adapter, batches, of_stream

stream = of_stream("lancedb")


class Engine(Adapter):
    """LanceDB."""

    packages = stream.Engine.packages

    def knobs(self, work: Any, k: int) -> list[dict[str, Any]]:  # noqa: ARG002
        ten = ((5, 5), (20, 5), (20, 10), (20, 20), (50, 20), (50, 50), (100, 50), (100, 100))
        hundred = ((20, 1), (20, 2), (50, 2), (50, 5), (100, 5), (100, 10))  # a refine_factor is a multiple of k
        swept = [{"nprobes": probes, "refine_factor": refine} for probes, refine in (ten if k <= 10 else hundred)]
        return [{}, *swept, {"flat": True}]

    def build(self, work: Any, folder: Path) -> None:
        engine = stream.Engine()
        engine.create(folder)
        for texts in batches(work):
            engine.write(texts, (), ())
        engine.finish()

    def open(self, work: Any, folder: Path) -> None:  # noqa: ARG002
        self.engine = stream.Engine()
        self.engine.table = lancedb.connect(folder / "db").open_table("documents")

    def search(self, query: np.ndarray, k: int, **knob: Any) -> np.ndarray:
        return np.array([int(name) for name in self.engine.search(query, k, **knob)], np.int64)
