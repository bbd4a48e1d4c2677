"""Find the files to index: walk folders, leave out what is not wanted, and give a reason for every omission."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from weft.errors import DataError
from weft.sources.kinds import kind_of
from weft.storage.folder import CATALOGUE

STDIN = "-"
BEIR = "beir"
IGNORED = "left out by .gitignore"
NO_KIND = "of no known kind"
_IGNORES = (".gitignore", ".ignore")


class Skipped(NamedTuple):
    """Something that was not indexed.

    `lost` is True if it may hold texts that could not be read, so that what an index has of it must stay. `line` is set
    if only one row of the file is meant.
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
    """The user named this file, not just a folder that contains it."""


@dataclass(frozen=True)
class Selection:
    """Which files of a folder are wanted.

    Patterns are those of ``.gitignore``: one with a slash in it is compared with the path below the folder, any other
    with each name in that path.

    Examples
    --------
    >>> Selection(exclude=("drafts", "*.tmp")).wants("drafts/a.md"), Selection(include=("*.md",)).wants("b/a.md")
    (False, True)
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    ignore: bool = True
    """Leave out what ``.gitignore`` and ``.ignore`` files name."""
    follow_links: bool = False
    """Take what links out of the folder lead to."""

    def wants(self, below: str) -> bool:
        """Tell whether a file is wanted, by its path below the folder."""
        return not self.excludes(below) and (not self.include or _spec(self.include).match_file(below))

    def excludes(self, below: str) -> bool:
        """Tell whether a file, or a whole folder (its path ends with a slash), is excluded."""
        return _spec(self.exclude).match_file(below)


@lru_cache(maxsize=64)
def _spec(patterns: tuple[str, ...]) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines(patterns)


def find(paths: Iterable[str | Path], selection: Selection, report: Report) -> list[Found]:
    """List the files under some paths, in a stable order, each once, however many names lead to it.

    Hidden files, and folders that are indexes, are left out without a report.
    """
    return list(find_by_place(paths, selection, report).values())


def find_by_place(paths: Iterable[str | Path], selection: Selection, report: Report) -> dict[str, Found]:
    """List what `find` does, by where each file really is."""
    found: dict[str, Found] = {}
    for given in paths:
        if str(given) == STDIN:
            found.setdefault(STDIN, Found(Path(STDIN), STDIN, STDIN, 0, True))
            continue
        path = Path(given)
        if not path.exists():
            why = "a link to nowhere" if path.is_symlink() else "no such file or folder"
            raise DataError(f"{why}: {str(given)!r}")
        listed = list(_Walk(path, selection, report).files(path)) if path.is_dir() else [_asked(path)]
        for file in sorted(listed, key=lambda file: os.path.islink(file.path)):  # a file's own name before a link's
            real = real_name(file.path)
            known = found.setdefault(real, file)
            if file.asked and not known.asked:
                found[real] = known._replace(asked=True)
    return found


def real_name(path: Path) -> str:
    """Return where a file really is; of a folder's files, the folder is looked up once."""
    if os.path.islink(path):
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    return (
        os.path.realpath(path) if name in ("", ".", "..") else os.path.join(_real_folder(os.path.abspath(folder)), name)
    )


@lru_cache(maxsize=256)
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)


def name_of(path: Path) -> str:
    """Write a path as ids and messages have it: as given, without detours, with forward slashes."""
    return os.path.normpath(path).replace(os.sep, "/")


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


def _asked(path: Path) -> Found:
    if not path.is_file():
        raise DataError(f"{str(path)!r} is neither a file nor a folder")
    if name_of(path) != printable(name_of(path)):
        raise DataError(f"{printable(name_of(path))}: its name is not valid Unicode")
    return Found(path, name_of(path), kind_of(path.name) or "text", path.stat().st_size, True)


