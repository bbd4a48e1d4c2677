"""LanceDB, optimized after 500 records, its vector index made anew when it has more than four parts."""

from __future__ import annotations

from adapters import lancedb

RECORDS = 500


class Engine(lancedb.Engine):
    """LanceDB, seldom optimized."""

    most_parts = 4

    def due(self) -> bool:
        return self.records >= RECORDS
