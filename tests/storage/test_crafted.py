"""Segments that someone crafted, with right checksums: refused in one line, before memory is asked for or overrun."""

import contextlib
import os
import re
import resource
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage import crafted
from weft import Index
from weft.errors import CorruptIndexError, WeftError
from weft.storage.arrays import Arrays, write_arrays
from weft.storage.check import check


def set_array(name, change):
    def apply(arrays, _):
        if name not in arrays:
            pytest.skip("not in this kind of segment")
        arrays[name] = change(arrays[name])

    return apply


def put(at, value):
    def change(array):
        array[at] = value
        return array

    return change


def set_info(name, value):
    def apply(_, info):
        info[name] = value

    return apply


CODED = {
    "unsigned offsets": set_array("offsets", lambda a: a.astype("<u8")),
    "falling offsets": set_array("offsets", put(5, 1 << 40)),
    "unsigned cell starts": set_array("cell_starts", lambda a: a.astype("<u4")),
    "huge cell starts": set_array("cell_starts", put(1, 2**31 - 1)),
    "falling cell starts": set_array("cell_starts", put(1, -(2**31))),
    "too many cells": set_array("cell_starts", lambda a: np.concatenate([a, a[-1:]])),
    "huge blocks": set_array("cell_blocks", put(-1, 2**31 - 1)),
    "unsigned list starts": set_array("list_starts", lambda a: a.astype("<u8")),
    "huge list starts": set_array("list_starts", put(1, 2**62)),
    "lists that name no document": set_array("lists", put(0, 60_000)),
    "lists as bytes": set_array("lists", lambda a: a.astype("u1")),
    "rotation of nothing": set_array("rotation", put((0, 0), np.nan)),
    "rotation without end": set_array("rotation", put((1, 1), np.inf)),
    "rotation that is none": set_array("rotation", lambda a: a * 1e30),
    "codes too few": set_array("codes", lambda a: a[:-1]),
    "codes too narrow": set_array("codes", lambda a: np.ascontiguousarray(a[:, :-1])),
    "sketches too few": set_array("sketches", lambda a: a[:-1]),
    "codebooks too few": set_array("codebooks", lambda a: a[:-1]),
    "tokens of no centroid": set_array("token_centroids", lambda a: a[:-1]),
    "levels of nothing": set_array("levels", lambda a: a[:0]),
    "no centroids": set_array("centroid_rows", lambda a: a[:0]),
    "limits of nothing": set_array("limits", put(0, np.nan)),
    "spread of nothing": set_array("spread", put(0, np.nan)),
    "documents as floats": set_array("token_ids", lambda a: a.astype("<f4")),
    "spans in pairs": set_array("span_listed", lambda a: np.zeros((1, 2), "<i4")),
    "no scale": set_info("scale", 0.0),
    "scale without end": set_info("scale", float("inf")),
    "scale of text": set_info("scale", "1"),
    "no dimension": set_info("dim", 0),
    "a dimension without end": set_info("dim", float("inf")),
    "negative dimension": set_info("dim", -16),
    "another type": set_info("dtype", "<f8"),
    "a type that is none": set_info("dtype", "nonsense"),
}


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("change", CODED.values(), ids=CODED)
def test_coded(tmp_path, monkeypatch, bits, change):
    file = crafted.make(tmp_path / "i.weft", monkeypatch, bits)
    crafted.rewrite(file, change)
    with pytest.raises(CorruptIndexError, match=re.escape(file.name)):
        crafted.use(tmp_path / "i.weft")
    with Index.open(tmp_path / "i.weft") as index:
        (problem,) = check(index).problems
    assert "damaged" in problem


FLAT = {
    "values as bytes": set_array("values", lambda a: a.astype("u1")),
    "values too few": set_array("values", lambda a: a[:-1]),
    "token ids too few": set_array("token_ids", lambda a: a[:-1]),
    "unsigned offsets": set_array("offsets", lambda a: a.astype("<u8")),
    "no offsets": set_array("offsets", lambda a: a[:0]),
}


@pytest.mark.parametrize("change", FLAT.values(), ids=FLAT)
def test_flat(tmp_path, monkeypatch, change):
    file = crafted.make(tmp_path / "i.weft", monkeypatch, coded=False)
    crafted.rewrite(file, change)
    with pytest.raises(CorruptIndexError, match=re.escape(file.name)):
        crafted.use(tmp_path / "i.weft")


