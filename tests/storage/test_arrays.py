"""The segment file: what goes in comes out, and no damaged byte is ever answered from."""

import json
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import CorruptIndexError
from weft.storage.arrays import _PREFIX, ALIGN, BLOCK, Arrays, write_arrays


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("arrays")


@pytest.fixture(scope="session")
def sample(folder):
    """A file of several blocks."""
    rng = np.random.default_rng(0)
    path = folder / "sample.seg"
    arrays = {
        "offsets": np.arange(100, dtype="<i8"),
        "empty": np.zeros((0, 7), "<f4"),
        "values": rng.standard_normal((3000, 40)).astype("<f2"),
        "codes": rng.integers(0, 255, 5 * BLOCK // 2).astype("u1"),
    }
    write_arrays(path, arrays, {"kind": "test"})
    return path, arrays


DTYPES = st.sampled_from(["u1", "i1", "<u2", "<i4", "<i8", "<f2", "<f4"])


@given(
    specs=st.lists(st.tuples(DTYPES, st.lists(st.integers(0, 5), min_size=1, max_size=3)), max_size=5),
    info=st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=5))),
    seed=st.integers(0, 2**32 - 1),
)
def test_round_trip(folder, specs, info, seed):
    rng = np.random.default_rng(seed)
    arrays = {f"a{i}": (rng.random(shape) * 50).astype(dtype) for i, (dtype, shape) in enumerate(specs)}
    path = folder / "round.seg"
    path.unlink(missing_ok=True)
    write_arrays(path, arrays, info)
    with Arrays(path) as stored:
        stored.verify()
        assert stored.info == info
        for name, array in arrays.items():
            stored.verify(name)
            assert stored[name].dtype == array.dtype
            assert np.array_equal(stored[name], array)
            assert not stored[name].size or stored[name].ctypes.data % ALIGN == 0


def test_a_header_as_long_as_a_file_with_a_hole(sample, tmp_path):
    path = tmp_path / "hole.seg"
    with open(path, "wb") as file:
        file.write(sample[0].read_bytes()[: _PREFIX.size])
        file.seek(8)
        file.write(struct.pack("<Q", 3 << 28))
        file.truncate(1 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptIndexError, match="the header is longer"):
            Arrays(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_never_overwrites(sample):
    with pytest.raises(FileExistsError):
        write_arrays(sample[0], {}, {})


def read_everything(path):
    with Arrays(path) as stored:
        stored.verify()
        return {name: stored[name].copy() for name in ("offsets", "empty", "values", "codes")}


def test_every_flipped_bit_is_noticed(sample, folder):
    """A bit in every 997th byte and in each of the first and last 600: none may go unnoticed."""
    good = sample[0].read_bytes()
    path = folder / "flipped.seg"
    for position in sorted({*range(0, len(good), 997), *range(600), *range(len(good) - 600, len(good))}):
        bad = bytearray(good)
        bad[position] ^= 1 << (position % 8)
        path.write_bytes(bad)
        with pytest.raises(CorruptIndexError, match=r"flipped\.seg"):
            read_everything(path)


def test_every_truncation_is_noticed(sample, folder):
    good = sample[0].read_bytes()
    path = folder / "short.seg"
    for length in sorted({0, 1, 8, 19, 20, 21, *range(0, len(good), 4001), len(good) - 1}):
        path.write_bytes(good[:length])
        with pytest.raises(CorruptIndexError, match=r"short\.seg"):
            Arrays(path)
    path.write_bytes(good + b"\0")
    with pytest.raises(CorruptIndexError, match="bytes long"):
        Arrays(path)


def test_damage_is_found_lazily_and_named(sample, folder):
    path, arrays = sample
    bad = bytearray(path.read_bytes())
    with Arrays(path) as stored:
        place = stored._places["values"][2] + 2 * 40 * 1500  # in the middle of `values`
    bad[place] ^= 0xFF
    damaged = folder / "lazy.seg"
    damaged.write_bytes(bad)
    with Arrays(damaged) as stored:  # opening reads no data
        stored.verify("offsets")
        assert np.array_equal(stored["offsets"], arrays["offsets"])
        stored.verify("values", 0, 100)
        stored.verify_rows("values", np.array([0, 5]), np.array([3, 5]))
        with pytest.raises(CorruptIndexError, match=r"lazy\.seg.*in .*values"):
            stored.verify("values", 1400, 1600)
        with pytest.raises(CorruptIndexError, match="values"):
            stored.verify_rows("values", np.array([0, 1500]), np.array([3, 1501]))


def test_missing_file(folder):
    with pytest.raises(CorruptIndexError, match="the file is missing"):
        Arrays(folder / "nowhere.seg")


def forged(header):
    """A file whose header checksum is right, whatever the header says."""
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return _PREFIX.pack(b"WEFTSEG\x01", len(text), zlib.crc32(text)) + text + struct.pack("<I", 0)


HOSTILE = {
    "not JSON": b"\xff\xfe",
    "no arrays": {"info": {}, "block": 1, "end": 0},
    "huge shape": {"info": {}, "block": 65536, "end": 100, "arrays": {"x": ["<f4", [2**40], 80, 2**42]}},
    "shape and bytes differ": {"info": {}, "block": 65536, "end": 120, "arrays": {"x": ["<f4", [2**40], 80, 4]}},
    "negative": {"info": {}, "block": 65536, "end": 120, "arrays": {"x": ["<f4", [-1], 80, -4]}},
    "before the data": {"info": {}, "block": 65536, "end": 120, "arrays": {"x": ["u1", [4], 0, 4]}},
    "block 0": {"info": {}, "block": 0, "end": 120, "arrays": {}},
    "object dtype": {"info": {}, "block": 65536, "end": 130, "arrays": {"x": ["|O", [1], 128, 8]}},
    "end far away": {"info": {}, "block": 65536, "end": 10**15, "arrays": {}},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_forged_headers_are_refused(folder, case):
    path = folder / "forged.seg"
    path.write_bytes(forged(HOSTILE[case]))
    with pytest.raises(CorruptIndexError):
        read_everything(path)


@given(st.binary(max_size=400), st.booleans())
def test_arbitrary_bytes_are_an_error_never_a_crash(folder, data, begin_well):
    path = folder / "fuzz.seg"
    path.write_bytes(b"WEFTSEG\x01" + data if begin_well else data)
    with pytest.raises(CorruptIndexError):
        Arrays(path)
