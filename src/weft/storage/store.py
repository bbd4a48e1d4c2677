"""`Store`: an index on disk without the searching. Documents go in, come out, change and go, durably.

A store is a folder: the SQLite catalogue (see `catalogue.py`), the segment files it names, and a lock file.
Any number of processes may read; one may write. Each write call is one transaction: when it returns, its effect
is on disk and visible to every reader's next call, and if it raises, nothing happened.
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from weft.checks import check_fraction
from weft.errors import CorruptIndexError, IndexExistsError, IndexFormatError, invalid
from weft.storage.arrays import fsync_folder
from weft.storage.catalogue import FILE, Catalogue, faults_named
from weft.storage.lock import WriterLock
from weft.storage.merging import Part, kind, merged
from weft.storage.pruning import prune
from weft.storage.segment import Segment, write_segment
from weft.types import Document, TokenVectors

SEGMENTS = "segments"
ALIGNMENT = "sum-of-max"
"""What a search takes for relevance if neither the call nor the index says otherwise."""
ATTEMPTS = 8
"""How often a state is looked up anew whose files a compaction has just removed."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class LiveSegment:
    """A segment as one committed state sees it."""

    number: int
    segment: Segment
    live: NDArray[np.bool_]
    """(N,) False where a tombstone stands."""
    ids: dict[int, str] = field(default_factory=dict)
    """Ids by ordinal, as far as they were asked for. No other document ever comes to live at a place."""


@dataclass(frozen=True, eq=False)
class View:
    """One committed state of a store."""

    generation: int
    segments: tuple[LiveSegment, ...]


