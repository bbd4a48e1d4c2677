"""Tachiom with twice the default number of PQ subspaces: more bytes, a higher ceiling of recall."""

from __future__ import annotations

from typing import Any, ClassVar

from adapters.tachiom import Engine as Tachiom


class Engine(Tachiom):
    """Tachiom, 64 subspaces."""

    options: ClassVar[dict[str, Any]] = {"pq_subspaces": 64}
