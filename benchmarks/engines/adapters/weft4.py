"""The index of this project with 4 bits a coordinate."""

from __future__ import annotations

from adapters import weft


class Engine(weft.Engine):
    """weft, 4 bits. Without sketches, so more documents are scored in full."""

    bits = 4
    ten = ((8, 64, 100), (8, 64, 150), (12, 64, 300), (16, 128, 400), (32, 192, 800))
    hundred = ((16, 128, 800),)
