"""`Store`: an index on disk without the searching. Documents go in, come out, change and go, durably.

A store is a folder: the SQLite catalogue (see `catalogue.py`), the segment files it names, and a lock file.
Any number of processes and threads may read; one process may write. Each write call is one transaction: when it
returns, its effect is on disk and visible to every reader's next call, and if it raises, nothing happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from weft._renamed import Renamed, renamed_keywords
from weft.checks import check_fraction
from weft.errors import CorruptIndexError, IndexFormatError, invalid
from weft.storage import forking
from weft.storage.ahead import read_ahead
from weft.storage.catalogue import Catalogue
from weft.storage.codecs import CODECS
from weft.storage.commits import Commits
from weft.storage.documents import checked, checked_id, checked_ids, checked_settings
from weft.storage.merger import Merger, codec_for
from weft.storage.opening import created, discard, opened
from weft.storage.operations import Addition, Operation, commit, new_segments
from weft.storage.pooling import pool
from weft.storage.pruning import prune
from weft.storage.segments import Segment, StoredTokens
from weft.storage.segments.writing import write_segment
from weft.storage.views import View, Views
from weft.storage.writer import Writer
from weft.types import Document, TokenVectors

ALIGNMENT = "sum-of-max"
"""The alignment of a search if neither the call nor the index names one."""


class Store:
    """Create with `Store.create`, open with `Store.open`; a context manager."""

    catalogue = Renamed("reading_catalogue")
    encoder = Renamed("encoder_fingerprint")
    weights = Renamed("salience_weighs")

    def __init__(
        self,
        folder: Path,
        catalogue: Catalogue,
        *,
        merge: str = "background",
        on_damage: str = "raise",
        verify: str = "when read",
    ) -> None:
        if verify not in ("when read", "copy"):
            raise invalid("verify", "open", '"when read" or "copy"', verify)
        if on_damage not in ("raise", "skip"):
            raise invalid("on_damage", "open", '"raise" or "skip"', on_damage)
        settings = checked_settings(catalogue.settings(), catalogue.file)
        self.folder = folder
        self.dim: int = settings["dim"]
        self.encoder_fingerprint: str = settings["encoder"]
        self.bits: int = settings["bits"]
        self.beta_d: float | None = settings["beta_d"]
        self.keep: float | None = settings.get("keep")
        self.find_by: float | None = settings.get("find_by")
        self.salience_weighs: bool = settings.get("weights", True)
        self.reads: bool = settings.get("reading", True)
        self.model: str = settings.get("model", "")
        self.merging = Merger(self, merge)
        self._views = Views(folder, catalogue, skips=on_damage == "skip", copies=verify == "copy")
        self._commits = Commits(folder, self._views)
        forking.register(self)

    # -- opening and closing -------------------------------------------------------------------------

    @classmethod
    @renamed_keywords(encoder="encoder_fingerprint", weights="salience_weighs")
    def create(
        cls,
        folder: str | Path,
        dim: int,
        *,
        encoder_fingerprint: str = "",
        bits: int = 8,
        beta_d: float | None = None,
        keep: float | None = None,
        find_by: float | None = None,
        salience_weighs: bool = True,
        model: str = "",
        reading: bool = True,
        merge: str = "background",
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
            Bits per coordinate in large segments: about 155, 72 or 40 bytes for a token of dimension 128.
        beta_d : float, optional
            Store only the top β_d of each document's tokens by salience (ALIGNER §3.2).
        keep : float, optional
            Store this part of each document's vectors: similar tokens are pooled, and below a fifth the least salient
            are left out first (`weft.storage.pooling`). Not together with `beta_d`.
        find_by : float, optional
            Find documents by this part of their tokens, the most salient, and rank them by all: ALIGNER's own protocol
            (§3.2, β_d). Everything is stored; lists are shorter and read faster. Not together with `beta_d` or `keep`.
        salience_weighs : bool
            Whether saliences weigh the scores (ALIGNER eq. 2), or only choose the tokens that β_d and β_q keep.
        model : str
            Where the encoder can be loaded from, a folder or a name; empty for the bundled one, or if unknown.
        reading : bool
            Keep where each token stands in its text and how salient it is, where documents come with that: highlights
            and explanations then need no model. Three bytes a token.
        merge : {"background", "inline", "off"}
            When small segments are merged: by a thread beside the writer, within the call that makes it necessary, or
            only by `compact`. A choice of this process, not of the index.
        """
        if type(bits) is not int or bits not in CODECS:
            raise invalid("bits", "Store.create", "8, 4 or 2", bits)
        if beta_d is not None:
            beta_d = check_fraction(beta_d, "beta_d", "Store.create")
        if keep is not None:
            keep = check_fraction(keep, "keep", "Store.create")
            if beta_d is not None:
                raise invalid("keep", "Store.create", "left out where beta_d is given", keep)
        if find_by is not None:
            find_by = check_fraction(find_by, "find_by", "Store.create")
            if beta_d is not None or keep is not None:
                raise invalid("find_by", "Store.create", "left out where beta_d or keep is given", find_by)
        if isinstance(dim, bool) or not isinstance(dim, int) or not 1 <= dim <= 65536:
            raise invalid("dim", "Store.create", "an integer from 1 to 65536", dim)
        folder = Path(folder)
        settings: dict[str, Any] = {
            "dim": dim,
            "encoder": encoder_fingerprint,
            "bits": bits,
            "beta_d": beta_d,
            "model": model,
            "weights": bool(salience_weighs),
            "reading": bool(reading),
        }
        if keep is not None:
            settings["keep"] = keep
        if find_by is not None:
            settings["find_by"] = find_by
        catalogue = created(folder, settings)
        try:
            return cls(folder, catalogue, merge=merge)
        except BaseException:
            catalogue.close()
            discard(folder)
            raise

    @classmethod
    @renamed_keywords(encoder="encoder_fingerprint")
    def open(
        cls,
        folder: str | Path,
        *,
        encoder_fingerprint: str | None = None,
        dim: int | None = None,
        merge: str = "background",
        on_damage: str = "raise",
        verify: str = "when read",
    ) -> Self:
        """Open an existing index.

        Parameters
        ----------
        folder : path
            May be one that cannot be written, of another user or on read-only media: it is then only read.
        encoder_fingerprint, dim
            Where given, they must be the ones that it was made with.
        merge : {"background", "inline", "off"}
            As for `create`.
        on_damage : {"raise", "skip"}
            What to do about damaged segments: raise when one is read, or read every byte when the index is opened, and
            search without those that are damaged; rankings then say how many documents are missing (`Ranking.missing`).
        verify : {"when read", "copy"}
            Map segments and check their bytes when they are first read; or copy them into memory and check them when
            the index is opened, for folders that others may write: a mapped file that is changed later is not noticed,
            and one that is cut short crashes the process. (SQLite's shared memory is mapped in either case.)
        """
        folder = Path(folder)
        catalogue = opened(folder, complete=on_damage != "skip")
        try:
            store = cls(folder, catalogue, merge=merge, on_damage=on_damage, verify=verify)
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
        """Release the files and the writer's lock, after the merge under way; a second call does nothing."""
        if self._views.forked:  # all of it is the parent's: its threads, its connections, its lock
            return
        self.merging.stop()
        self._commits.close()

    def let_go(self) -> None:
        """Close the connections that are not in use, before a fork; they are opened again when they are needed."""
        self._views.let_go()
        self._commits.let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- reading -------------------------------------------------------------------------------------

    def view(self) -> AbstractContextManager[View]:
        """Hold the newest committed state: what is read inside, ids and texts included, belongs together."""
        return self._views.view()

    def reading_catalogue(self) -> AbstractContextManager[Catalogue]:
        """Hold the newest committed state of the catalogue; inside a view, that view's."""
        return self._views.reading()

    @property
    def damaged(self) -> tuple[str, ...]:
        """Segments that are left out, of an index that was opened with ``on_damage="skip"``."""
        with self.view() as view:
            return view.damaged

    @property
    def alignment(self) -> str:
        """The alignment of searches that name none."""
        with self.view() as view:
            return view.alignment or ALIGNMENT

    def __len__(self) -> int:
        with self.view() as view:
            return view.documents

    def __contains__(self, id: object) -> bool:  # noqa: A002
        with self.reading_catalogue() as catalogue:
            return isinstance(id, str) and catalogue.number(id) is not None

    def get(self, id: str) -> Document | None:  # noqa: A002
        """Return the document with this id, or None."""
        with self.reading_catalogue() as catalogue:
            return catalogue.get(checked_id(id))

    def vectors(self, id: str) -> TokenVectors | None:  # noqa: A002
        """Return a document's token vectors as they are stored, or None."""
        place = self._place(id)
        return None if place is None else place[0].select(place[1])

    def reading(self, id: str) -> StoredTokens | None:  # noqa: A002
        """Return what is stored of a document's tokens beside their vectors, or None: no model is needed for it."""
        place = self._place(id)
        return None if place is None else place[0].reading(int(place[1][0]))

    def check_process(self) -> None:
        """Refuse to go on in a child that was forked after the index was opened."""
        self._views.check_process()

    def _place(self, id: str) -> tuple[Segment, NDArray[np.int64]] | None:  # noqa: A002
        with self.view() as view, self.reading_catalogue() as catalogue:
            number = catalogue.number(checked_id(id))
            if number is None:
                return None
            places = ((s.segment, s.segment.ordinals_of(np.array([number]))) for s in view.segments)
            place = next((place for place in places if len(place[1])), None)
            if place is None:
                raise CorruptIndexError(f"{catalogue.file}: damaged: document {id!r} is in no segment that can be read")
            return place

    # -- writing -------------------------------------------------------------------------------------

    def add(self, documents: Iterable[Document | str], vectors: TokenVectors, *, flat: bool = False) -> None:
        """Add documents with their token vectors, replacing those whose id is already there.

        Of documents with one id in a single call the last counts. A large batch is coded at once; `flat` leaves it as
        it is until the next merge, which then codes it together with others.
        """
        addition = self.addition(documents, vectors)
        if addition.documents:
            self.write([addition], flat=flat)

    def delete(self, ids: str | Iterable[str]) -> int:
        """Remove documents; unknown ids are ignored. Return how many were there."""
        return self.write([checked_ids(ids)])

    def writer(self, *, documents: int = 1000, megabytes: float = 64, seconds: float = 1.0) -> Writer:
        """Return a writer that commits many small adds and deletes in groups: see `weft.storage.writer.Writer`."""
        return Writer(self, documents=documents, megabytes=megabytes, seconds=seconds)

    def addition(self, documents: Iterable[Document | str], vectors: TokenVectors) -> Addition:
        """Check documents that are to be added, and prune or pool them as the index does."""
        listed = [checked(d) for d in documents]
        if not isinstance(vectors, TokenVectors):
            raise invalid("vectors", "add", "TokenVectors (TokenVectors.from_list makes them of arrays)", vectors)
        if len(listed) != len(vectors):
            raise invalid("vectors", "add", f"one text for each of the {len(listed)} documents", len(vectors))
        if vectors.dim != self.dim:
            raise invalid("vectors", "add", f"of the index's dimension, {self.dim}", vectors.dim)
        full_lengths = None
        if self.beta_d is not None and listed:
            full_lengths = vectors.lengths
            vectors = prune(vectors, self.beta_d, parameter="beta_d")
        if self.keep is not None:
            vectors = pool(vectors, self.keep)
        return Addition(listed, vectors, full_lengths)

    def write(self, operations: Sequence[Operation], *, flat: bool = False) -> int:
        """Do additions and deletions (lists of ids), in their order, in one transaction.

        Returns
        -------
        int
            How many documents were there to be deleted.
        """
        segments = new_segments(operations, reading=self.reads, weighs=self.salience_weighs, find_by=self.find_by)
        with self.view() as view:
            there = view.tokens
        with self._commits.writing(), ExitStack() as stack:
            files = []
            for segment in segments:
                files.append(stack.enter_context(self.new_file()))
                codec = None if flat else codec_for(segment.tokens, self.bits, there + segment.tokens)
                write_segment(files[-1], segment.pieces, codec, shared=self.merging.shared)
                self.adopt(files[-1])
            with self.committing() as catalogue:
                deleted = commit(catalogue, operations, segments, files)
            self.merging.count(files, [sum(len(p.lengths) for p in segment.pieces) for segment in segments])
        self.merging.after_write()
        return deleted

    def compact(self) -> None:
        """Merge all segments into one and drop what was deleted, while others read and write.

        Documents with and without token ids, saliences, spans or half precision stay apart: nothing of theirs is lost.
        """
        with self._commits.writing():
            pass  # refuse at once what another process would make vain
        self.merging.compact()

    def settle(self) -> None:
        """Merge now what many writes left behind, where that pays: after `Merger.paused`."""
        self.lock()
        self.merging.settle()

    def wait(self) -> None:
        """Return when no merge is due any more (with ``merge="background"``); at once if this store has not written."""
        self._views.check_process()
        if self._commits.locked:  # without it, what we merge another may be merging too
            self.merging.wait()

    def read_ahead(self) -> bool:
        """Read, check and map all segments now, so that no search waits; False if they exceed half the memory."""
        with self.view() as view:
            return read_ahead([s.segment for s in view.segments])

    def lock(self) -> None:
        """Take the writer's lock now and keep it until `close`, so that no work is lost to another writer."""
        with self._commits.writing():
            pass

    def remember_model(self, model: str) -> None:
        """Remember where the encoder can be loaded from."""
        if model != self.model:
            with self.committing() as catalogue:
                catalogue.set("model", model)
            self.model = model

    def remember_alignment(self, alignment: str) -> None:
        """Remember the alignment of searches that name none (see ``weft adapt``)."""
        with self.committing() as catalogue:
            catalogue.set("alignment", alignment)

    def committing(self) -> AbstractContextManager[Catalogue]:
        """Write to the catalogue in one transaction, on disk when this returns."""
        return self._commits.committing()

    def new_file(self) -> AbstractContextManager[Path]:
        """Name a segment file to be written; if the block fails it is removed, at once or by the next writer."""
        return self._commits.new_file()

    def adopt(self, path: Path) -> None:
        """Prepare a segment that was just written for searches, before it is committed."""
        self._views.adopt(path)

    # -- looking after it ------------------------------------------------------------------------------

    def info(self) -> dict[str, Any]:
        """Return sizes and settings as a plain dictionary."""
        with self.view() as view:
            return {
                "path": str(self.folder),
                "documents": view.documents,
                "tokens": view.tokens,
                "deleted": sum(len(s.live) - s.allowed.number for s in view.segments),
                "segments": len(view.segments),
                "dim": self.dim,
                "encoder_fingerprint": self.encoder_fingerprint,
                "model": self.model,
                "alignment": self.alignment,
                "bits": self.bits,
                "beta_d": self.beta_d,
                "keep": self.keep,
                "find_by": self.find_by,
                "salience_weighs": self.salience_weighs,
                "reading": self.reads,
                "bytes": sum(_size(path) for path in self.folder.rglob("*")),
            }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # a writer has just removed it
        return 0
