"""The engines under test, one module each. Only the module that is asked for is imported.

An adapter is a class `Engine` with

    build(work, folder)               write an index of the workload into the folder
    open(work, folder)                make it searchable
    search(query, k, **knob)          numbers of the k best documents, best first
    bytes_on_disk(work, folder, knob) everything that a search with this knob needs
    versions()                        what was measured

and `knobs(work, k)`, the settings that are tried where k documents are wanted, cheapest first. Which of them are
reported is chosen on queries of their own (`measure.py`); those of `untuned` are always reported, at k = 10.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

OWN = ("int8", "fp16", "weft", "weft4", "weft2", "weft_pruned")
"""Engines of this project's environment; the others run in the peers'."""
NAMES = (
    *OWN,
    "tachiom",
    "tachiom64",
    "lemur",
    "lemur_ann",
    "lemur_random",
    "faiss_tokens",
    "lancedb",
    "qdrant",
    "qdrant_int8",
    "qdrant_hnsw",
    "plaid",
    "maxsim_cpu",
)
Texts = Sequence[tuple[str, np.ndarray]]
FULL_VECTOR = 2 * 128  # bytes of a token's float16 vector, for engines that re-rank with them


class Adapter:
    """What the adapters share."""

    packages: tuple[str, ...] = ()
    untuned: tuple[dict[str, Any], ...] = ()

    def knobs(self, work: Any, k: int) -> list[dict[str, Any]]:  # noqa: ARG002
        return [{}]

    def build(self, work: Any, folder: Path) -> None:
        raise NotImplementedError

    def open(self, work: Any, folder: Path) -> None:
        raise NotImplementedError

    def search(self, query: np.ndarray, k: int, **knob: Any) -> np.ndarray:
        raise NotImplementedError

    def bytes_on_disk(self, work: Any, folder: Path, knob: dict[str, Any]) -> int:  # noqa: ARG002
        return folder_bytes(folder)

    def versions(self) -> dict[str, str]:
        return {package: version(package) for package in self.packages}


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def of_stream(name: str) -> ModuleType:
    """The module of `../stream/adapters` for an engine, whose settings and calls are shared by the adapter here."""
    path = Path(__file__).parents[2] / "stream" / "adapters" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"stream_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def batches(work: Any, size: int = 500) -> Iterator[list[tuple[str, np.ndarray]]]:
    """All documents, some at a time, as engines take them that are written to."""
    for first in range(0, work.documents, size):
        last = min(first + size, work.documents)
        yield [(str(d), np.array(work.document(d))) for d in range(first, last)]


def load(name: str) -> Adapter:
    if name not in NAMES:
        raise SystemExit(f"no engine {name!r}; there are {', '.join(NAMES)}")
    return importlib.import_module(f"adapters.{name}").Engine()
