"""Forking beside open indexes.

SQLite's locks are of a process, but what it remembers of them is copied into a child, so a child that opens an index
again would go without. Idle connections are therefore closed before a fork, and opened again when they are needed.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Connected(Protocol):
    """What has connections to an index."""

    def let_go(self) -> None:
        """Close those that are not in use."""
        ...


_open: weakref.WeakSet[Connected] = weakref.WeakSet()


def register(connected: Connected) -> None:
    """Call `let_go` before every fork, as long as the object lives."""
    _open.add(connected)


def _let_go() -> None:
    for connected in list(_open):
        connected.let_go()


os.register_at_fork(before=_let_go)
