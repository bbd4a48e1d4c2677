"""Rebuild a catalogue that SQLite can no longer read from the rows that still stand on its pages.

Rows of documents, segments and settings carry checksums, so what is found is what was written. Which of the documents
count, the tombstones say and the numbers in segment files. The old catalogue goes to the folder ``quarantine``.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import CorruptIndexError
from weft.storage.arrays import Arrays, fsync_folder
from weft.storage.catalogue import Catalogue, SegmentRow
from weft.storage.database import FILE, UNREADABLE, connect, faults_named, log_size
from weft.storage.documents import checked_settings
from weft.storage.folder import SEGMENTS, is_segment_name, quarantine, segment_files
from weft.storage.lock import WriterLock, last_mark
from weft.storage.pages import Pages, Row
from weft.storage.segments import Segment, open_segment
from weft.storage.segments.coded import CodedSegment
from weft.storage.sums import PER_COMMIT, row_sum, segment_sum, settings_sum

_NOT_KEPT = (*PER_COMMIT, "format_version")
"""Settings that are not `create`'s."""


@dataclass
class _Found:
    """What the pages of a catalogue still say."""

    documents: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """Number → id, checksum, text, metadata"""
    ids: dict[int, str] = field(default_factory=dict)
    """Number → id, as SQLite's list of ids says: it has no checksum, and only names what is lost"""
    segments: dict[str, SegmentRow] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)
    """File → number of the segment, as SQLite's list of files says"""
    tombstones: set[int] = field(default_factory=set)
    settings: dict[str, Any] | None = None
    generation: int = 0
    last: int = 0
    """The highest number that a document is known to have had"""


@dataclass(frozen=True)
class Rebuilt:
    """What `rebuild` did."""

    lost: tuple[str, ...]
    notes: tuple[str, ...]


def broken(folder: Path) -> str:
    """Return why SQLite cannot read all of a catalogue, or "" if it can."""
    try:
        catalogue = Catalogue.open(folder)
        try:
            catalogue.settings(), catalogue.generation(), catalogue.segments(), catalogue.torn()
            catalogue.tombstones(verify=False)
            return "; ".join(catalogue.integrity()[:3])
        finally:
            catalogue.close()
    except CorruptIndexError as error:
        return str(error)


def rebuild(folder: Path, why: str) -> Rebuilt:
    """Rebuild the catalogue of an index. `repair` matches documents with segments afterwards."""
    with faults_named(folder):
        lock = WriterLock(folder)
        try:
            return _rebuild(folder, why)
        finally:
            lock.release()


def _rebuild(folder: Path, why: str) -> Rebuilt:
    notes = [f"the catalogue was rebuilt: {why}"]
    with suppress(*UNREADABLE):  # closing the last connection writes the log back, as far as SQLite can read it
        db = connect(folder)
        try:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            db.close()
    if log_size(folder):
        notes.append("the catalogue's log could not be read: the last commits are lost")
    found = _read(Pages(folder / FILE))
    opened = _opened(folder, found)
    if not found.documents:  # nor is there any in a format without checksums
        raise CorruptIndexError(f"{folder / FILE}: damaged beyond repair: no document can be read ({why})")
    if found.settings is None:
        found.settings = _guessed_settings(folder / FILE, opened)
        notes.append("the settings were lost, and the model with them: name it with --model")
    held = np.concatenate([np.zeros(0, np.int64), *(segment.numbers for segment in opened.values())])
    live = set(held.tolist()) - found.tombstones
    # Of an id that is there twice, an older row is left over from before an update.
    newest = {row[0]: number for number, row in sorted(found.documents.items()) if number not in found.tombstones}
    kept = {number: found.documents[number] for number in sorted(newest.values())}
    rowless = live - found.documents.keys()
    lost = sorted({found.ids[number] for number in rowless & found.ids.keys()} - set(newest))
    nameless = len(rowless - found.ids.keys())
    if nameless:
        notes.append(f"{nameless} entries of segments have no row in it: deleted, or lost with their ids")
    found.last = max([found.last, *kept, *held.tolist(), *found.tombstones])
    _replace(folder, found, kept)
    notes.append(f"{len(kept)} documents were found in it")
    return Rebuilt(tuple(lost), tuple(notes))


