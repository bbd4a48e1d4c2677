"""The constants that native code exports are those that it works with.

Where a constant is the shape of an array, the engine takes that shape and no other; the rest shows in what it answers.
"""

import numpy as np
import pytest

from native import engine_oracle as oracle
from weft import _native


def arguments(bits=8, dim=36):
    made = oracle.problem(np.random.default_rng(1), [2, 0, 1, 3], dim, bits=bits)  # 1: with sketches
    assert made.numbers is not None
    return made.arguments()


def takes(bits, **changes):
    try:
        _native.Engine(**{**arguments(bits), **changes})
    except ValueError:
        return False
    return True


def widths(accepted):
    return [width for width in range(1, 80) if accepted(width)]


def test_dimensions():
    def accepted(dim):
        return takes(8, codes=np.zeros((6, dim), np.uint8), cell_codes=np.zeros((5, dim), np.uint8),
                     centroid_codes=np.zeros(0, np.uint8), cell_starts=np.zeros(6, np.int32),
                     cell_blocks=np.zeros(6, np.int32), list_starts=np.zeros(1, np.int64), lists=np.zeros(0, np.int32),
                     sketches=None, codebooks=None)  # fmt: skip

    assert widths(accepted) == list(range(_native.DIM_MULTIPLE, 80, _native.DIM_MULTIPLE))
    assert accepted(_native.MAX_DIM)
    assert not accepted(_native.MAX_DIM + _native.DIM_MULTIPLE)


def test_blocks():
    """A cell's block has BLOCK rows, and holds so many centroids and no more."""

    def accepted(centroids, rows):
        return takes(8, cell_codes=np.zeros((1, 36), np.uint8), cell_starts=np.array([0, centroids], np.int32),
                     cell_blocks=np.array([0, 1], np.int32), centroid_codes=np.zeros(rows * 36, np.uint8), spread=None,
                     list_starts=np.zeros(centroids + 1, np.int64), lists=np.zeros(0, np.int32))  # fmt: skip

    assert widths(lambda rows: accepted(1, rows)) == [_native.BLOCK]
    assert widths(lambda centroids: accepted(centroids, _native.BLOCK)) == list(range(1, _native.BLOCK + 1))


@pytest.mark.parametrize("bits", [4, 2])
def test_groups(bits):
    assert widths(lambda width: takes(bits, codes=np.zeros((6, width), np.uint8))) == [
        -(-36 // _native.GROUP) * _native.GROUP * bits // 8
    ]


@pytest.mark.parametrize("bits", [4, 2])
def test_tables(bits):
    assert widths(lambda tables: takes(bits, levels=np.zeros((tables, 1 << bits), np.int8))) == [_native.TABLES]


def test_sketches():
    width = _native.CELL_BYTES + -(-36 // (2 * _native.SUB_VECTOR))
    assert widths(lambda width: takes(8, sketches=np.zeros((6, width), np.uint8))) == [width]
    books = 36 // _native.SUB_VECTOR
    assert widths(lambda entries: takes(8, codebooks=np.zeros((books, entries, _native.SUB_VECTOR), np.int8))) == [
        _native.ENTRIES
    ]
    assert widths(lambda part: takes(8, codebooks=np.zeros((36 // part, _native.ENTRIES, part), np.int8))) == [
        _native.SUB_VECTOR
    ]


def test_labels():
    """A label is LABEL_BYTES long: the centroid in CENTROID_BITS, above them the table."""
    made = oracle.problem(np.random.default_rng(1), [6], 4, bits=4)
    given = made.arguments()
    levels = np.zeros((_native.TABLES, 16), np.int8) + np.arange(_native.TABLES, dtype=np.int8)[:, None]
    rows = np.full((len(made.centroids), 4), 128, np.uint8)
    rows[1] = 130
    out = np.empty((6, 4), dtype=np.float32)
    for table in range(_native.TABLES):
        label = 1 | table << _native.CENTROID_BITS
        labels = np.tile(np.frombuffer(label.to_bytes(_native.LABEL_BYTES, "little"), np.uint8), (6, 1))
        engine = _native.Engine(
            **{**given, "levels": levels, "centroid_rows": rows, "token_centroids": labels, "scale": 1.0}
        )
        engine.decode(np.zeros(1, np.int32), out)
        assert (out == 2 + table).all()
    assert _native.TABLES == 1 << (8 * _native.LABEL_BYTES - _native.CENTROID_BITS)


def test_the_norm_taken_where_none_is_given():
    given = arguments()
    q, listed = oracle.query(np.random.default_rng(0), 5, 36), np.arange(4, dtype=np.int32)
    errors = [
        _native.Engine(**{**given, "norm": norm}).rerank(q, listed, 4, 0)[2]
        for norm in (None, _native.CODE_NORM + 36**0.5 / 2, _native.CODE_NORM)
    ]
    assert errors[0] == errors[1] > errors[2]


def test_long_steps():
    """A step of 0 goes LONG_STEP on: with the next, to a document that far away, which then is the first one found."""
    documents = _native.LONG_STEP + 10
    row = np.array([[128 + 60, 128, 128, 128]], np.uint8)
    engine = _native.Engine(
        offsets=np.arange(documents + 1), codes=np.repeat(row, documents, axis=0), scale=60.0, cell_codes=row,
        cell_starts=np.array([0, 1], np.int32), cell_blocks=np.array([0, 1], np.int32),
        centroid_codes=np.repeat(row, _native.BLOCK, axis=0).reshape(-1), list_starts=np.array([0, 2]),
        lists=np.array([0, 7], np.uint16),
    )  # fmt: skip
    found = engine.candidates(np.array([[1, 0, 0, 0]], np.float32), None, 1, 100, 1)
    assert found.tolist() == [_native.LONG_STEP + 7 - 1]


def test_the_spread_is_the_oracles():
    """`test_engine.py` compares the cells that are chosen with those of this number."""
    assert _native.SPREAD == oracle.SPREAD
