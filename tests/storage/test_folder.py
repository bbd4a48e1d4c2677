"""A folder from someone else: links are not followed, names lead nowhere, and other people's files stay."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest

from weft import Index, TokenVectors
from weft.errors import CorruptIndexError, NotAnIndexError, WeftError
from weft.storage.check import check
from weft.storage.repair import repair
from weft.storage.snapshot import snapshot

DIM = 4


def tokens(count=1):
    return TokenVectors.from_list([np.full((2, DIM), n + 1, np.float32) for n in range(count)])


@pytest.fixture
def path(tmp_path):
    with Index.create(tmp_path / "i.weft", DIM) as index:
        index.add(["a", "b"], tokens(2))
    return tmp_path / "i.weft"


@pytest.fixture
def treasure(tmp_path):
    """Files of someone who only opens the index."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "diary.txt").write_text("dear diary")
    (folder / "0123456789abcdef.seg").write_text("named like ours")
    return folder


def unharmed(treasure):
    return (treasure / "diary.txt").read_text() == "dear diary" and (treasure / "0123456789abcdef.seg").exists()


def write(path):
    with Index.open(path) as index:
        index.add(["c"], tokens())
        index.compact()


def test_segments_elsewhere(path, treasure):
    for file in (path / "segments").iterdir():
        shutil.copy(file, treasure)
    shutil.rmtree(path / "segments")
    (path / "segments").symlink_to(treasure)
    with pytest.raises(CorruptIndexError, match="segments: this is a link, which weft never makes and does not follow"):
        write(path)
    assert unharmed(treasure)


def test_a_lock_elsewhere(path, treasure):
    (path / "writer.lock").unlink()
    (path / "writer.lock").symlink_to(treasure / "diary.txt")
    with pytest.raises(CorruptIndexError, match="this is a link"):
        write(path)
    assert unharmed(treasure)


def test_a_lock_with_two_names(path, treasure):
    (path / "writer.lock").unlink()
    os.link(treasure / "diary.txt", path / "writer.lock")
    write(path)
    assert unharmed(treasure)


@pytest.mark.parametrize("name", ["catalogue.sqlite-wal", "catalogue.sqlite-shm"])
def test_a_log_with_two_names(path, treasure, name):
    """A hard link is no link to look at, but SQLite writes to these files when an index is only read."""
    (path / name).unlink(missing_ok=True)
    os.link(treasure / "diary.txt", path / name)
    for use in (lambda: Index.open(path).search(tokens(), 1), lambda: write(path)):
        with pytest.raises(CorruptIndexError, match="second name"):
            use()
    assert unharmed(treasure)


def test_a_catalogue_with_two_names_is_read_and_not_written(path, tmp_path):
    """As in a copy by ``cp -al``, which a writer would ruin."""
    copy = tmp_path / "copy.weft"
    shutil.copytree(path, copy, copy_function=os.link)
    before = (copy / "catalogue.sqlite").read_bytes()
    with Index.open(path) as index:
        assert len(index.search(tokens(), 5)[0]) == 2
    with pytest.raises(CorruptIndexError, match="second name"):
        write(path)
    assert (copy / "catalogue.sqlite").read_bytes() == before
    (copy / "catalogue.sqlite").unlink()
    write(path)
    assert check(Index.open(path)).sound


def test_a_log_that_would_be_folded_into_someone_elses_file(path, treasure, tmp_path):
    """SQLite reads all pages from the log, and writes them into the database when the index is closed."""
    crashed = tmp_path / "crashed.weft"
    with Index.create(tmp_path / "new.weft", DIM) as index:
        index.add(["a", "b"], tokens(2))
        shutil.copytree(tmp_path / "new.weft", crashed)
    assert (crashed / "catalogue.sqlite-wal").stat().st_size > 0
    (crashed / "catalogue.sqlite").unlink()
    (crashed / "catalogue.sqlite-shm").unlink()
    os.link(treasure / "diary.txt", crashed / "catalogue.sqlite")
    with suppress(WeftError), Index.open(crashed) as index:
        index.search(tokens(), 1)
    with pytest.raises(WeftError):
        write(crashed)
    assert unharmed(treasure)