def test_vectors_that_are_not_finite_are_not_called_sound(tmp_path, monkeypatch):
    file = crafted.make(tmp_path / "i.weft", monkeypatch, coded=False)
    crafted.rewrite(file, set_array("values", put((9, 2), np.nan)))
    with Index.open(tmp_path / "i.weft") as index:
        assert "not finite" in check(index).problems[0]


HEADERS = {
    "blocks of a byte": lambda header: header.update(block=1),
    "blocks of nothing": lambda header: header.update(block=0),
    "an array between": lambda header: header["arrays"]["offsets"].__setitem__(2, header["arrays"]["offsets"][2] + 4),
    "a shape of four": lambda header: header["arrays"]["offsets"].__setitem__(1, [81, 1, 1, 1]),
    "a shape beyond all": lambda header: header["arrays"]["offsets"].__setitem__(1, [0, 2**62]),
    "a shape of truth": lambda header: header["arrays"]["offsets"].__setitem__(1, [True]),
    "a type of objects": lambda header: header["arrays"]["offsets"].__setitem__(0, "O"),
    "arrays in a list": lambda header: header.update(arrays=[]),
    "no information": lambda header: header.update(info=7),
    "nothing at all": lambda header: (header.clear(), header.update(block=1 << 16)),
    "an end without end": lambda header: header.update(end=float("inf")),
}


@pytest.mark.parametrize("change", HEADERS.values(), ids=HEADERS)
def test_headers(tmp_path, monkeypatch, change):
    file = crafted.make(tmp_path / "i.weft", monkeypatch)
    crafted.reheader(file, change)
    with pytest.raises(CorruptIndexError, match="damaged: header does not describe a segment"):
        crafted.use(tmp_path / "i.weft")


def test_one_long_document_among_many_short_ones_takes_no_memory(tmp_path):
    # The blocks under every document were a matrix, as wide as the longest document has blocks.
    rows = 1 << 22
    write_arrays(tmp_path / "long.seg", {"x": np.zeros((rows, 16), "u1")}, {})
    stored = Arrays(tmp_path / "long.seg")
    starts = np.concatenate([[0], np.zeros(200_000, np.int64)])
    stops = np.concatenate([[rows], np.ones(200_000, np.int64)])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stored.verify_rows("x", starts, stops)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes; it was 1.6 GB


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_number_anywhere(tmp_path_factory, monkeypatch, data):
    """A segment whose arrays hold anything: it is searched, or refused, in one of our errors."""
    path = tmp_path_factory.mktemp("any") / "i.weft"
    bits = data.draw(st.sampled_from([8, 4, 2]))
    file = crafted.make(path, monkeypatch, bits, coded=data.draw(st.booleans()))

    def change(arrays, info):
        for _ in range(data.draw(st.integers(1, 3))):
            name = data.draw(st.sampled_from(sorted(arrays)))
            array = arrays[name]
            kind = data.draw(st.sampled_from(["put", "cut", "type", "shape"]))
            if kind == "put" and array.size:
                at = data.draw(st.integers(0, array.size - 1))
                info_of = np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
                values = [0, 1, -1, info_of.max, info_of.min] if info_of else [0.0, -1.0, np.inf, np.nan, 1e30]
                array.reshape(-1)[at] = data.draw(
                    st.sampled_from([v for v in values if not info_of or v >= info_of.min])
                )
            elif kind == "cut":
                arrays[name] = array[: data.draw(st.integers(0, len(array)))]
            elif kind == "type":
                arrays[name] = array.astype(data.draw(st.sampled_from(["u1", "i1", "<i4", "<u8", "<f2"])))
            elif kind == "shape":
                arrays[name] = array.reshape(-1)

    with np.errstate(all="ignore"):
        crafted.rewrite(file, change)
        with contextlib.suppress(WeftError):
            crafted.use(path)


SPARSE = """
import sys, resource
import numpy as np
from weft import Index, WeftError
from storage import crafted
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
try:
    crafted.use(__import__("pathlib").Path(sys.argv[1]))
except WeftError as error:
    print("refused:", error)
"""


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="sanitizers take terabytes of addresses")
@pytest.mark.parametrize("bits", [4, 2])
def test_no_more_memory_than_the_file_justifies(tmp_path, monkeypatch, bits):
    # Starts that only seem to rise asked for 32 GiB.
    file = crafted.make(tmp_path / "i.weft", monkeypatch, bits)
    crafted.rewrite(file, set_array("cell_starts", lambda a: np.linspace(0, 2**31 - 1, len(a)).astype("<i4")))
    ended = subprocess.run(
        [sys.executable, "-c", SPARSE, tmp_path / "i.weft"],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": "tests"},
    )  # fmt: skip
    assert "refused:" in ended.stdout
