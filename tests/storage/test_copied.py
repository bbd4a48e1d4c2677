"""Indexes in folders that others may write: copied into memory, nothing that happens to the files later matters."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from weft import Index, TokenVectors
from weft.errors import CorruptIndexError, InvalidParameterError

DIM = 64
SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from weft import Index
query = np.ones((3, 64), np.float32)
with Index.open(sys.argv[1], verify=sys.argv[2]) as index:
    len(index)  # opens the segments
    for file in (Path(sys.argv[1]) / "segments").iterdir():
        with open(file, "r+b") as opened:
            opened.truncate(4096) if sys.argv[3] == "cut" else opened.write(bytes(file.stat().st_size))
    print(len(index.search(query, 5, exact=True)[0]))
"""


@pytest.fixture
def path(tmp_path):
    rng = np.random.default_rng(0)
    with Index.create(tmp_path / "i.weft", DIM) as index:
        texts = [rng.standard_normal((20, DIM)).astype(np.float32) for _ in range(100)]
        index.add([f"d{n}" for n in range(100)], TokenVectors.from_list(texts))
    return tmp_path / "i.weft"


def run(path, verify, how):
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, path, verify, how], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("how", ["cut", "overwritten"])
def test_copies_do_not_care(path, how):
    ended = run(path, "copy", how)
    assert (ended.returncode, ended.stdout.strip()) == (0, "5")


def test_maps_do(path):
    assert run(path, "when read", "cut").returncode == -signal.SIGBUS


def test_copies_are_checked_at_once(path):
    (file,) = (path / "segments").iterdir()
    data = bytearray(file.read_bytes())
    data[-5000] ^= 1
    file.write_bytes(data)
    with Index.open(path, verify="copy") as index, pytest.raises(CorruptIndexError, match="damaged"):
        len(index)


def test_writing_and_merging(path):
    with Index.open(path, verify="copy", merge="inline") as index:
        index.add(["new"], TokenVectors.from_list([np.ones((3, DIM), np.float32)]))
        index.compact()
        assert len(index) == 101
        assert index.search(np.ones((3, DIM), np.float32), 1)[0].ids == ("new",)
        assert index.check().sound


def test_other_words_are_refused(path):
    with pytest.raises(InvalidParameterError, match="verify"):
        Index.open(path, verify="never")
