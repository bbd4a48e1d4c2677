"""Qdrant Edge with a graph over the multivectors themselves: what it does where nothing else is configured."""

from __future__ import annotations

from adapters import qdrant


class Engine(qdrant.Engine):
    """Qdrant Edge, HNSW over MaxSim."""

    knobs = (*({"hnsw_ef": ef} for ef in (16, 32, 64, 128, 256)), {"exact": True})
    default = {"hnsw_ef": 128}  # noqa: RUF012
    two_stages = False
