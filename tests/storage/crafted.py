"""Indexes and segments as an attacker would make them: wrong, with checksums that are right."""

import json
import struct
import zlib

import numpy as np

from weft import Index, TokenVectors
from weft.storage import merger
from weft.storage.arrays import _PREFIX, MAGIC, Arrays, write_arrays

DIM = 16
DOCUMENTS = 80
TOKENS = 20


def corpus():
    rng = np.random.default_rng(3)
    kinds = rng.standard_normal((12, DIM))
    values = kinds[rng.integers(0, 12, DOCUMENTS * TOKENS)] + 0.3 * rng.standard_normal((DOCUMENTS * TOKENS, DIM))
    return TokenVectors.trusted(
        (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32),
        np.arange(0, DOCUMENTS * TOKENS + 1, TOKENS, dtype=np.int64),
        rng.integers(0, 99, DOCUMENTS * TOKENS).astype(np.int32),
        spans=np.tile(np.array([[0, 3]], np.int32), (DOCUMENTS * TOKENS, 1)),
    )


def query():
    return corpus()[3:4]


def make(path, monkeypatch, bits=8, coded=True):
    """Make an index of one segment; return the segment's file."""
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000 if coded else 1 << 40)
    with Index.create(path, DIM, bits=bits, merge="off") as index:
        index.add([f"d{n}" for n in range(DOCUMENTS)], corpus())
    (file,) = (path / "segments").iterdir()
    return file


def rewrite(file, change):
    """Let `change(arrays, info)` have its way with a segment, and sum it up anew."""
    with Arrays(file) as stored:
        arrays = {name: stored[name].copy() for name in stored._places}
        info = dict(stored.info)
    change(arrays, info)
    file.unlink()
    write_arrays(file, arrays, info)


def reheader(file, change):
    """Let `change(header)` have its way with the header of a file, and sum everything up anew."""
    data = file.read_bytes()
    _, length, _ = _PREFIX.unpack_from(data)
    header = json.loads(data[_PREFIX.size : _PREFIX.size + length])
    body = data[_PREFIX.size + length : header["end"]]
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    assert len(text) <= length, "the arrays would move"
    text = text.ljust(length)
    block = header["block"] if isinstance(header["block"], int) and header["block"] > 0 else 1 << 16
    sums = b"".join(struct.pack("<I", zlib.crc32(body[start : start + block])) for start in range(0, len(body), block))
    file.write_bytes(
        _PREFIX.pack(MAGIC, length, zlib.crc32(text)) + text + body + sums + struct.pack("<I", zlib.crc32(sums))
    )


def use(path):
    """Do with an index what a user would."""
    with Index.open(path, merge="off") as index:
        for options in ({}, {"exact": True}, {"alignment": "xtr:50"}, {"alignment": "top-k:2"}):
            (ranking,) = index.search(query(), 5, **options)
            assert set(ranking.ids) <= {f"d{n}" for n in range(DOCUMENTS)}
            assert len(set(ranking.ids)) == len(ranking)
        index.vectors("d7")
        index.reading("d7")
        index.delete("d9")
        index.compact()
