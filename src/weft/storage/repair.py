"""`repair`: keep everything of a damaged index that can still be read, and report what is gone.

Damage is looked for as `check` does. Of a damaged segment, the documents whose own bytes are sound go into a new one;
the file itself is moved to the folder ``quarantine``, and the texts of documents whose vectors are gone are written
there, so that they can be indexed again. All of it is one transaction: an interrupted repair changes nothing.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import CorruptIndexError
from weft.storage.arrays import SEE_CHECK, fsync_folder
from weft.storage.catalogue import Catalogue, SegmentRow
from weft.storage.folder import SEGMENTS, check_file, check_folder, check_one_name, quarantine, segment_files
from weft.storage.lock import WriterLock, last_mark
from weft.storage.merger import codec_for
from weft.storage.salvage import broken, rebuild
from weft.storage.salvaged import Salvage, Salvaged
from weft.storage.segments import open_segment
from weft.storage.segments.writing import write_segment
from weft.storage.store import Store


@dataclass(frozen=True)
class Repaired:
    """What `repair` did."""

    lost: tuple[str, ...] = ()
    """Ids of documents that are no longer in the index."""
    segments: tuple[str, ...] = ()
    """Files that were damaged, now in the folder ``quarantine``."""
    notes: tuple[str, ...] = ()
    """Everything else that was put right."""

    def __bool__(self) -> bool:
        return bool(self.lost or self.segments or self.notes)


@dataclass
class _Damage:
    """What is wrong with one segment."""

    row: SegmentRow
    salvage: Salvage | None = None
    kept: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Where the documents stand that can be kept"""

    @property
    def some(self) -> bool:
        """Whether anything can be kept."""
        return self.salvage is not None and len(self.kept) > 0

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Numbers that it held, as far as they are known, and no segment will hold any more."""
        if self.salvage is None:
            return np.zeros(0, np.int64)
        numbers = self.salvage.segment.numbers
        return np.setdiff1d(numbers, numbers[self.kept])


@dataclass(frozen=True)
class _Changes:
    """What is to be put right in the catalogue."""

    gone: NDArray[np.int64]
    """Documents whose vectors are gone"""
    both: NDArray[np.int64]
    """Those that are there, and deleted"""
    strays: NDArray[np.int64]
    """Entries of segments that are of no document"""
    torn: dict[int, str]
    """Documents whose rows are damaged"""
    lexical: bool
    """Whether the lexical index does not fit"""

    def __bool__(self) -> bool:
        return bool(len(self.gone) or len(self.both) or len(self.strays) or self.torn or self.lexical)

    def apply(self, writing: Catalogue, lost: list[str]) -> None:
        """Put it right, inside a transaction."""
        if self.torn:
            writing.forget(self.torn)
        if self.lexical:
            writing.rebuild_lexical()
        for name in lost:
            writing.delete(name)
        writing.drop_tombstones([*self.gone.tolist(), *self.both.tolist()])
        writing.bury(self.strays.tolist())


def repair(folder: str | Path) -> Repaired:
    """Drop what is damaged, keep the rest, and return what is gone.

    Nobody else may write meanwhile. Documents are lost only where their own bytes are damaged, or those that all
    documents of a segment need.

    Examples
    --------
    >>> import tempfile
    >>> from weft.types import TokenVectors
    >>> folder = tempfile.mkdtemp()
    >>> with Store.create(folder, dim=2, merge="off") as store:
    ...     store.add(["a"], TokenVectors.from_list([np.ones((3, 2))]))
    ...     store.add(["b"], TokenVectors.from_list([np.ones((3, 2))]))
    >>> file = sorted((Path(folder) / "segments").iterdir(), key=lambda path: path.stat().st_mtime_ns)[0]
    >>> _ = file.write_bytes(file.read_bytes()[:-1])
    >>> repair(folder).lost
    ('a',)
    """
    folder = Path(folder)
    check_folder(folder)  # a link is not damage, and what it leads to is not ours to keep
    if why := broken(folder):
        rebuilt = rebuild(folder, why)
        done = _repair(folder, keep_unnamed=True)
        lost = tuple(sorted({*rebuilt.lost, *done.lost}))
        return Repaired(lost, done.segments, (*rebuilt.notes, *done.notes))
    return _repair(folder)


def _repair(folder: Path, *, keep_unnamed: bool = False) -> Repaired:
    """Repair an index whose catalogue can be read."""
    with Store.open(folder, merge="off", on_damage="skip") as store:
        with store.reading_catalogue() as catalogue:
            mark, generation = last_mark(store.folder), catalogue.generation()
        if mark > generation or keep_unnamed:
            _keep_unnamed(store)  # which may be of commits that the log has lost; a writer would remove them
        store.lock()
        return _Repair(store, mark, max(mark - generation, 0)).run()


class _Repair:
    def __init__(self, store: Store, mark: int, lost_commits: int) -> None:
        self.store, self.mark, self.lost_commits = store, mark, lost_commits
        self.notes: list[str] = []
        self.resum = False
        """Whether the list of deleted documents is not the one that was written"""

    def run(self) -> Repaired:
        lexical = self._lexical_problems()
        with self.store.reading_catalogue() as catalogue:
            rows, torn = catalogue.segments(), catalogue.torn()
            documents, (tombstones, _) = catalogue.numbers(), catalogue.tombstones(verify=False)
            try:
                catalogue.tombstones()
            except CorruptIndexError as error:
                self.resum = True
                self._note(error)
        documents = np.setdiff1d(documents, np.array(sorted(torn), np.int64))
        kept, strays = np.zeros(0, np.int64), np.array(sorted(torn), np.int64)
        damages: list[_Damage] = []
        for row in sorted(rows, key=lambda row: -row.segment):  # of a document that is there twice, the newer counts
            salvage, good = self._look(row)
            if salvage is None:
                damages.append(_Damage(row))
                continue
            segment = salvage.segment
            twice = np.isin(segment.numbers, kept)
            mine = good & ~twice & np.isin(segment.numbers, documents)
            if twice.any() or not good.all() or self._worn:
                damages.append(_Damage(row, salvage, np.flatnonzero(mine)))
            else:
                strays = np.union1d(strays, np.setdiff1d(segment.numbers, np.union1d(documents, tombstones)))
            kept = np.concatenate([kept, segment.numbers[mine]])
        both = np.intersect1d(kept, tombstones)
        changes = _Changes(np.setdiff1d(documents, kept), both, strays, torn, bool(lexical or torn))
        for what, number in (
            ("documents were both there and deleted; they were kept", len(both)),
            ("entries of segments belonged to no document", len(np.setdiff1d(strays, list(torn)))),
            ("commits are missing; what is left was accepted", self.lost_commits),
        ):
            if number:
                self.notes.append(f"{number} {what}")
        self.notes += [f"the lexical index was rebuilt: {line}" for line in lexical]
        return self._commit(damages, changes) if damages or changes or self.lost_commits or self.resum else Repaired()

    def _lexical_problems(self) -> list[str]:
        catalogue = Catalogue.open(self.store.folder)
        try:
            return catalogue.lexical_integrity()
        finally:
            catalogue.close()

    def _look(self, row: SegmentRow) -> tuple[Salvage | None, NDArray[np.bool_]]:
        """Return what can be read of a segment, None if nothing, and which of its documents are sound."""
        self._worn = False
        try:
            segment = open_segment(self.store.folder / SEGMENTS / row.file, row.first)
            if (segment.dim, len(segment), segment.n_tokens) != (self.store.dim, row.documents, row.tokens):
                raise CorruptIndexError(f"{segment.path}: damaged: it is not the one that the catalogue names")
            _ = segment.numbers
            salvage = Salvage(segment)
        except CorruptIndexError as error:
            self._note(error)
            return None, np.zeros(0, bool)
        good = np.ones(len(segment), bool)
        try:
            segment.verify()
            segment.warm()
        except CorruptIndexError as error:
            self._note(error)
            self._worn = True  # written anew even if no document needs the bytes that are damaged
            good = np.array([salvage.readable(ordinal) for ordinal in range(len(segment))], bool)
        return salvage, good

    def _note(self, error: CorruptIndexError) -> None:
        self.notes.append(str(error).removesuffix(SEE_CHECK))

    def _commit(self, damages: list[_Damage], changes: _Changes) -> Repaired:
        """Do all of it in one transaction; then move the damaged files away."""
        store = self.store
        with store.reading_catalogue() as catalogue:
            lost = catalogue.documents(changes.gone.tolist())
        aside = quarantine(store.folder) if damages or lost else store.folder
        if lost:
            _write_texts(aside / "lost.jsonl", [lost[number] for number in sorted(lost)])
        with ExitStack() as stack:
            new = [self._rewritten(damage, stack.enter_context(store.new_file())) for damage in damages if damage.some]
            with store.committing() as writing:
                if self.resum:
                    writing.sum_tombstones_anew()
                changes.apply(writing, [document.id for document in lost.values()])
                writing.raise_generation(self.mark)  # no reader takes a new state for one that was lost
                for damage in damages:
                    writing.drop_segment(damage.row.segment)
                    writing.drop_tombstones(damage.numbers.tolist())
                for row in new:
                    writing.add_segment(*row)
        for damage in damages:
            with suppress(FileNotFoundError):
                (store.folder / SEGMENTS / damage.row.file).rename(aside / damage.row.file)
        if damages:
            fsync_folder(aside)
        names = sorted({document.id for document in lost.values()} | set(changes.torn.values()))
        return Repaired(tuple(names), tuple(damage.row.file for damage in damages), tuple(self.notes))

    def _rewritten(self, damage: _Damage, path: Path) -> tuple[str, int, int, int]:
        """Write what is kept of a segment; return what the catalogue is to say of it."""
        assert damage.salvage is not None
        segment, piece = damage.salvage.segment, Salvaged(damage.salvage, damage.kept)
        tokens, numbers = int(piece.lengths.sum()), segment.numbers[damage.kept]
        write_segment(path, [piece], codec_for(tokens, self.store.bits, tokens), numbers=numbers)
        self.notes.append(f"{len(numbers)} of {len(segment)} documents of {damage.row.file} were kept")
        return path.name, len(numbers), tokens, int(numbers[0])


def _keep_unnamed(store: Store) -> None:
    """Move segments that no commit names to the quarantine."""
    lock = WriterLock(store.folder)
    try:
        with store.reading_catalogue() as catalogue:
            named = {row.file for row in catalogue.segments()}
        aside = quarantine(store.folder)
        for path in segment_files(store.folder):
            if path.name not in named:
                path.rename(aside / path.name)
    finally:
        lock.release()


def _write_texts(path: Path, documents: list[Any]) -> None:
    check_file(path)  # a link would lead elsewhere
    check_one_name(path)
    with open(path, "a", encoding="utf-8") as file:
        for document in documents:
            row = {"id": document.id, "text": document.text, "metadata": dict(document.metadata)}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