@pytest.mark.parametrize("name", ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"])
def test_a_catalogue_elsewhere(path, treasure, name):
    (path / name).unlink(missing_ok=True)
    (path / name).symlink_to(treasure / "diary.txt")
    for use in (write, repair):
        with pytest.raises(CorruptIndexError, match="this is a link"):
            use(path)
    assert unharmed(treasure)
    assert not (path / "quarantine").exists()


def test_a_whole_catalogue_elsewhere_is_not_taken_over(path, tmp_path):
    shutil.copytree(path, tmp_path / "other.weft")
    (path / "catalogue.sqlite").unlink()
    (path / "catalogue.sqlite").symlink_to(tmp_path / "other.weft" / "catalogue.sqlite")
    with pytest.raises(CorruptIndexError, match="this is a link"):
        repair(path)
    assert (path / "catalogue.sqlite").is_symlink()


def test_a_journal_that_sqlite_would_obey(path):
    (path / "catalogue.sqlite-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(504))
    with pytest.raises(NotAnIndexError, match="journal"):
        Index.open(path)


def test_a_segment_that_is_a_link(path, treasure, tmp_path):
    (file,) = (path / "segments").iterdir()
    file.rename(treasure / "moved.seg")
    file.symlink_to(treasure / "moved.seg")
    with Index.open(path) as index, pytest.raises(CorruptIndexError, match="this is a link"):
        index.search(tokens(), 1)
    with pytest.raises(CorruptIndexError, match="this is a link"):
        snapshot(path, tmp_path / "snapshot")


@pytest.mark.parametrize("name", ["../../home/diary.txt", "/etc/passwd", "diary.txt", "", None, 7])
def test_a_segments_name_that_leads_out(path, treasure, name):
    (path / "catalogue.sqlite").chmod(0o644)
    with sqlite3.connect(path / "catalogue.sqlite") as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.execute("UPDATE segments SET file = ?", ("x" if name is None else name,))
    db.close()
    for use in (lambda: write(path), lambda: Index.open(path).search(tokens(), 1)):
        with pytest.raises(CorruptIndexError, match="it names a segment"):
            use()
    assert unharmed(treasure)


@pytest.mark.parametrize("name", ["quarantine", "quarantine/lost.jsonl"])
def test_what_repair_puts_aside_stays_inside(path, treasure, name):
    file = sorted((path / "segments").iterdir())[0]
    file.write_bytes(b"")
    if "/" in name:
        (path / "quarantine").mkdir()
    (path / name).symlink_to(treasure if name == "quarantine" else treasure / "diary.txt")
    with pytest.raises(CorruptIndexError, match="this is a link, which weft never makes and does not follow"):
        repair(path)
    assert unharmed(treasure)
    assert len(list(treasure.iterdir())) == 2


def test_what_repair_puts_aside_is_not_added_to_someone_elses_file(path, treasure):
    sorted((path / "segments").iterdir())[0].write_bytes(b"")
    (path / "quarantine").mkdir()
    os.link(treasure / "diary.txt", path / "quarantine" / "lost.jsonl")
    with pytest.raises(CorruptIndexError, match="second name"):
        repair(path)
    assert unharmed(treasure)


def test_other_peoples_files_in_the_folder_of_segments(path):
    mine = [path / "segments" / name for name in ("notes.txt", "old.seg", "0123456789ABCDEF.seg")]
    for file in mine:
        file.write_text("mine")
    (path / "segments" / "0123456789abcdef.seg").write_text("a leftover")
    with Index.open(path) as index:
        assert check(index).leftovers == ("0123456789abcdef.seg",)
    write(path)
    assert all(file.read_text() == "mine" for file in mine)
    assert not (path / "segments" / "0123456789abcdef.seg").exists()


SEARCH = """
import sys
import numpy as np
from weft import Index, TokenVectors, WeftError
try:
    Index.open(sys.argv[1]).search(TokenVectors.from_list([np.ones((2, 4), np.float32)]), 1)
except WeftError as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["catalogue.sqlite", "catalogue.sqlite-wal", "writer.lock", "segment"])
def test_a_pipe_does_not_hang_it(path, name):
    if name == "segment":
        (file,) = (path / "segments").iterdir()
    else:
        file = path / name
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    ended = subprocess.run([sys.executable, "-c", SEARCH, path], timeout=60, capture_output=True, text=True, check=True)
    assert "this is not a file" in ended.stdout
