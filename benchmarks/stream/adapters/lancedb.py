"""LanceDB (PyPI `lancedb`), as its documentation advises for multivectors and for small writes.

- A list of float32 vectors (float16 costs more to search where the CPU has no half-precision arithmetic), cosine, the
  standard IVF_PQ index with dimension / 8 sub-vectors; `refine_factor`.
- `add` for new rows, `merge_insert` for upserts with a BTREE index on the key, `delete` by key.
- `optimize` after 20 modifying operations, `Table.optimize`'s own rule of thumb; old versions go at once.
- No vector index until there is enough to train on; trained again whenever the table has grown fourfold.

Each `optimize` adds a part to the vector index, and a search asks every part. `lancedb_seldom` and `lancedb_flat` are
kinder to searches.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import BTree, IvfPq
from workload import DIM

from adapters import Adapter, Texts

FIRST_INDEX = 1000  # documents, about 90,000 vectors
GROWTH = 4
OPTIMIZE_AFTER = 20  # modifying calls
VECTORS = pa.list_(pa.list_(pa.float32(), DIM))
SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("vector", VECTORS)])


class Engine(Adapter):
    """LanceDB."""

    packages = ("lancedb", "pyarrow")
    # LANCE_IO_THREADS=1 makes 0.40.0 wait for itself for ever; the threads of I/O stay as they are.
    environment = {"LANCE_CPU_THREADS": "1", "TOKIO_WORKER_THREADS": "1", "LANCEDB_LOG": "error"}  # noqa: RUF012
    knobs = (
        {},
        *({"refine_factor": refine} for refine in (5, 10, 20, 50)),
        *({"nprobes": probes, "refine_factor": refine} for probes, refine in ((50, 20), (100, 50))),
        {"flat": True},
    )
    default = {"refine_factor": 20}  # noqa: RUF012
    with_index = True
    most_parts: int | None = None
    """The vector index is made anew when it has more parts than this."""

    def create(self, folder: Path) -> None:
        self.table = lancedb.connect(folder / "db").create_table("documents", schema=SCHEMA)
        self.calls = self.records = 0
        self.keyed = False
        self.next_index = FIRST_INDEX

    def write(self, adds: Texts, upserts: Texts, deletes: Sequence[str]) -> None:
        if adds:
            self.table.add(rows(adds))
        if upserts:
            merge = self.table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(rows(upserts))
        if deletes:
            self.table.delete(f"id IN ({', '.join(map(repr, deletes))})")
        self.calls += bool(adds) + bool(upserts) + bool(deletes)
        self.records += len(adds) + len(upserts) + len(deletes)

    def due(self) -> bool:
        return self.calls >= OPTIMIZE_AFTER

    def maintain(self) -> bool:
        if not self.due():
            return False
        self.finish()
        return True

    def finish(self) -> None:
        self.calls = self.records = 0
        if not self.keyed:
            self.table.create_index("id", config=BTree())
            self.keyed = True
        count = self.table.count_rows()
        if self.with_index and (count >= self.next_index or self.parts() > (self.most_parts or count)):
            self.table.create_index("vector", config=IvfPq(distance_type="cosine", num_sub_vectors=DIM // 8))
            self.next_index = count * GROWTH
        self.table.optimize(cleanup_older_than=timedelta(0))

    def parts(self) -> int:
        statistics = self.table.index_stats("vector_idx")
        return 0 if statistics is None else statistics.num_indices

    def search(self, query: np.ndarray, k: int, **knob: Any) -> list[str]:
        asked = self.table.search(query, vector_column_name="vector").distance_type("cosine")
        asked = asked.select(["id", "_distance"]).limit(k)
        if knob.get("flat"):
            asked = asked.bypass_vector_index()
        if "nprobes" in knob:
            asked = asked.nprobes(knob["nprobes"])
        if "refine_factor" in knob:
            asked = asked.refine_factor(knob["refine_factor"])
        return asked.to_arrow()["id"].to_pylist()

    def state(self) -> dict[str, Any]:
        return {"segments": self.table.stats()["fragment_stats"]["num_fragments"], "index_parts": self.parts()}


def rows(texts: Texts) -> pa.Table:
    values = np.concatenate([vectors for _, vectors in texts]).astype(np.float32)
    offsets = np.cumsum([0, *(len(vectors) for _, vectors in texts)], dtype=np.int32)
    tokens = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), DIM)
    ids = pa.array([id for id, _ in texts])  # noqa: A001
    return pa.table([ids, pa.ListArray.from_arrays(pa.array(offsets), tokens, type=VECTORS)], schema=SCHEMA)
