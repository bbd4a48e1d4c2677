"""Giving up: long work asks now and then whether anybody still waits for it.

A server that has promised an answer within some seconds sets a check for the thread that works; searching, SQL and
scoring call it between their steps, and it raises when the time is over. Without a check nothing happens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_local = threading.local()


@contextmanager
def stopping(check: Callable[[], object]) -> Iterator[None]:
    """Let this thread's work inside call a check, which raises to stop it.

    Examples
    --------
    >>> def late():
    ...     raise TimeoutError("nobody waits any more")
    >>> check_stop()
    >>> with stopping(late):
    ...     check_stop()
    Traceback (most recent call last):
    ...
    TimeoutError: nobody waits any more
    """
    before = getattr(_local, "check", None)
    _local.check = check
    try:
        yield
    finally:
        _local.check = before


def check_stop() -> None:
    """Raise if this thread's work is to stop: call it between steps that take long."""
    check = getattr(_local, "check", None)
    if check is not None:
        check()


def is_stopped() -> bool:
    """Tell whether this thread's work is to stop, without raising: for callbacks of libraries."""
    try:
        check_stop()
    except Exception:
        return True
    return False
