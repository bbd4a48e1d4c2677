"""`update`: make an index hold what some sources hold now, encoding only what changed.

The metadata of each passage tell what changed: ``weft.source`` is its file, ``weft.id`` its document, ``weft.hash`` the
hash of that document's content, ``weft.of`` how many passages it has, ``weft.file`` the file's real place, relative to
the index, and ``weft.language`` its language if the model does not read it. There is no second table that could
disagree with the documents: a passage that was deleted by hand, or never written because of a crash, is missing and
comes back.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from weft.encoders import Encoder, split_text
from weft.errors import DataError, MissingExtraError, counted
from weft.ingest.languages import language_note, remember_other_languages
from weft.ingest.origins import FILE, ID, ORIGIN, place_from, real_path
from weft.ingest.passages import passages_of, place_of
from weft.ingest.texts import note_of
from weft.search import Index
from weft.sources.files import Source
from weft.sources.find import Skipped, is_under
from weft.storage.families import NOTES, family, is_passage_id, parent_of
from weft.types import Document, TokenVectors

FIRST_PASSAGES = 32
"""The first commit is made after this many passages, so that little is lost if it ends early; later ones hold more."""
MOST_PASSAGES = 1024
_AT_ONCE = 32  # passages encoded between two steps of the progress bar


@dataclass
class Summary:
    """What `update` did, in documents (files, rows), and in passages written."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    passages: int = 0
    cut: int = 0
    """Documents that were longer than the model reads, and not split."""
    clashes: int = 0
    """Documents that were left out because another one has their id."""
    skipped: list[Skipped] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    """Of the documents added and updated."""
    languages: dict[str, int] = field(default_factory=dict)
    """Passages written that are in a language the model does not read, by language code (ISO 639-1)."""

    def __str__(self) -> str:
        counts = (
            f"{self.added:,} added, {self.updated:,} updated, {self.unchanged:,} unchanged, {self.removed:,} removed"
        )
        return f"{counts}, {len(self.skipped):,} skipped ({counted(self.passages, 'passage')} written)"


@dataclass
class _Pending:
    """A changed document, read and split: the passages to write, and the ids that are then no longer its."""

    source: Source
    passages: list[Document]
    stale: set[str]
    new: bool


def update(
    index: Index,
    encoder: Encoder,
    sources: Iterable[Source],
    *,
    roots: Iterable[str] | None = None,
    split: bool | None = None,
    length: int | None = None,
    threads: int | None = None,
    progress: bool | None = None,
    total: int | None = None,
    summary: Summary | None = None,
) -> Summary:
    """Add new documents, replace changed ones, and leave the others alone.

    Parameters
    ----------
    index, encoder
        The encoder must be the one that the index was made with.
    sources : iterable of Source
        Read once, a batch at a time.
    roots : iterable of str, optional
        Remove documents whose file lies under one of these paths and that are not among the sources any more. Of files
        that are there but could not be read nothing is removed, nor anything if there are no sources at all.
    split : bool, optional
        Split documents that are longer than the model reads into passages; by default all but test collections.
    length : int, optional
        The maximum number of tokens of a passage; by default what the model reads.
    threads, progress
        As for `Encoder.encode_document`.
    total : int, optional
        Bytes to come, to estimate the time left.
    summary : Summary, optional
        Where to count, so that a caller can tell how far an interrupted call got; `skipped` may be filled by others.

    Returns
    -------
    Summary
    """
    from tqdm import tqdm  # slow to import

    made = Summary() if summary is None else summary
    before = made.passages
    if length is not None:
        split_text("", encoder, length=length)  # refuses what the model cannot read, before any work
    run = _Run(index, encoder, made, split, length, threads)
    hidden = None if progress is None else not progress  # None: tqdm asks whether stderr is a terminal
    bar = tqdm(total=total, unit="B", unit_scale=True, disable=hidden, smoothing=0.1, desc="indexing", leave=False)
    with bar, index.merging.paused():
        for source in sources:
            run.take(source, bar)
        run.flush(bar)
        if roots is not None and run.seen:  # no sources at all are more likely a mistake than an order
            run.remove_gone(list(roots))
    written = made.passages - before
    if written > FIRST_PASSAGES:
        index.settle()
    elif written or made.removed:  # little, and perhaps one of many such calls: in tiers, as after any other write
        index.merging.after_write()
    return made


