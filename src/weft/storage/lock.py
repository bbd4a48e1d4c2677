"""One writer at a time: an advisory lock on a file of the index, released by the system if the process dies."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from weft.errors import IndexLockedError

FILE = "writer.lock"


class WriterLock:
    """Taken on construction, or `IndexLockedError` at once; never waits."""

    def __init__(self, folder: Path) -> None:
        self._handle: int | None = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(self._handle)
        except OSError:
            holder = os.pread(self._handle, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._handle)
            self._handle = None
            raise IndexLockedError(
                f"the index at {folder} is being written by another writer (process {holder}); "
                "wait for it to finish, or close it"
            ) from None
        with suppress(OSError):  # only for the message above; a full disk is no reason to keep others out for ever
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let the next writer in."""
        if self._handle is not None:
            os.close(self._handle)  # closing the file gives the lock up
            self._handle = None


def _lock(handle: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
