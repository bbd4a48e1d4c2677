"""Texts and files into a `TextIndex`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from weft.encoders import Encoder
from weft.encoders.loading import model_reference
from weft.errors import invalid
from weft.ingest import Summary, as_known, text_source, update
from weft.search import Index
from weft.sources.files import LARGEST, Source, read_sources
from weft.sources.find import STDIN, Found, Selection, find, name_of
from weft.sources.records import Fields
from weft.storage.documents import checked_ids
from weft.storage.families import family
from weft.storage.store import ALIGNMENT
from weft.text_index.languages import Languages
from weft.types import Document

OF_MODEL = "model_alignment"
"""The setting with the alignment that the index's model was trained for, even if searches now use another."""


class Writing(Languages, ABC):
    """The part of `TextIndex` that adds and removes documents."""

    @property
    @abstractmethod
    def index(self) -> Index:
        """The index below."""

    @property
    @abstractmethod
    def encoder(self) -> Encoder:
        """The encoder of the index."""

    def add(
        self,
        documents: Mapping[str, str] | Iterable[Document | str],
        *,
        split: bool = True,
        threads: int | None = None,
        progress: bool | None = None,
    ) -> Summary:
        """Add documents; one whose id is there is replaced if it differs, and left alone if not.

        Many are committed in groups. One that cannot be stored is refused before anything is written, unless they come
        from an iterator: then the groups before it stay.

        Parameters
        ----------
        documents : mapping of id to text, or iterable of Document or str
            A text alone gets an id that is made from it.
        split : bool
            Split documents that are longer than the model reads into passages ``id##0``, ``id##1``, …; otherwise they
            are cut off.
        threads, progress
            As for `Encoder.encode_document`.

        Returns
        -------
        Summary
            How many were added, updated and unchanged, and the ids of those that were written.
        """
        given: Iterable[Document | str] = documents
        if isinstance(documents, (str, bytes)) or not isinstance(documents, Iterable):
            raise invalid("documents", "add", "a mapping or an iterable of texts", documents)
        if isinstance(documents, Mapping):
            given = (Document(name, text) for name, text in documents.items())
        sources: Iterable[Source] = map(text_source, given)
        if isinstance(documents, (Mapping, Sequence)):  # all are checked before anything is written
            sources = list(sources)
        return self.add_sources(sources, split=split, threads=threads, progress=progress)

    def add_files(
        self,
        paths: str | Path | Iterable[str | Path],
        *,
        sync: bool = False,
        selection: Selection | None = None,
        fields: Fields | None = None,
        threads: int | None = None,
        progress: bool | None = None,
    ) -> Summary:
        """Add the files and folders that ``weft index`` takes, encoding only what changed since the last time.

        Parameters
        ----------
        paths : path, or iterable of paths
        sync : bool
            Remove documents whose files under the paths are gone.
        selection : Selection, optional
            Which files of folders to take.
        fields : Fields, optional
            Which fields of rows (JSON lines, CSV, TSV, Parquet) are ids, texts, titles and metadata.
        threads, progress
            As for `Encoder.encode_document`.

        Returns
        -------
        Summary
            With what was `skipped`, and why.
        """
        listed = [str(path) for path in ([paths] if isinstance(paths, (str, Path)) else paths)]
        summary = Summary()
        return self.add_found(
            find(listed, selection or Selection(), summary.skipped.append),
            fields=fields,
            roots=listed if sync else None,
            threads=threads,
            progress=progress,
            summary=summary,
        )

    def add_found(
        self,
        found: Iterable[Found],
        *,
        fields: Fields | None = None,
        roots: Iterable[str] | None = None,
        stdin: IO[bytes] | None = None,
        largest: int = LARGEST,
        split: bool | None = None,
        length: int | None = None,
        threads: int | None = None,
        progress: bool | None = None,
        summary: Summary | None = None,
    ) -> Summary:
        """Add files that `weft.sources.find.find` found; a file that is there under another name keeps that name.

        Parameters
        ----------
        found : iterable of Found
        fields
            As for `add_files`.
        roots : iterable of str, optional
            The paths that were given: remove documents whose files under them are gone.
        stdin : binary stream, optional
            What ``-`` stands for.
        largest : int
            The maximum size of a single text, in bytes.
        split, length, threads, progress, summary
            As for `weft.ingest.update`.
        """
        files, made = as_known(self.index, found), summary or Summary()
        return self.add_sources(
            read_sources(files, fields or Fields(), made.skipped.append, stdin=stdin, largest=largest),
            roots=None if roots is None else [path if path == STDIN else name_of(Path(path)) for path in roots],
            split=split,
            length=length,
            threads=threads,
            progress=progress,
            total=sum(file.size for file in files) or None,
            summary=made,
        )

    def add_sources(self, sources: Iterable[Source], **options: Any) -> Summary:
        """Add documents from any sources, encoding only what changed; the options are those of `weft.ingest.update`."""
        made = update(self.index, self.encoder, sources, **options)
        self._notice_passages(made.languages, made.passages, self.encoder)
        return made

    def delete(self, ids: str | Iterable[str]) -> int:
        """Remove documents with all their passages; unknown ids are ignored. Return how many passages were there."""
        return self.index.delete({member.id for name in checked_ids(ids) for member in family(self.index, name)})

    def compact(self) -> None:
        """Merge all segments now and drop what was deleted: see `Index.compact`."""
        self.index.compact()

    def lock(self) -> None:
        """Take the writer's lock now and keep it until `close`."""
        self.index.lock()

    def remember_model(self, model: str | Path) -> None:
        """Remember where the model is: a folder or a name, as `open` takes it."""
        self.index.remember_model(model_reference(str(model)))

    def remember_alignment(self, alignment: str | None) -> None:
        """Remember an alignment for searches that name none; None goes back to the model's own, or the sum of max."""
        if alignment is None:
            with self.index.reading_catalogue() as catalogue:
                alignment = catalogue.settings().get(OF_MODEL, ALIGNMENT)
        self.index.remember_alignment(alignment)
