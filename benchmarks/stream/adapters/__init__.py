"""The engines of the stream, one module each. Only the module that is asked for is imported.

An adapter is a class `Engine` with

    create(folder)                      a new, empty index
    write(adds, upserts, deletes)       one call or as few as the engine has; adds and upserts are (id, vectors)
    maintain()                          what its documentation advises to call now and then; True if it did something
    search(query, k, **knob)            ids of the best documents, best first
    finish()                            all maintenance that is due
    state()                             what is worth recording (segments, …)
    versions()                          what was measured

and `knobs`, the settings of a search that are tried on tuning queries, and `default`, the one taken where none was
chosen.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

OWN = ("weft",)
"""Engines of this project's environment; the others run in the peers'."""
NAMES = (*OWN, "lancedb", "lancedb_seldom", "lancedb_flat", "qdrant", "qdrant_hnsw")
UNTUNED = (*OWN, "lancedb_flat")
"""Engines that are measured with their default search settings."""
Texts = Sequence[tuple[str, np.ndarray]]


class Adapter:
    """What the adapters share."""

    packages: tuple[str, ...] = ()
    knobs: tuple[dict[str, Any], ...] = ({},)
    default: dict[str, Any] = {}  # noqa: RUF012
    environment: dict[str, str] = {}  # noqa: RUF012
    """Variables that keep the engine to one thread where it can be kept."""

    cpu = staticmethod(time.process_time)
    """The clock of a search: threads that the engine starts on its own count too."""

    def create(self, folder: Path) -> None:
        raise NotImplementedError

    def write(self, adds: Texts, upserts: Texts, deletes: Sequence[str]) -> None:
        raise NotImplementedError

    def maintain(self) -> bool:
        return False

    def search(self, query: np.ndarray, k: int, **knob: Any) -> list[str]:
        raise NotImplementedError

    def finish(self) -> None:
        pass

    def merging(self) -> bool:
        """Whether maintenance goes on in the background now."""
        return False

    def files(self) -> int | None:
        """Segment files on disk now, those being written included."""
        return None

    def state(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass

    def versions(self) -> dict[str, str]:
        return {package: version(package) for package in self.packages}


def load(name: str) -> Adapter:
    if name not in NAMES:
        raise SystemExit(f"no engine {name!r}; there are {', '.join(NAMES)}")
    return importlib.import_module(f"adapters.{name}").Engine()
