"""Forking while indexes are open.

SQLite's locks belong to a process, but a forked child copies SQLite's memory of them, so it would open the index again
without locks. Idle connections are therefore closed before a fork, and opened again when they are needed.
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
