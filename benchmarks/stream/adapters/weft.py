"""The index of this project, with its defaults: 8 bits, merges in the background."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from workload import DIM

from adapters import Adapter, Texts
from weft import Index, TokenVectors


class Engine(Adapter):
    """weft."""

    packages = ("weft-search",)
    cpu = staticmethod(time.thread_time)  # a search runs in the calling thread; merges go on in another

    def create(self, folder: Path) -> None:
        self.folder = folder / "index"
        self.index = Index.create(self.folder, dim=DIM, merge="background")

    def write(self, adds: Texts, upserts: Texts, deletes: Sequence[str]) -> None:
        texts = [*adds, *upserts]
        if len(texts) + len(deletes) > 1:  # as they would come: one by one, committed together
            with self.index.writer() as writer:
                for id, vectors in texts:  # noqa: A001
                    writer.add([id], TokenVectors.from_list([vectors]))
                if deletes:
                    writer.delete(deletes)
        elif texts:
            self.index.add([texts[0][0]], TokenVectors.from_list([texts[0][1]]))
        else:
            self.index.delete(deletes)

    def search(self, query: np.ndarray, k: int, **knob: Any) -> list[str]:
        (ranking,) = self.index.search(query, k=k, hits=False, **knob)
        return list(ranking.ids)

    def finish(self) -> None:
        self.index.wait()

    def merging(self) -> bool:
        return bool(self.index.merging.running)

    def files(self) -> int:
        return len(os.listdir(self.folder / "segments"))

    def state(self) -> dict[str, Any]:
        with self.index.view() as view:
            segments = len(view.segments)
        merging = self.index.merging
        return {
            "segments": segments,
            "merges": merging.merges,
            "written_bytes": merging.written_bytes,
            "added_bytes": merging.added_bytes,
        }

    def close(self) -> None:
        self.index.close()

    # -- beside itself compacted ---------------------------------------------------------------------

    def compacted(self, folder: Path) -> tuple[Engine, dict[str, float]]:
        """A copy of this index, compacted, and what that cost. Merging is off in both from now on."""
        self.index.close()
        other = Engine()
        other.folder = folder / "compacted"
        shutil.copytree(self.folder, other.folder)
        self.index = Index.open(self.folder, merge="off")
        other.index = Index.open(other.folder, merge="off")
        cpu, wall = time.process_time(), time.perf_counter()
        other.index.compact()
        return other, {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
