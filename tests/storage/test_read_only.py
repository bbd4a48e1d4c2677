"""Indexes that may not be written: of another user, or on a filesystem that nobody may write."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from weft import Document, Index, TextIndex, TokenVectors
from weft.errors import StorageError
from weft.storage.check import check

DIM = 4
ROOT = os.geteuid() == 0
OTHER = 65534

IMPORTS = f"""
import contextlib, io, os, sys, tempfile
import numpy as np
from weft import Index, WeftError
from weft.cli.main import main
from weft.search.lexical import search_lexical
with Index.create(tempfile.mkdtemp(), dim=4) as warm:
    warm.add(["x"], warm._queries(np.ones((2, 4), np.float32)))
    warm.search(np.ones((2, 4), np.float32), 1), search_lexical(warm, "x"), warm.check(), warm.info()
with contextlib.redirect_stdout(io.StringIO()):
    for verb in (["info"], ["check"], ["get", "x"]):
        main([verb[0], str(warm.folder), *verb[1:]])
os.setgroups([])
os.setgid({OTHER})
os.setuid({OTHER})
"""
READ = """
path, count = sys.argv[1], int(sys.argv[2])
with Index.open(path) as index:
    (found,) = index.search(np.ones((2, 4), np.float32), 100)
    assert len(found) == len(index) == count, (len(found), len(index))
    assert index.get("d0").text == "text 0"
    assert index.info()["documents"] == count
    assert len(search_lexical(index, "text", 100).ids) == count
    assert index.check().sound, index.check()
    try:
        index.add(["x"], index.vectors("d0"))
    except WeftError as error:
        print("refused:", error)
"""


def tokens(count):
    rng = np.random.default_rng(count)
    return TokenVectors.from_list([rng.standard_normal((3, DIM)).astype(np.float32) for _ in range(count)])


def fill(index, start, stop):
    index.add([Document(f"d{n}", f"text {n}") for n in range(start, stop)], tokens(stop - start))


@pytest.fixture
def path():
    """In a folder that others may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder / "i.weft"
    shutil.rmtree(folder)


def printed_by(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def as_another(script, *arguments):
    """Run a script as a user who may not write, once everything it needs is imported; return what it prints."""
    return printed_by(IMPORTS + script, *arguments)


def read_as_another(path, count):
    return as_another(READ, path, count)


needs_another = pytest.mark.skipif(not ROOT, reason="only root can become another user")


@needs_another
def test_closed_in_good_order(path):
    with Index.create(path, DIM) as index:
        fill(index, 0, 5)
    assert not (path / "catalogue.sqlite-wal").exists()
    assert "cannot be read or written now" in read_as_another(path, 5)


@needs_another
def test_beside_a_writer(path):
    with Index.create(path, DIM) as index:
        fill(index, 0, 5)
        assert "refused" in read_as_another(path, 5)
        fill(index, 5, 9)
        read_as_another(path, 9)


@needs_another
def test_after_a_crash_of_the_writer(path, tmp_path):
    with Index.create(tmp_path / "live.weft", DIM) as index:
        fill(index, 0, 5)
        shutil.copytree(index.folder, path)  # as a crash leaves it: commits in the log alone
    path.chmod(0o755)
    assert (path / "catalogue.sqlite-wal").stat().st_size
    read_as_another(path, 5)
    (path / "catalogue.sqlite-shm").unlink()  # as a power cut does
    read_as_another(path, 5)


@needs_another
def test_the_command_line(path):
    with Index.create(path, DIM) as index:
        fill(index, 0, 5)
    for verb in (["info"], ["check"], ["get", "d3"]):
        printed = as_another("sys.exit(main([sys.argv[1], *sys.argv[2:]]))", verb[0], path, *verb[1:])
        assert printed.strip()


VERBS = (
    ("search", "the red planet"),
    ("search", "BX-4410", "--hybrid"),
    ("search", "the red planet", "--json"),
    ("explain", "the red planet"),
)
SEARCH = f"""
import contextlib, io, os, shutil, sys, tempfile
from weft.cli.main import main
path, verbs = sys.argv[1], {VERBS!r}
def printed(verb, place):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([verb[0], place, *verb[1:]]) == 0, verb
    return out.getvalue()
copy = shutil.copytree(path, tempfile.mkdtemp() + "/copy.weft")
expected = [printed(verb, copy) for verb in verbs]  # and everything is imported
os.setgroups([])
os.setgid({OTHER})
os.setuid({OTHER})
assert [printed(verb, path) for verb in verbs] == expected
print(expected[0])
"""


@needs_another
@pytest.mark.parametrize("beside_a_writer", [False, True])
def test_searching_and_explaining_by_the_command_line(path, beside_a_writer):
    with TextIndex.open(path, create=True) as texts:
        texts.add({"mars": "The planet Mars looks red.", "pump": "The pump BX-4410 needs oil."})
        if beside_a_writer:
            assert "mars" in printed_by(SEARCH, path)
    if not beside_a_writer:
        assert "mars" in printed_by(SEARCH, path)


@pytest.fixture
def medium(tmp_path):
    """A folder that is mounted anew, read-only."""
    place = tmp_path / "medium"
    place.mkdir()
    if not ROOT or subprocess.run(["mount", "--bind", tmp_path, place], capture_output=True).returncode:
        pytest.skip("needs to mount")
    subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("crashed", [False, True])
def test_read_only_media(tmp_path, medium, crashed):
    with Index.create(tmp_path / "live.weft", DIM) as index:
        fill(index, 0, 6)
        if crashed:
            shutil.copytree(index.folder, tmp_path / "i.weft")
            (tmp_path / "i.weft" / "catalogue.sqlite-shm").unlink()
    if not crashed:
        shutil.copytree(tmp_path / "live.weft", tmp_path / "i.weft")
    with Index.open(medium / "i.weft") as index:
        assert len(index) == len(index.search(np.ones((2, DIM), np.float32), 10)[0]) == 6
        assert check(index).sound
        with pytest.raises(StorageError, match=r"[Rr]ead-only"):
            index.add(["x"], tokens(1))
        assert len(index) == 6


def test_what_another_writes_meanwhile_is_seen(tmp_path, medium):
    with Index.create(tmp_path / "i.weft", DIM) as index:
        fill(index, 0, 5)
    with Index.open(medium / "i.weft") as reader:
        assert len(reader) == 5
        with Index.open(tmp_path / "i.weft") as writer:
            fill(writer, 5, 8)
            assert len(reader) == 8
            fill(writer, 8, 9)
            assert len(reader) == 9
        assert len(reader) == len(reader.search(np.ones((2, DIM), np.float32), 10)[0]) == 9
