"""Finding the files to index: folders are walked, what is not wanted is left out, and every omission has a reason."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from weft.errors import DataError
from weft.storage.database import FILE

STDIN = "-"
BEIR = "beir"
KINDS = {
    **dict.fromkeys((".txt", ".text", ".rst", ".org", ".adoc"), "text"),
    **dict.fromkeys((".md", ".markdown"), "markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    ".pdf": "pdf",
    ".docx": "docx",
    **dict.fromkeys((".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"), "jsonl"),
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
"""What a file is, by how its name ends."""


class Skipped(NamedTuple):
    """Something that was not indexed.

    `lost` is True if it may well hold texts that could not be read: what an index has of it must then stay. `line` is
    set if only one row of the file is meant.
    """

    path: str
    reason: str
    lost: bool = False
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.path}{'' if self.line is None else f', line {self.line}'}: {self.reason}"


Report = Callable[[Skipped], None]


class Found(NamedTuple):
    """A file to index. `name` is its path as the user gave it, the beginning of its documents' ids."""

    path: Path
    name: str
    kind: str
    size: int
    asked: bool
    """The user named this very file, and did not merely name a folder that has it."""


@dataclass(frozen=True)
class Selection:
    """Which files of a folder are wanted.

    A pattern with a slash is compared with the path below the folder, any other with each name in that path.

    Examples
    --------
    >>> Selection(exclude=("drafts", "*.tmp")).wants("drafts/a.md"), Selection(include=("*.md",)).wants("b/a.md")
    (False, True)
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def wants(self, below: str) -> bool:
        """Tell whether a file is wanted, by its path below the folder."""
        return not self.excludes(below) and (not self.include or _matches(below, self.include))

    def excludes(self, below: str) -> bool:
        """Tell whether a file or a whole folder is excluded."""
        return _matches(below, self.exclude)


def find(paths: Iterable[str | Path], selection: Selection, report: Report) -> list[Found]:
    """List the files under some paths, in a stable order, each once.

    Hidden files, and folders that are indexes, are left out in silence; links that lead back into a folder that was
    already seen are not followed.
    """
    found: dict[str, Found] = {}
    for given in paths:
        if str(given) == STDIN:
            found.setdefault(STDIN, Found(Path(STDIN), STDIN, STDIN, 0, True))
            continue
        path = Path(given)
        if not path.exists():
            why = "a link to nowhere" if path.is_symlink() else "no such file or folder"
            raise DataError(f"{why}: {str(given)!r}")
        for file in _walk(path, selection, report) if path.is_dir() else [_asked(path)]:
            found.setdefault(file.name, file)
    return list(found.values())


def name_of(path: Path) -> str:
    """Write a path as ids and messages have it: as given, without detours, with forward slashes."""
    return Path(os.path.normpath(path)).as_posix()


def printable(name: str) -> str:
    """Write a name so that it can be printed, whatever bytes the disk has."""
    return name.encode("utf-8", "backslashreplace").decode()


def is_under(name: str, root: str) -> bool:
    """Tell whether a file's name lies under a path given by the user, both as `name_of` writes them.

    Examples
    --------
    >>> is_under("docs/a.md", "docs"), is_under("docs-old/a.md", "docs"), is_under("a.md", "."), is_under("/a", ".")
    (True, False, True, False)
    """
    if root == ".":
        return name not in ("", STDIN) and not name.startswith(("/", "../"))  # "": of no file
    return name == root or name.startswith(root.rstrip("/") + "/")


def kind_of(name: str) -> str | None:
    """Tell what a file is by its name, or None if it is of no known kind."""
    lower = name.lower()
    return next((kind for suffix, kind in KINDS.items() if lower.endswith(suffix)), None)


def _asked(path: Path) -> Found:
    if not path.is_file():
        raise DataError(f"{str(path)!r} is neither a file nor a folder")
    if name_of(path) != printable(name_of(path)):
        raise DataError(f"{printable(name_of(path))}: its name is not valid Unicode")
    return Found(path, name_of(path), kind_of(path.name) or "text", path.stat().st_size, True)


def _walk(root: Path, selection: Selection, report: Report) -> Iterator[Found]:
    seen: set[tuple[int, int]] = set()

    def failed(error: OSError, folder: Path | None = None) -> None:
        name = name_of(Path(error.filename) if folder is None else folder)
        report(Skipped(printable(name), f"cannot be read: {error.strerror}", lost=True))

    for here, folders, files in os.walk(root, followlinks=True, onerror=failed):
        folder = Path(here)
        try:
            status = folder.stat()
            known = (status.st_dev, status.st_ino) in seen or (folder / FILE).is_file()
        except OSError as error:  # it may be listed but not entered, or has just gone
            failed(error, folder)
            known = True
        if known:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        below = folder.relative_to(root).as_posix()
        folders[:] = sorted(f for f in folders if f[0] != "." and not selection.excludes(_join(below, f)))
        corpus = next((c for c in ("corpus.jsonl", "corpus.jsonl.gz") if c in files), None)
        if corpus is not None and ("qrels" in folders or any(f.startswith("queries.jsonl") for f in files)):
            folders[:] = [f for f in folders if f != "qrels"]  # judgements are not texts
            files = [f for f in files if f == corpus or not f.startswith("queries.jsonl")]
        else:
            corpus = None
        for file in sorted(files):
            if file[0] != "." and selection.wants(_join(below, file)):
                yield from _file(folder / file, file == corpus, selection, report)


def _file(path: Path, corpus: bool, selection: Selection, report: Report) -> Iterator[Found]:
    name = name_of(path)
    if name != printable(name):
        report(Skipped(printable(name), "its name is not valid Unicode"))
        return
    try:
        status = path.stat()
    except OSError as error:
        report(Skipped(name, "a link to nowhere" if path.is_symlink() else f"cannot be read: {error.strerror}", True))
        return
    kind = BEIR if corpus else kind_of(path.name) or ("text" if selection.include else None)
    if not stat.S_ISREG(status.st_mode):
        report(Skipped(name, "not a regular file"))
    elif kind is None:
        report(Skipped(name, f"of no known kind ({path.suffix or 'no suffix'})"))
    elif status.st_size == 0:
        report(Skipped(name, "empty"))
    else:
        yield Found(path, name, kind, status.st_size, False)


def _join(below: str, name: str) -> str:
    return name if below == "." else f"{below}/{name}"


def _matches(below: str, patterns: Iterable[str]) -> bool:
    parts = PurePosixPath(below).parts
    return any(
        fnmatchcase(below, p.strip("/")) or below.startswith(p.strip("/") + "/")
        if "/" in p.strip("/")
        else any(fnmatchcase(part, p.strip("/")) for part in parts)
        for p in patterns
    )
