"""Files mapped without a descriptor."""

import errno
import gc
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from weft import _native

linux = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks into /proc")


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "file"
    made.write_bytes(np.random.default_rng(0).bytes(100_003))
    return made


def mapped(path):
    return str(path) in Path("/proc/self/maps").read_text()


def test_the_view_is_the_file(path):
    file = _native.MappedFile(str(path))
    view = file.view()
    assert view.dtype == np.uint8
    assert view.shape == (file.nbytes,) == (path.stat().st_size,)
    assert view.tobytes() == path.read_bytes()
    assert not view.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        view.setflags(write=True)


def test_views_share_the_memory(path):
    file = _native.MappedFile(path)
    assert np.shares_memory(file.view(), file.view())


@linux
def test_no_descriptor_stays_open(tmp_path):
    paths = [tmp_path / str(i) for i in range(300)]
    for i, path in enumerate(paths):
        path.write_bytes(b"%d" % i)
    before = len(os.listdir("/proc/self/fd"))
    files = [_native.MappedFile(str(path)) for path in paths]
    assert len(os.listdir("/proc/self/fd")) == before
    assert [file.view().tobytes() for file in files] == [b"%d" % i for i in range(300)]


@linux
def test_a_failure_leaves_no_descriptor_open(tmp_path):
    (tmp_path / "empty").touch()
    before = len(os.listdir("/proc/self/fd"))
    for name in ("empty", ".", "nowhere"):
        with pytest.raises((OSError, ValueError)):
            _native.MappedFile(str(tmp_path / name))
    assert len(os.listdir("/proc/self/fd")) == before


@linux
def test_the_last_array_unmaps_the_file(path):
    file = _native.MappedFile(str(path))
    part = file.view()[7:19].view(np.uint32)
    del file
    gc.collect()
    assert mapped(path)
    assert part.tobytes() == path.read_bytes()[7:19]
    del part
    gc.collect()
    assert not mapped(path)


def test_a_deleted_file_stays_readable(path):
    content = path.read_bytes()
    view = _native.MappedFile(path).view()
    path.unlink()
    assert view.tobytes() == content


def test_released_memory_is_read_again(path):
    file = _native.MappedFile(str(path))
    view = file.view()
    before = view.tobytes()
    for begin, end in ((0, len(before)), (1, len(before) - 1), (5, 5), (len(before), 10 * len(before)), (9, 3)):
        file.release(begin, end)
        assert view.tobytes() == before


def test_pages_are_mapped_ahead(path):
    file = _native.MappedFile(str(path))
    file.populate()
    assert file.view().tobytes() == path.read_bytes()


@pytest.mark.skipif(sys.platform == "darwin", reason="APFS takes only UTF-8 names")
def test_names_that_are_no_text(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    Path(path).write_bytes(b"odd")
    assert _native.MappedFile(path).view().tobytes() == b"odd"


def test_errors_are_the_systems_own(tmp_path):
    missing = str(tmp_path / "missing")
    with pytest.raises(FileNotFoundError) as caught:
        _native.MappedFile(missing)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, missing)
    with pytest.raises(IsADirectoryError) as caught:
        _native.MappedFile(str(tmp_path))
    assert (caught.value.errno, caught.value.filename) == (errno.EISDIR, str(tmp_path))
    long = str(tmp_path / ("x" * 5000))
    with pytest.raises(OSError, match="too long") as caught:
        _native.MappedFile(long)
    assert (caught.value.errno, caught.value.filename) == (errno.ENAMETOOLONG, long)


def test_nothing_to_map(tmp_path):
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(ValueError, match="empty"):
        _native.MappedFile(str(empty))
    with pytest.raises(ValueError, match="null"):
        _native.MappedFile("a\0b")
    with pytest.raises(TypeError):
        _native.MappedFile(3)
