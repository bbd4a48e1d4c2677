"""LEMUR with random features in place of trained ones: its authors' cheap setting, which needs more re-ranking."""

from __future__ import annotations

from adapters.lemur import Engine as Lemur


class Engine(Lemur):
    """LEMUR, untrained random features."""

    epochs = 0