class Store:
    """Create with `Store.create`, open with `Store.open`; a context manager."""

    def __init__(self, folder: Path, catalogue: Catalogue) -> None:
        self.folder = folder
        self.catalogue = catalogue
        self._lock: WriterLock | None = None
        self._tidy = False
        self._view: View | None = None
        self._opened: dict[str, Segment] = {}
        self._guard = threading.RLock()
        settings = catalogue.settings()
        self.dim: int = settings["dim"]
        self.encoder_fingerprint: str = settings["encoder"]
        self.bits: int = settings["bits"]
        self.beta_d: float | None = settings["beta_d"]
        self.salience_weighs: bool = settings.get("weights", True)
        self.model: str = settings.get("model", "")
        self.alignment: str = settings.get("alignment", ALIGNMENT)

    # -- opening and closing -------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        folder: str | Path,
        dim: int,
        *,
        encoder_fingerprint: str = "",
        bits: int = 8,
        beta_d: float | None = None,
        salience_weighs: bool = True,
        model: str = "",
    ) -> Self:
        """Make a new, empty index.

        Parameters
        ----------
        folder : path
            Made if missing; must be empty if there.
        dim : int
            Dimension of the token vectors, fixed for ever.
        encoder_fingerprint : str
            Fingerprint of the encoder whose vectors will come, checked by `open`; empty if unknown.
        bits : {8, 4, 2}
            Bits a coordinate in large segments: about 155, 72 or 40 bytes a token of dimension 128.
        beta_d : float, optional
            Store only the top β_d of each document's tokens by salience (ALIGNER §3.2).
        salience_weighs : bool
            Whether saliences weigh the scores (ALIGNER eq. 2), or only choose the tokens that β_d and β_q keep.
        model : str
            Where the encoder can be loaded from, a folder or a name; empty for the bundled one, or if unknown.
        """
        if bits not in (8, 4, 2):
            raise invalid("bits", "Store.create", "8, 4 or 2", bits)
        if beta_d is not None:
            check_fraction(beta_d, "beta_d", "Store.create")
        if isinstance(dim, bool) or not isinstance(dim, int) or not 1 <= dim <= 65536:
            raise invalid("dim", "Store.create", "an integer from 1 to 65536", dim)
        folder = Path(folder)
        with faults_named(folder):
            made = [path for path in (folder, *folder.parents) if not path.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise IndexExistsError(f"cannot create an index at {folder}: the folder is not empty")
            (folder / SEGMENTS).mkdir()
            try:
                settings = {"dim": dim, "encoder": encoder_fingerprint, "bits": bits, "beta_d": beta_d, "model": model}
                settings["weights"] = bool(salience_weighs)
                catalogue = Catalogue.create(folder, settings)
                try:
                    for path in (folder, *(path.parent for path in made)):
                        fsync_folder(path)
                    return cls(folder, catalogue)
                except BaseException:
                    catalogue.close()
                    raise
            except BaseException:  # leave an empty folder, so that it can be tried again
                for path in folder.glob(FILE + "*"):
                    path.unlink(missing_ok=True)
                shutil.rmtree(folder / SEGMENTS, ignore_errors=True)
                raise

    @classmethod
    def open(cls, folder: str | Path, *, encoder_fingerprint: str | None = None, dim: int | None = None) -> Self:
        """Open an existing index; `encoder_fingerprint` and `dim`, where given, must be the ones it was made with."""
        folder = Path(folder)
        catalogue = Catalogue.open(folder)
        try:
            store = cls(folder, catalogue)
        except BaseException:
            catalogue.close()
            raise
        for name, asked in (("encoder_fingerprint", encoder_fingerprint), ("dim", dim)):
            stored = getattr(store, name)
            if asked is not None and stored and asked != stored:
                store.close()
                raise IndexFormatError(f"the index at {folder} was made with {name} {stored!r}, not {asked!r}")
        return store

    def close(self) -> None:
        """Release the files and the writer's lock; a second call does nothing."""
        with self._guard:
            for segment in self._opened.values():
                segment.close()
            self._opened.clear()
            self._view = None
            self.catalogue.close()
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- reading -------------------------------------------------------------------------------------

    @contextmanager
    def view(self) -> Iterator[View]:
        """Hold the newest committed state: what is read inside, ids and texts included, belongs together."""
        tried = -1
        with self._guard:
            for attempt in range(ATTEMPTS):
                with self.catalogue.snapshot():
                    generation = self.catalogue.generation()
                    try:
                        if self._view is None or self._view.generation != generation:
                            with faults_named(self.folder):
                                self._view = self._load(generation)
                    except CorruptIndexError:
                        # A compaction may have removed a file after we read its name; then there is a newer state.
                        if generation == tried or attempt == ATTEMPTS - 1:
                            raise
                        tried = generation
                        continue
                    yield self._view
                    return

    def _load(self, generation: int) -> View:
        rows = self.catalogue.segments()
        known = {s.number: s.ids for s in self._view.segments} if self._view is not None else {}
        for file in set(self._opened) - {row.file for row in rows}:
            self._opened.pop(file).close()
        loaded = []
        for row in rows:
            if row.file not in self._opened:
                self._opened[row.file] = Segment(self.folder / SEGMENTS / row.file)
            segment = self._opened[row.file]
            live = np.ones(len(segment), dtype=bool)
            live[self.catalogue.tombstones(row.segment)] = False
            loaded.append(LiveSegment(row.segment, segment, live, known.get(row.segment, {})))
        self.alignment = self.catalogue.settings().get("alignment", ALIGNMENT)
        return View(generation, tuple(loaded))

    def __len__(self) -> int:
        with self.view():
            return self.catalogue.count()

    def __contains__(self, id: object) -> bool:  # noqa: A002
        with self._guard:
            return isinstance(id, str) and self.catalogue.place(id) is not None

    def get(self, id: str) -> Document | None:  # noqa: A002
        """Return the document with this id, or None."""
        with self._guard:
            return self.catalogue.get(id)

    def vectors(self, id: str) -> TokenVectors | None:  # noqa: A002
        """Return a document's token vectors as they are stored, or None."""
        with self.view() as view:
            place = self.catalogue.place(id)
            if place is None:
                return None
            segment = next(s.segment for s in view.segments if s.number == place[0])
            return segment.vectors(place[1], place[1] + 1)

    # -- writing -------------------------------------------------------------------------------------

    def add(self, documents: Iterable[Document | str], vectors: TokenVectors, *, flat: bool = False) -> None:
        """Add documents with their token vectors, replacing those whose id is already there.

        Of documents with one id in a single call the last counts. A large batch is coded at once; `flat` leaves it as
        it is until the next compaction, which then codes it together with the rest.
        """
        listed = [_document(d) for d in documents]
        if len(listed) != len(vectors):
            raise invalid("vectors", "add", f"one text for each of the {len(listed)} documents", len(vectors))
        if vectors.dim != self.dim:
            raise invalid("vectors", "add", f"of the index's dimension, {self.dim}", vectors.dim)
        if not listed:
            return
        if self.beta_d is not None:
            vectors = prune(vectors, self.beta_d, parameter="beta_d")
        if not self.salience_weighs:
            vectors = vectors.without_salience()
        with self._writing():
            file = self._new_segment(vectors, flat=flat)
            with self.catalogue.transaction():
                number = self.catalogue.add_segment(file, len(listed), vectors.n_tokens)
                for ordinal, document in enumerate(listed):
                    self.catalogue.put(document, number, ordinal)

    def delete(self, ids: str | Iterable[str]) -> int:
        """Remove documents; unknown ids are ignored. Return how many were there."""
        wanted = [ids] if isinstance(ids, str) else list(ids)
        with self._writing(), self.catalogue.transaction():
            return sum(self.catalogue.delete(id) for id in wanted)  # noqa: A001

    def compact(self) -> None:
        """Merge all segments into one and drop what was deleted; readers go on meanwhile.

        Documents with and without token ids, saliences or half precision stay apart: nothing of theirs is lost.
        """
        with self._writing():
            with self.view() as view:
                old = view.segments
                ids = {s.number: self.catalogue.places(s.number) for s in old}
            groups: dict[Any, list[LiveSegment]] = {}
            for s in old:
                groups.setdefault(kind(s.segment), []).append(s)
            if len(groups) == len(old) and all(s.live.all() for s in old):
                return
            made = [(self._merge(group, ids), group) for group in groups.values() if any(ids[s.number] for s in group)]
            with self.catalogue.transaction():
                for (file, documents, tokens), group in made:
                    number = self.catalogue.add_segment(file, documents, tokens)
                    moved = (id for s in group for _, id in ids[s.number])  # noqa: A001
                    for ordinal, id in enumerate(moved):  # noqa: A001
                        self.catalogue.move(id, number, ordinal)
                for s in old:
                    self.catalogue.drop_segment(s.number)
            self._collect_leftovers()

    def _merge(self, group: list[LiveSegment], ids: dict[int, list[tuple[int, str]]]) -> tuple[str, int, int]:
        """Write the live documents of some segments as one; return its file, documents and tokens."""
        parts = [Part(s.segment, np.array([ordinal for ordinal, _ in ids[s.number]], dtype=np.int64)) for s in group]
        with merged(parts, self.folder / SEGMENTS) as vectors:
            largest = max(group, key=lambda s: len(s.segment) if s.segment.coded else 0)
            return self._new_segment(vectors, scale=largest.segment.scale), len(vectors), vectors.n_tokens

    def lock(self) -> None:
        """Take the writer's lock now and keep it until `close`, before work that would be in vain without it."""
        with self._writing():
            pass

    def remember_model(self, model: str) -> None:
        """Keep where the encoder can be loaded from now."""
        if model != self.model:
            with self._writing(), self.catalogue.transaction():
                self.catalogue.set("model", model)
            self.model = model

    def remember_alignment(self, alignment: str) -> None:
        """Keep what searches take for relevance unless they say otherwise (see ``weft adapt``)."""
        with self._writing(), self.catalogue.transaction():
            self.catalogue.set("alignment", alignment)
        self.alignment = alignment

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._guard, faults_named(self.folder):
            if self._lock is None:
                self._lock = WriterLock(self.folder)
                self._tidy = False
            if not self._tidy:
                if self._leftovers():
                    # A commit whose fsync failed may still stand in SQLite's log, unseen until a crash makes SQLite
                    # read the log again. It may name a leftover: write over it before removing that.
                    with self.catalogue.transaction():
                        pass
                self._collect_leftovers()
                self._tidy = True
            try:
                yield
            except BaseException:
                self._tidy = False
                raise

    def _new_segment(self, vectors: TokenVectors, **options: Any) -> str:
        file = f"{secrets.token_hex(8)}.seg"
        try:
            write_segment(self.folder / SEGMENTS / file, vectors, bits=self.bits, **options)
        except BaseException:
            with suppress(OSError):
                (self.folder / SEGMENTS / file).unlink()
            raise
        return file

    def _leftovers(self) -> list[Path]:
        """Return files that no committed state names: from a crash, or forgotten by compaction."""
        named = {row.file for row in self.catalogue.segments()}
        return [path for path in (self.folder / SEGMENTS).iterdir() if path.name not in named]

    def _collect_leftovers(self) -> None:
        try:
            for path in self._leftovers():
                path.unlink(missing_ok=True)
        except OSError as error:  # no harm: what was to be written is, and the next writer tries again
            _log.warning("cannot remove a leftover of the index at %s: %s", self.folder, error)

    # -- looking after it ------------------------------------------------------------------------------

    def info(self) -> dict[str, Any]:
        """Return sizes and settings as a plain dictionary."""
        with self.view() as view:
            tokens = sum(int(s.segment.offsets[-1]) for s in view.segments)
            nbytes = sum(_size(path) for path in self.folder.rglob("*"))
            return {
                "path": str(self.folder),
                "documents": self.catalogue.count(),
                "tokens": tokens,
                "deleted": int(sum((~s.live).sum() for s in view.segments)),
                "segments": len(view.segments),
                "dim": self.dim,
                "encoder_fingerprint": self.encoder_fingerprint,
                "model": self.model,
                "alignment": self.alignment,
                "bits": self.bits,
                "beta_d": self.beta_d,
                "salience_weighs": self.salience_weighs,
                "bytes": nbytes,
            }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # a writer has just removed it
        return 0


def _document(given: Document | str) -> Document:
    document = Document(given) if isinstance(given, str) else given
    if not isinstance(document.id, str) or not document.id:
        raise invalid("id", "Document", "a string with at least one character", document.id)
    for name in ("id", "text"):
        try:
            getattr(document, name).encode()
        except (UnicodeEncodeError, AttributeError):
            raise invalid(name, "Document", "valid Unicode text", getattr(document, name)) from None
    try:
        if not isinstance(json.loads(json.dumps(dict(document.metadata), allow_nan=False)), dict):
            raise TypeError
    except (TypeError, ValueError) as error:
        raise invalid("metadata", "Document", f"a JSON object ({error})", document.metadata) from None
    return document
