"""One writer at a time: an advisory lock on a file of the index, released by the system if the process dies.

The lock belongs to the process that took it. A forked child gives up its copy at once: it could otherwise write beside
its parent, and would keep others out after the parent is done.
"""

from __future__ import annotations

import fcntl
import os
import stat
import weakref
from contextlib import suppress
from pathlib import Path

from weft.errors import CorruptIndexError, IndexLockedError
from weft.storage.folder import LOCK as FILE
from weft.storage.folder import check_file

_FIELD = 32
"""Bytes of the process's number, and of the last commit's after it, each with spaces behind it."""

_MOST = 1 << 53
"""No index has this many commits: a mark above this is damaged itself, and ignored."""


class WriterLock:
    """Taken on construction, or `IndexLockedError` at once; never waits."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        self._handle: int | None = os.open(folder / FILE, flags, 0o644)
        try:
            found = os.fstat(self._handle)
            if not stat.S_ISREG(found.st_mode):
                raise CorruptIndexError(f"{folder / FILE}: this is not a file, which weft never makes")
            self._lock(folder)
        except BaseException:
            self._close()
            raise
        _held.add(self)
        self._ours = found.st_nlink == 1  # a file with a second name may be somebody else's
        self._write(os.getpid(), 0)

    def _lock(self, folder: Path) -> None:
        assert self._handle is not None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._handle, _FIELD, 0).decode(errors="replace").strip()
            raise IndexLockedError(
                f"the index at {folder} is being written by another writer "
                f"(process {holder if holder.isdecimal() else 'unknown'}); wait for it to finish, or close it"
            ) from None

    def mark(self, generation: int) -> None:
        """Note the number of a commit after it was made; a catalogue behind it has lost commits (`last_mark`)."""
        self._write(generation, _FIELD)

    def _write(self, number: int, at: int) -> None:
        # The index works without it: a full disk is no reason to keep writers out.
        with suppress(OSError):
            if self._ours and self._handle is not None:
                os.pwrite(self._handle, b"%-*d\n" % (_FIELD - 1, number), at)

    def release(self) -> None:
        """Let the next writer in."""
        if self._handle is not None:
            # Closing alone is not enough while a forked child has the file open.
            fcntl.flock(self._handle, fcntl.LOCK_UN)
            self._close()

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def last_mark(folder: Path) -> int:
    """Return the number of a commit that this index is known to have had; 0 if none is.

    It is written after the commit and without an fsync: it may be late, after a power cut say, but never early.
    """
    try:
        check_file(folder / FILE)  # a pipe would hang
        with open(folder / FILE, "rb") as file:
            found = file.read(2 * _FIELD)[_FIELD:].strip()
    except OSError:
        return 0
    number = int(found) if found.isdigit() else 0
    return number if number < _MOST else 0


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _forget() -> None:
    """In a forked child: close our copies, which leaves the parent's locks alone."""
    for lock in list(_held):
        lock._close()


os.register_at_fork(after_in_child=_forget)