class _Run:
    def __init__(
        self,
        index: Index,
        encoder: Encoder,
        summary: Summary,
        split: bool | None,
        length: int | None,
        threads: int | None,
    ) -> None:
        self.index, self.encoder, self.summary = index, encoder, summary
        self.split, self.length, self.threads = split, length, threads
        # The index decides which saliences it keeps. Those that only rank tokens must not come to weigh in one that
        # was made without saying so.
        weighs_more = index.salience_weighs and not encoder.salience_weighs
        chooses = any(part is not None for part in (index.beta_d, index.keep, index.find_by))
        self.salience = encoder.has_salience and (chooses or not weighs_more)
        self.seen: dict[str, tuple[str, str]] = {}  # by id: where it stands, and its hash
        self._files: dict[Path, str] = {}
        self.pending: list[_Pending] = []
        self.waiting = 0  # passages in all that is pending
        self.limit = FIRST_PASSAGES

    def take(self, source: Source, bar: Any) -> None:
        """Look at one document; encode once enough is pending."""
        if source.id in self.seen:
            self._again(source)
            return
        self.seen[source.id] = source.place, source.hash
        old = [d for d in family(self.index, source.id) if source.id in (d.id, note_of(d, "id"))]
        refusal = self._refusal(source, old)
        if refusal:
            self.summary.skipped.append(Skipped(source.origin or source.id, refusal, lost=True, line=source.line))
            bar.update(source.size)
            return
        if source.former:  # the same row under the other scope of ids
            old += [d for d in family(self.index, source.former) if self._is_former(d, source)]
        digest = self._digest(source)
        notes = {"hash": digest, "source": source.origin, "id": source.id}
        current = [d for d in old if all(note_of(d, key) == value for key, value in notes.items())]
        if current and len(current) == note_of(current[0], "of"):
            self.summary.unchanged += 1
            stale = {d.id for d in old} - {d.id for d in current}
            if stale:  # an update was interrupted between writing the new passages and removing the old
                self.index.delete(stale)
            bar.update(source.size)
            return
        try:
            passages = self._passages(source, digest)
        except (DataError, MissingExtraError) as error:
            self.summary.skipped.append(Skipped(source.origin, str(error), lost=True))
            bar.update(source.size)
            return
        # A document of many passages may have been interrupted half-way: what is there already stays.
        there = {d.id for d in current}
        missing = [passage for passage in passages if passage.id not in there]
        stale = {d.id for d in old} - {passage.id for passage in passages}
        self.pending.append(_Pending(source, missing, stale, new=not old))
        self.waiting += len(missing)
        if self.waiting >= self.limit:
            self.flush(bar)
            self.limit = min(2 * self.limit, MOST_PASSAGES)

    def _refusal(self, source: Source, old: list[Document]) -> str:
        """Say why a document cannot have its id: it is, or may become, that of a passage of another."""
        if is_passage_id(source.id):
            return f"the id {source.id!r} ends in ## and a number, which is how passages are named"
        other = next((parent_of(d) for d in old if d.id == source.id and parent_of(d) is not None), None)
        if other is not None:  # written before passages had names of their own
            return f"the id {source.id!r} is that of a passage of {other!r}; delete {other!r} and add it again first"
        for d in old:
            origin, place = note_of(d, "source"), note_of(d, "file")
            if not source.origin or not origin or source.file is None:
                continue  # of no file: whoever comes last is meant
            there = os.path.exists(real_path(self.index, place) if place else origin)
            if there and (origin != source.origin or place not in (None, self._place(source.file))):
                self.summary.clashes += 1
                return _clash(source, origin if origin != source.origin else f"{origin}, another file of that name")
        return ""

    def _again(self, source: Source) -> None:
        """Report a second document of one id in one run."""
        place, digest = self.seen[source.id]
        reason = f"the id {source.id!r} occurs twice"
        if digest != source.hash:
            self.summary.clashes += 1
            reason = _clash(source, place)
        self.summary.skipped.append(Skipped(source.origin, reason, line=source.line))

    def _is_former(self, document: Document, source: Source) -> bool:
        return bool(note_of(document, "id") == source.former and note_of(document, "source") == source.origin)

    def _place(self, path: Path) -> str:
        if path not in self._files:
            self._files = {path: place_from(self.index, path)}  # rows of one file come one after another
        return self._files[path]

    def flush(self, bar: Any) -> None:
        """Encode and commit what is pending, then remove what it replaces."""
        if not self.pending:
            return
        passages = [(passage, p.source.size / len(p.passages)) for p in self.pending for passage in p.passages]
        for start in range(0, len(passages), MOST_PASSAGES):
            self._write(passages[start : start + MOST_PASSAGES], bar)
        stale = set().union(*(p.stale for p in self.pending)) - {passage.id for passage, _ in passages}
        if stale:
            self.index.delete(stale)
        for p in self.pending:
            self.summary.ids.append(p.source.id)
            self.summary.added += p.new
            self.summary.updated += not p.new
        self.pending, self.waiting = [], 0

    def _write(self, passages: list[tuple[Document, float]], bar: Any) -> None:
        """Encode passages, each with its share of a file's bytes, and commit them in one transaction."""
        parts = []
        for start in range(0, len(passages), _AT_ONCE):
            part = passages[start : start + _AT_ONCE]
            found = self.encoder.encode_document(
                [passage.text for passage, _ in part],
                threads=self.threads,
                progress=False,
                dtype=np.float16,
                truncation="ignore",
                salience=self.salience,
            )
            self.summary.cut += len(found.truncation.texts)
            parts.append(found)
            bar.update(sum(size for _, size in part))
        self.index.add([passage for passage, _ in passages], TokenVectors.concatenate(parts), flat=True)
        languages = Counter(filter(None, (note_of(passage, "language") for passage, _ in passages)))
        if languages:
            remember_other_languages(self.index)
            self.summary.languages = dict(Counter(self.summary.languages) + languages)
        self.summary.passages += len(passages)
        bar.set_postfix_str(counted(self.summary.passages, "passage"))

    def remove_gone(self, roots: list[str]) -> None:
        """Remove what came from under the roots and was not seen this time."""
        lost = {skipped.path for skipped in self.summary.skipped if skipped.lost}
        real_roots, real_lost = ([os.path.realpath(path) for path in paths] for paths in (roots, lost))

        @cache
        def concerned(origin: str, place: str | None) -> bool:
            real = os.path.realpath(origin) if place is None else real_path(self.index, place)
            wanted = any(is_under(origin, root) for root in roots) or any(is_under(real, root) for root in real_roots)
            kept = any(is_under(origin, path) for path in lost) or any(is_under(real, path) for path in real_lost)
            return wanted and not kept

        gone: dict[str, list[str]] = {}
        with self.index.reading_catalogue() as catalogue:
            marked = catalogue.marked(ORIGIN, ID, FILE)
        for name, origin, document, place in marked:
            if origin and document not in self.seen and concerned(origin, place):
                gone.setdefault(document, []).append(name)
        if gone:
            self.index.delete([name for names in gone.values() for name in names])
        self.summary.removed += len(gone)

    def _splits(self, source: Source) -> bool:
        return not source.whole if self.split is None else self.split

    def _digest(self, source: Source) -> str:
        """Name the content and the way in which it is split: another length makes other passages."""
        return f"{source.hash}:{self.length or self.encoder.document_length if self._splits(source) else 'whole'}"

    def _passages(self, source: Source, digest: str) -> list[Document]:
        document, layout = source.read(), source.layout()
        split = self._splits(source)
        passages = passages_of(document, layout, self.encoder, self.length) if split else [document]
        note = {"source": source.origin, "id": source.id, "hash": digest, "of": len(passages)}
        if source.file is not None:
            note["file"] = self._place(source.file)
        return [
            Document(
                passage.id,
                passage.text,
                {
                    **passage.metadata,
                    **place_of(passage, layout, len(passages) > 1),
                    NOTES: {**note, **language_note(passage.text, self.encoder)},
                },
            )
            for passage in passages
        ]


def _clash(source: Source, other: str) -> str:
    elsewhere = source.line is not None and other.partition(", line ")[0] != source.origin
    rows = " (--id-scope file keeps both)" if elsewhere else ""
    return f"the id {source.id!r} is that of {other} too{rows}"
