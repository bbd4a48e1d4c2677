"""`Writer`: many small adds and deletes, committed in groups.

A commit costs a few fsyncs however much is in it. A writer gathers what comes, from any number of threads, and a thread
of its own commits it: when there is enough of it, when the oldest has waited long enough, or when somebody asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from weft.errors import IndexStateError, invalid
from weft.storage.documents import checked_ids
from weft.types import Document, TokenVectors

if TYPE_CHECKING:
    from weft.storage.store import Store


class _Group:
    """Operations that are committed together, in their order."""

    def __init__(self) -> None:
        self.operations: list[Any] = []
        self.documents = self.bytes = 0
        self.begun = time.monotonic()
        self.done = threading.Event()
        self.error: BaseException | None = None


class Writer:
    """Adds and deletes of one index, gathered. Get one from `Index.writer`; a context manager that commits at its end.

    Parameters
    ----------
    store : Store
    documents, megabytes, seconds
        A group is committed when it has this many documents or megabytes of vectors, or when its first operation has
        waited so long.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from weft.storage.store import Store
    >>> with Store.create(tempfile.mkdtemp(), dim=2) as store:
    ...     with store.writer() as writer:
    ...         for i in range(100):
    ...             writer.add([f"d{i}"], TokenVectors.from_list([np.ones((3, 2))]))
    ...         writer.delete(["d7"])
    ...     len(store), store.info()["segments"]
    (99, 1)
    """

    def __init__(self, store: Store, *, documents: int = 1000, megabytes: float = 64, seconds: float = 1.0) -> None:
        for name, value in (("documents", documents), ("megabytes", megabytes), ("seconds", seconds)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise invalid(name, "writer", "a number > 0", value)
        store.lock()
        self._store = store
        self._most = documents, megabytes * 1e6, seconds
        self._changed = threading.Condition()
        self._open: _Group | None = None  # operations go here
        self._taken: _Group | None = None  # the last one that was begun to be written
        self._urgent = False
        self._closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"weft writer {store.folder.name}", daemon=True)
        self._thread.start()

    def add(self, documents: Iterable[Document | str], vectors: TokenVectors, *, durable: bool = False) -> None:
        """Add documents, replacing those whose id is there; with `durable`, return when they are on disk.

        Several threads that add durably at a time share commits.
        """
        addition = self._store.addition(documents, vectors)
        if addition.documents:
            self._take(addition, len(addition.documents), addition.vectors.values.nbytes, durable)

    def delete(self, ids: str | Iterable[str], *, durable: bool = False) -> None:
        """Remove documents, those added before by this writer included; unknown ids are ignored."""
        self._take(checked_ids(ids), 1, 0, durable)

    def commit(self) -> None:
        """Return when everything that was given is on disk, or raise why it is not."""
        with self._changed:
            self._check()
            self._urgent = self._open is not None
            group = self._taken if self._open is None else self._open  # those before are committed before
            self._changed.notify_all()
        if group is not None:
            _await(group)

    def close(self) -> None:
        """Commit what is left and stop; a second call does nothing."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the thread ----------------------------------------------------------------------------------

    def _take(self, operation: Any, documents: int, nbytes: int, durable: bool) -> None:
        with self._changed:
            self._check_open()
            while self._open is not None and self._full(self._open):  # no faster than the disk
                self._changed.wait()
                self._check_open()
            if self._open is None:
                self._open = _Group()
            group = self._open
            group.operations.append(operation)
            group.documents += documents
            group.bytes += nbytes
            self._urgent |= durable
            self._changed.notify_all()
        if durable:
            _await(group)

    def _full(self, group: _Group) -> bool:
        return group.documents >= self._most[0] or group.bytes >= self._most[1]

    def _check(self) -> None:
        self._store.check_process()
        if self._error is not None:
            raise self._error

    def _check_open(self) -> None:
        self._check()
        if self._closed:
            raise IndexStateError("the writer is closed")

    def _run(self) -> None:
        while (group := self._next()) is not None:
            try:
                self._store.write(group.operations)
            except BaseException as error:  # raised for whoever waits, and by every later call
                group.error = self._error = error
            group.operations.clear()  # the group is kept for `commit`, its vectors are not
            group.done.set()
            if group.error is not None:
                with self._changed:
                    if self._open is not None:
                        self._open.error = group.error
                        self._open.done.set()
                    self._changed.notify_all()
                return

    def _next(self) -> _Group | None:
        """Wait for a group to commit; None at the end."""
        with self._changed:
            while True:
                group = self._open
                if group is not None:
                    left = group.begun + self._most[2] - time.monotonic()
                    if self._urgent or self._closed or self._full(group) or left <= 0:
                        self._open, self._taken, self._urgent = None, group, False
                        self._changed.notify_all()
                        return group
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
                elif self._closed:
                    return None
                else:
                    self._changed.wait()


def _await(group: _Group) -> None:
    group.done.wait()
    if group.error is not None:
        raise group.error