def _read(pages: Pages) -> _Found:
    found, settings = _Found(), defaultdict[int, dict[str, Any]](dict)
    for row in pages.rows():
        match row:
            case Row(_, int(number), [None, str(name), int(stored), str(text), str(metadata)]):
                found.last = max(found.last, number)
                if stored == row_sum(name, text, metadata):
                    found.documents[number] = (name, stored, text, metadata)
            case Row(_, int(number), [None, str(file), int(count), int(tokens), int(first), int(stored)]):
                if is_segment_name(file) and stored == segment_sum(file, count, tokens, first):
                    found.segments[file] = SegmentRow(number, file, count, tokens, first)
            case Row(_, int(), [None, int(number)]):
                found.tombstones.add(number)
            case Row(_, int(), ["documents", int(last)]):
                found.last = max(found.last, last)
            case Row(page, None, [str(key), str(value)]):
                settings[page][key] = value
            case Row(_, None, ["version", 4]):  # of the lexical index
                continue
            case Row(_, None, [str(name), int(number)]) if is_segment_name(name):
                found.order[name] = number
            case Row(_, None, [str(name), int(number)]):
                found.ids[number] = name
    for some in settings.values():
        if some.get("checksum") == str(settings_sum(some)):
            found.settings = {key: json.loads(value) for key, value in some.items() if key not in _NOT_KEPT}
            with suppress(ValueError):
                found.generation = int(some.get("generation", 0))
    return found


def _opened(folder: Path, found: _Found) -> dict[str, Segment]:
    """Return the segments that can be opened and whose numbers are known; add rows for those that lost theirs."""
    opened: dict[str, Segment] = {}
    for file, row in found.segments.items():
        with suppress(CorruptIndexError):
            opened[file] = open_segment(folder / SEGMENTS / file, row.first)
    rowless: list[Segment] = []
    for path in segment_files(folder):
        with suppress(CorruptIndexError):
            if path.name in found.segments or path.name not in found.order:
                continue
            segment = open_segment(path)
            if _lists_numbers(path):
                _adopt(found, opened, segment, int(segment.numbers[0]))
            else:
                rowless.append(segment)
    rowless.sort(key=lambda segment: found.order[segment.path.name])
    for segment, first in zip(rowless, _firsts(found, opened, [len(segment) for segment in rowless]), strict=False):
        segment.first = first
        _adopt(found, opened, segment, first)
    return opened


def _adopt(found: _Found, opened: dict[str, Segment], segment: Segment, first: int) -> None:
    file = segment.path.name
    opened[file] = segment
    found.segments[file] = SegmentRow(found.order[file], file, len(segment), segment.n_tokens, first)


def _firsts(found: _Found, opened: dict[str, Segment], lengths: list[int]) -> list[int]:
    """Return the first numbers of segments of these lengths, in the order of their making; [] unless it is certain.

    Numbers rise from segment to segment, and each is a document's or a tombstone's: if those that no other segment
    holds are just as many, and each segment's follow each other, there is one way to give them out.
    """
    held = {number for segment in opened.values() for number in segment.numbers.tolist()}
    numbers = sorted((found.documents.keys() | found.tombstones) - held)
    if len(numbers) != sum(lengths):
        return []
    firsts, at = list[int](), 0
    for length in lengths:
        mine = numbers[at : at + length]
        if not mine or mine[-1] - mine[0] != length - 1:
            return []
        firsts.append(mine[0])
        at += length
    return firsts


def _lists_numbers(path: Path) -> bool:
    """Tell whether a segment knows the numbers of its documents: else only the catalogue knew the first."""
    with Arrays(path) as stored:
        return "documents" in stored


def _guessed_settings(file: Path, opened: dict[str, Segment]) -> dict[str, Any]:
    """Return settings that fit the segments."""
    if not opened:
        raise CorruptIndexError(f"{file}: damaged beyond repair: neither settings nor segments can be read")
    dim = next(iter(opened.values())).dim
    bits = next((segment.codec.bits for segment in opened.values() if isinstance(segment, CodedSegment)), 8)
    return checked_settings({"dim": dim, "bits": bits, "encoder": "", "beta_d": None}, file)


def _replace(folder: Path, found: _Found, kept: dict[int, tuple[Any, ...]]) -> None:
    """Write a new catalogue beside the old one, put that into the quarantine, and the new one into its place."""
    assert found.settings is not None
    aside = quarantine(folder)
    with tempfile.TemporaryDirectory(prefix="catalogue-", dir=aside) as made:
        catalogue = Catalogue.create(Path(made), found.settings)
        try:
            with catalogue.transaction():
                catalogue.restore(found.segments.values(), kept, found.tombstones - kept.keys(), found.last)
                catalogue.raise_generation(max(found.generation, last_mark(folder)))
        finally:
            catalogue.close()  # which leaves no log
        old = Path(tempfile.mkdtemp(prefix="damaged-", dir=aside))
        shutil.copyfile(folder / FILE, old / FILE)
        _fsync(old / FILE)
        # A log that is not this catalogue's own would be taken for it.
        for name in (f"{FILE}-wal", f"{FILE}-shm"):
            with suppress(FileNotFoundError):
                (folder / name).rename(old / name)
        fsync_folder(old)
        shutil.copymode(folder / FILE, Path(made) / FILE)
        _fsync(Path(made) / FILE)
        os.replace(Path(made) / FILE, folder / FILE)
        fsync_folder(folder)


def _fsync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
