"""The engines under test, one module each. Only the module that is asked for is imported.

An adapter is a class `Engine` with

    build(work, folder)               write an index of the workload into the folder
    open(work, folder)                make it searchable
    search(query, k, **knob)          numbers of the best documents, best first
    bytes_on_disk(work, folder, knob) everything that a search with this knob needs
    versions()                        what was measured

and `knobs(work)`, the sweep, cheapest first.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from pathlib import Path
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
    "plaid",
    "maxsim_cpu",
)
FULL_VECTOR = 2 * 128  # bytes of a token's float16 vector, for engines that re-rank with them


class Adapter:
    """What the adapters share."""

    packages: tuple[str, ...] = ()

    def knobs(self, work: Any) -> list[dict[str, Any]]:  # noqa: ARG002
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


def load(name: str) -> Adapter:
    if name not in NAMES:
        raise SystemExit(f"no engine {name!r}; there are {', '.join(NAMES)}")
    return importlib.import_module(f"adapters.{name}").Engine()
