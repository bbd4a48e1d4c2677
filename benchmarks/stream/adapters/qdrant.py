"""Qdrant Edge (PyPI `qdrant-edge-py`), Qdrant's engine in this process, in two stages as its documentation advises.

- MaxSim over multivectors in float16 without a graph (``m=0``: "disable HNSW for reranking"), behind a dense vector
  with one, the mean of the tokens: a prefetch finds candidates, MaxSim ranks them.
- `upsert_points`, `delete_points`; `optimize` after every hundred of them: Edge optimizes only when it is called,
  "such as after a batch of upserts", and does nothing where nothing is due.
- An update returns when it stands in the write-ahead log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import qdrant_edge as edge
from workload import DIM

from adapters import Adapter, Texts

OPTIMIZE_AFTER = 100  # operations
GRAPH = {
    "m": 16,
    "ef_construct": 100,
    "full_scan_threshold": 10_000,
    "max_indexing_threads": 1,
}  # the defaults, one thread
TOKENS, MEAN = "tokens", "mean"


class Engine(Adapter):
    """Qdrant Edge, two stages."""

    packages = ("qdrant-edge-py",)
    knobs = (*({"prefetch": n} for n in (50, 100, 200, 400, 800, 1600, 3200)), {"exact": True})
    default = {"prefetch": 200}  # noqa: RUF012
    two_stages = True
    quantization: Any = None
    """How the multivectors are quantised, if they are (bench-engines)."""

    def create(self, folder: Path) -> None:
        (folder / "shard").mkdir(parents=True)
        vectors = {
            TOKENS: edge.EdgeVectorParams(
                size=DIM,
                distance=edge.Distance.Cosine,
                multivector_config=edge.MultiVectorConfig(edge.MultiVectorComparator.MaxSim),
                datatype=edge.VectorStorageDatatype.Float16,
                hnsw_config=edge.HnswIndexConfig(**{**GRAPH, "m": 0} if self.two_stages else GRAPH),
                quantization_config=self.quantization,
            )
        }
        if self.two_stages:
            vectors[MEAN] = edge.EdgeVectorParams(size=DIM, distance=edge.Distance.Cosine)
        config = edge.EdgeConfig(vectors=vectors, hnsw_config=edge.HnswIndexConfig(**GRAPH), max_search_threads=1)
        self.shard = edge.EdgeShard.create(str(folder / "shard"), config)
        self.modifications = 0

    def write(self, adds: Texts, upserts: Texts, deletes: Sequence[str]) -> None:
        points = [self.point(id, vectors) for id, vectors in (*adds, *upserts)]  # noqa: A001
        if points:
            self.shard.update(edge.UpdateOperation.upsert_points(points))
        if deletes:
            self.shard.update(edge.UpdateOperation.delete_points(list(map(int, deletes))))
        self.modifications += len(points) + len(deletes)

    def point(self, id: str, vectors: np.ndarray) -> edge.Point:  # noqa: A002
        tokens = vectors.astype(np.float32)
        named = {TOKENS: tokens.tolist()}
        if self.two_stages:
            named[MEAN] = tokens.mean(axis=0).tolist()
        return edge.Point(id=int(id), vector=named)

    def maintain(self) -> bool:
        if self.modifications < OPTIMIZE_AFTER:
            return False
        self.modifications = 0
        self.shard.optimize()
        return True

    def finish(self) -> None:
        self.shard.optimize()
        self.shard.flush()

    def search(self, query: np.ndarray, k: int, **knob: Any) -> list[str]:
        asked: dict[str, Any] = {"query": edge.Query.Nearest(query.tolist(), using=TOKENS), "limit": k}
        if "prefetch" in knob:
            mean = edge.Query.Nearest(query.mean(axis=0).tolist(), using=MEAN)
            asked["prefetches"] = [edge.Prefetch(query=mean, limit=knob["prefetch"])]
        if knob.keys() & {"exact", "hnsw_ef", "oversampling"}:
            asked["params"] = edge.SearchParams(
                hnsw_ef=knob.get("hnsw_ef"), exact=bool(knob.get("exact")), quantization=rescoring(knob)
            )
        return [str(point.id) for point in self.shard.query(edge.QueryRequest(**asked))]

    def state(self) -> dict[str, Any]:
        return {"segments": self.shard.info().segments_count}

    def close(self) -> None:
        self.shard.close()


def rescoring(knob: dict[str, Any]) -> edge.QuantizationSearchParams | None:
    """How many times k quantised results are scored again in full; 0: none."""
    if "oversampling" not in knob:
        return None
    more = knob["oversampling"]
    return edge.QuantizationSearchParams(rescore=more > 0, oversampling=more or None)
