"""Qdrant Edge with multivectors quantised to 8 bits, kept in memory; MaxSim over them, rescored in float16 or not."""

from __future__ import annotations

from typing import Any

import qdrant_edge as edge

from adapters import qdrant


class Engine(qdrant.Engine):
    """Qdrant Edge, two stages, int8."""

    quantization = edge.ScalarQuantizationConfig(type=edge.ScalarType.Int8, quantile=0.99, always_ram=True)

    def knobs(self, work: Any, k: int) -> list[dict[str, Any]]:
        plain = super().knobs(work, k)[:-1]
        return [{**knob, "oversampling": more} for knob in plain for more in (0.0, 2.0)] + [{"oversampling": 2.0}]