class _Walk:
    """A walk through a folder."""

    def __init__(self, root: Path, selection: Selection, report: Report) -> None:
        self.root, self.selection, self.report = root, selection, report
        self.inside = os.path.realpath(root)
        self.seen: set[tuple[int, int]] = set()
        self.ignores = dict(_above(root)) if selection.ignore else {}

    def files(self, top: Path) -> Iterator[Found]:
        """Yield the files below a folder, in order."""
        for here, folders, files in os.walk(top, onerror=self._failed):
            folder = Path(here)
            if not self._enters(folder):
                folders.clear()
                continue
            if self.selection.ignore:
                self.ignores.update(_rules(folder))
            below = folder.relative_to(self.root).as_posix()
            folders[:] = sorted(f for f in folders if f[0] != "." and self._takes_folder(folder / f, _join(below, f)))
            corpus = next((c for c in ("corpus.jsonl", "corpus.jsonl.gz") if c in files), None)
            if corpus is not None and ("qrels" in folders or any(f.startswith("queries.jsonl") for f in files)):
                folders[:] = [f for f in folders if f != "qrels"]  # judgements are not texts
                files = [corpus]  # nor are queries, and what says where the collection comes from
            else:
                corpus = None
            for file in sorted(files):
                if file[0] != "." and self.selection.wants(_join(below, file)):
                    path = folder / file
                    if not self._ignores(path):
                        yield from self._file(path, file == corpus)
            links = [f for f in folders if (folder / f).is_symlink()]  # which the walk does not enter
            folders[:] = [f for f in folders if f not in links]
            for link in links:
                if self.selection.follow_links:
                    yield from self.files(folder / link)
                elif not self._is_inside(folder / link):
                    self._leave_out(folder / link)

    def _enters(self, folder: Path) -> bool:
        try:
            status = folder.stat()
            known = (status.st_dev, status.st_ino) in self.seen or (folder / CATALOGUE).is_file()
        except OSError as error:  # it may be listed but not entered, or has just gone
            self._failed(error, folder)
            return False
        self.seen.add((status.st_dev, status.st_ino))
        return not known

    def _takes_folder(self, folder: Path, below: str) -> bool:
        return not self.selection.excludes(below + "/") and not self._ignores(folder, "/")

    def _ignores(self, path: Path, end: str = "") -> bool:
        """Ask the rules of the nearest folder that name the path."""
        if not self.ignores:
            return False
        whole = Path(os.path.abspath(path))
        for folder in whole.parents:
            rules = self.ignores.get(folder)
            said = None if rules is None else rules.check_file(whole.relative_to(folder).as_posix() + end).include
            if said:
                self.report(Skipped(printable(name_of(path)), IGNORED))
            if said is not None:
                return said
        return False

    def _is_inside(self, path: Path) -> bool:
        return is_under(os.path.realpath(path), self.inside)

    def _leave_out(self, path: Path) -> None:
        self.report(Skipped(printable(name_of(path)), "a link out of the folder (--follow-links takes it)"))

    def _failed(self, error: OSError, folder: Path | None = None) -> None:
        name = name_of(Path(error.filename) if folder is None else folder)
        self.report(Skipped(printable(name), f"cannot be read: {error.strerror}", lost=True))

    def _file(self, path: Path, corpus: bool) -> Iterator[Found]:
        name = name_of(path)
        if name != printable(name):
            self.report(Skipped(printable(name), "its name is not valid Unicode"))
            return
        try:
            status = path.stat()
        except OSError as error:
            why = "a link to nowhere" if path.is_symlink() else f"cannot be read: {error.strerror}"
            self.report(Skipped(name, why, True))
            return
        kind = BEIR if corpus else kind_of(path.name) or ("text" if self.selection.include else None)
        if not stat.S_ISREG(status.st_mode):
            self.report(Skipped(name, "not a regular file"))
        elif kind is None:
            self.report(Skipped(name, f"{NO_KIND} ({path.suffix or 'no suffix'})"))
        elif not self.selection.follow_links and os.path.islink(path) and not self._is_inside(path):
            self._leave_out(path)
        elif status.st_size == 0:
            self.report(Skipped(name, "empty"))
        else:
            yield Found(path, name, kind, status.st_size, False)


def _rules(folder: Path) -> Iterator[tuple[Path, GitIgnoreSpec]]:
    """Yield the full path of a folder and the rules of its own ignore files, if it has any."""
    lines: list[str] = []
    for name in _IGNORES:
        path = folder / name
        try:
            if path.is_file() and path.stat().st_size <= 2**20:
                lines += path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:  # as good as none
            continue
    if lines:
        yield Path(os.path.abspath(folder)), GitIgnoreSpec.from_lines(lines)


def _above(root: Path) -> Iterator[tuple[Path, GitIgnoreSpec]]:
    """Yield the rules of the folders around one, up to the root of its Git repository."""
    whole = Path(os.path.abspath(root))
    around = [whole, *whole.parents]
    top = next((i for i, folder in enumerate(around) if (folder / ".git").exists()), None)
    if top is None:
        return
    for folder in around[1 : top + 1]:
        for _, rules in _rules(folder):
            if not rules.match_file(whole.relative_to(folder).as_posix() + "/"):  # else: asked for all the same
                yield folder, rules


def _join(below: str, name: str) -> str:
    return name if below == "." else f"{below}/{name}"
