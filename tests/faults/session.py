"""What performs the operations of a workload: one open store after the other, and merges that can be held up."""

import random
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from weft.storage import merger
from weft.storage.store import Store

WHOLE = {"documents": 1_000_000, "megabytes": 1000.0, "seconds": 3600.0}
"""Settings of a writer that commits only when asked: then a group is one transaction."""


class Gate:
    """Where background merges wait, with their file written and not yet named, as long as it is shut.

    It opens by itself where the writer would wait for them.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._open = threading.Event()
        self._open.set()
        self._write_segment = merger.write_segment
        self._await_small = merger.Merger._await_small
        merger.write_segment = self._write
        merger.Merger._await_small = lambda merges: self._released(merges)  # type: ignore[method-assign]
        stack.callback(self._remove)

    def _write(self, *arguments: Any, **named: Any) -> None:
        self._write_segment(*arguments, **named)
        if threading.current_thread().name.startswith("weft merges"):
            self._open.wait()

    def _released(self, merges: merger.Merger) -> bool:
        self.release()
        return self._await_small(merges)

    def _remove(self) -> None:
        merger.write_segment = self._write_segment
        merger.Merger._await_small = self._await_small  # type: ignore[method-assign]

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()


class Session:
    """Performs operations (see `workload.Op`) on the index at a path. A context manager, which closes it."""

    def __init__(self, path: Path, dim: int, *, modes: tuple[str, ...] = ()) -> None:
        """Give `modes` of merging to open the index in one of them at random; else merges go on in the background."""
        self._path, self._dim = path, dim
        self._modes, self._rng = modes, random.Random(0)
        self._store: Store | None = None
        self._stack = ExitStack()
        self._gate = Gate(self._stack)
        self._paused = ExitStack()

    @property
    def store(self) -> Store:
        assert self._store is not None
        return self._store

    def perform(self, op: Any) -> None:
        getattr(self, f"_{op.kind}")(op)

    # -- operations ----------------------------------------------------------------------------------

    def _create(self, op: Any) -> None:
        self._store = Store.create(self._path, self._dim, merge=self._mode())

    def _reopen(self, op: Any) -> None:
        self.close()
        self._store = Store.open(self._path, merge=self._mode())

    def _add(self, op: Any) -> None:
        (step,) = op.steps
        self.store.add(step.documents, step.vectors)

    def _delete(self, op: Any) -> None:
        (step,) = op.steps
        self.store.delete(step.ids)

    def _group(self, op: Any) -> None:
        """Add and delete through a writer; the last of it is durable, and so is what came before."""
        with self.store.writer(**WHOLE) as writer:  # type: ignore[arg-type]
            for i, step in enumerate(op.steps):
                durable = i == len(op.steps) - 1
                if step.vectors is None:
                    writer.delete(step.ids, durable=durable)
                else:
                    writer.add(step.documents, step.vectors, durable=durable)

    def _hold(self, op: Any) -> None:
        """From now on a background merge stays under way, whatever is added and deleted."""
        self._gate.hold()

    def _release(self, op: Any) -> None:
        self._gate.release()

    def _pause(self, op: Any) -> None:
        """From now on no merge begins."""
        self._paused.enter_context(self.store.merging.paused())

    def _wait(self, op: Any) -> None:
        self._gate.release()
        self._paused.close()
        self.store.wait()

    def _compact(self, op: Any) -> None:
        self._gate.release()
        self.store.compact()

    # -- opening and closing -------------------------------------------------------------------------

    def _mode(self) -> str:
        return self._rng.choice(self._modes) if self._modes else "background"

    def close(self) -> None:
        self._gate.release()
        if self._store is not None:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._stack.close()
