"""LanceDB without a vector index, which its documentation calls unnecessary up to about 100,000 rows."""

from __future__ import annotations

from adapters import lancedb


class Engine(lancedb.Engine):
    """LanceDB, no vector index."""

    knobs = ({},)
    default = {}  # noqa: RUF012
    with_index = False
