"""The index of this project with 2 bits a coordinate."""

from __future__ import annotations

from adapters import weft4


class Engine(weft4.Engine):
    """weft, 2 bits."""

    bits = 2
