"""Qdrant Edge with a graph over the multivectors themselves, quantised to 8 bits: one stage.

Quantised, because a graph over float16 multivectors costs a tenth of a second and more for each document.
"""

from __future__ import annotations

from typing import Any

from adapters import qdrant, qdrant_int8


class Engine(qdrant.Engine):
    """Qdrant Edge, HNSW over MaxSim, int8."""

    two_stages = False
    quantization = qdrant_int8.Engine.quantization

    def knobs(self, work: Any, k: int) -> list[dict[str, Any]]:  # noqa: ARG002
        steps = (16, 32, 64, 128, 256) if k <= 10 else (128, 256, 512)
        return [{"hnsw_ef": ef, "oversampling": more} for ef in steps for more in (1.0, 2.0)]
