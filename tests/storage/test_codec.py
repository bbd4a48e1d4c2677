"""The codec against loops and definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.storage.codecs import clustering as codec
from weft.storage.codecs import residual

BITS = pytest.mark.parametrize("bits", [4, 2])


def clouds(seed=0, tokens=3000, dim=24, spread=0.3):
    """Vectors around a few centres, of very different norms."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((12, dim))
    points = centres[rng.integers(0, 12, tokens)] + spread * rng.standard_normal((tokens, dim))
    return (points * rng.choice([0.1, 1.0], (tokens, 1))).astype(np.float32)


@pytest.mark.parametrize("dim", [1, 3, 4, 96, 127])
def test_rotation_keeps_inner_products(dim):
    matrix = codec.rotation(dim, 7)
    assert matrix.shape == (dim, -(-dim // 4) * 4)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(dim), atol=1e-5)
    np.testing.assert_array_equal(matrix, codec.rotation(dim, 7))


@pytest.mark.parametrize("magnitude", [1e-30, 1e-3, 1.0, 1e5, 1e30])
def test_a_scale_for_any_magnitude(magnitude):
    vectors = (clouds() * magnitude).astype(np.float32)
    scale = codec.choose_scale([vectors[:100], vectors[100:]])
    wide = vectors.astype(np.float64)
    largest = min(127 / np.abs(wide).max(), codec.CODE_NORM / np.linalg.norm(wide, axis=1).max())
    assert scale == pytest.approx(largest, rel=2e-3)
    assert scale <= largest
    assert codec.choose_scale([np.zeros((5, 4), np.float32)]) == codec.choose_scale([]) == 1


def test_outliers_do_not_lower_the_scale():
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((3000, 128)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    usual = codec.choose_scale([vectors], len(vectors))
    far = vectors[:4].copy()
    far[:, 0] = 1.25 * 127 / usual  # a coordinate that leaves a byte by a quarter
    far *= np.minimum(1, 1 / np.linalg.norm(far, axis=1, keepdims=True))
    assert np.abs(far).max() * usual > 140
    assert codec.choose_scale([vectors, far[:3]], 3003) == pytest.approx(usual, rel=1e-5)  # three in 3,003 may be cut
    assert codec.choose_scale([vectors, far[:2], far[2:3]], 3003) == pytest.approx(usual, rel=1e-5)
    assert codec.choose_scale([vectors, far], 3004) < 0.95 * usual  # four may not
    axis = np.eye(128, dtype=np.float32)[:1]  # all in one coordinate: no more than a quarter of it is cut off
    assert codec.choose_scale([vectors, axis], 3001) == pytest.approx(127 / 0.75, rel=2e-3)
    narrow = rng.standard_normal((3000, 8)).astype(np.float32)  # of few dimensions nothing is
    assert codec.choose_scale([narrow], 3000) * np.abs(narrow).max() <= 127
    assert codec.choose_scale([vectors, 2 * vectors[:1]], 3001) == pytest.approx(usual / 2, rel=1e-5)  # no norm is cut


@pytest.mark.parametrize("kind", ["cloud", "axis", "zero", "none"])
def test_codes_stay_within_a_byte_and_the_norm(kind):
    vectors = {"cloud": clouds(), "axis": np.eye(24, dtype=np.float32) * 7, "zero": np.zeros((4, 24), np.float32),
               "none": np.zeros((0, 24), np.float32)}[kind]  # fmt: skip
    scale = codec.choose_scale([vectors])
    codes = codec.encode(vectors, scale)
    assert codes.dtype == np.uint8
    assert (np.abs((codes - 128.0) / scale - vectors) <= 0.7501 / scale).all()  # tests/native/test_rounding.py
    assert residual.longest(codes) <= codec.CODE_NORM + 24**0.5 / 2


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 6))
def test_lists_name_the_documents_with_a_token(seed, n_documents, n_centroids):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 5, n_documents))]).astype(np.int64)
    assigned = rng.integers(0, n_centroids, offsets[-1]).astype(np.int32)
    starts, lists = codec.list_documents(
        assigned.astype(np.int64), np.repeat(np.arange(n_documents), np.diff(offsets)), n_documents, n_centroids
    )
    for c in range(n_centroids):
        expected = [d for d in range(n_documents) if c in assigned[offsets[d] : offsets[d + 1]]]
        assert lists[starts[c] : starts[c + 1]].tolist() == expected
    assert starts[-1] == len(lists)


@given(st.lists(st.sets(st.one_of(st.integers(0, 300_000), st.sampled_from([0, 65534, 65535, 131069])), max_size=9)))
def test_steps_lead_to_the_documents(listed):
    lists = [sorted(one) for one in listed]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    new, steps = codec.listed_steps(starts, np.array([d for one in lists for d in one], dtype=np.int32))
    assert steps.dtype == np.uint16
    for c, expected in enumerate(lists):
        at, found = -1, []
        for step in steps[new[c] : new[c + 1]].tolist():
            at += step or 65535
            found += [at] if step else []
        assert found == expected


@given(st.lists(st.integers(0, 19), min_size=1, max_size=6), st.integers(1, 5))
def test_blocks_hold_every_centroid(sizes, quarters):
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    codes = np.random.default_rng(0).integers(1, 256, (starts[-1], 4 * quarters)).astype(np.uint8)
    flat, blocks = codec.block_layout(codes, starts)
    for cell, size in enumerate(sizes):
        assert blocks[cell + 1] - blocks[cell] == -(-size // 8)
        for i in range((blocks[cell + 1] - blocks[cell]) * 8):
            block = flat.reshape(-1, quarters, 8, 4)[blocks[cell] + i // 8]
            row = block[:, i % 8].reshape(-1)
            assert row.tolist() == (codes[starts[cell] + i].tolist() if i < size else [128] * 4 * quarters)


def test_clusters_are_near_their_tokens():
    codes = codec.encode(clouds(), codec.choose_scale([clouds()]))
    found = codec.cluster(codes)
    assert found.cell_starts[0] == 0
    assert found.cell_starts[-1] == len(found.centroids)
    assert (np.diff(found.cell_starts) >= 0).all()
    floats = codes.astype(np.float64)
    lost = np.linalg.norm(floats - found.centroids[found.assigned], axis=1)
    assert np.mean(lost**2) < 0.3 * np.mean((floats - floats.mean(axis=0)) ** 2) * floats.shape[1]
    of_cells = found.cells_of(np.arange(len(codes)))
    for cell in range(len(found.cells)):
        inside = floats[of_cells == cell]
        expected = np.sqrt(((inside - found.cells[cell]) ** 2).sum(axis=1).mean()) if len(inside) else 0
        assert found.spread[cell] == pytest.approx(expected, rel=1e-4)
    again = codec.cluster(codes)
    np.testing.assert_array_equal(again.assigned, found.assigned)


def test_clusters_of_equal_vectors():
    found = codec.cluster(np.full((500, 8), 200, dtype=np.uint8))
    assert (found.centroids[found.assigned] == 200).all()


# -- residuals ---------------------------------------------------------------------------------------


@BITS
@given(st.integers(0, 2**32 - 1), st.integers(0, 5), st.integers(1, 33))
def test_packing_is_undone(bits, seed, tokens, quarters):
    numbers = np.random.default_rng(seed).integers(0, 1 << bits, (tokens, 4 * quarters)).astype(np.uint8)
    packed = residual.pack(numbers, bits)
    assert packed.shape == (tokens, residual.packed_width(4 * quarters, bits))
    np.testing.assert_array_equal(residual.unpack(packed, 4 * quarters, bits), numbers)
    for t, x in np.ndindex(*numbers.shape):  # as native/byte_kernels.hpp says
        byte = packed[t, x // 32 * 4 * bits + x % 32 % (4 * bits)]
        assert byte >> (x % 32 // (4 * bits) * bits) & ((1 << bits) - 1) == numbers[t, x]


def residual_codes(vectors, bits, seed=0):
    scale = codec.choose_scale([vectors])
    rng = np.random.default_rng(seed)
    rows = codec.encode(vectors[rng.choice(len(vectors), 60, replace=False)], scale)
    centred = (rows - 128.0) / scale
    assigned = ((vectors[:, None] - centred[None]) ** 2).sum(axis=2).argmin(axis=1).astype(np.int32)
    levels = residual.choose_levels(residual.residuals_of(vectors, rows[assigned], scale), bits)
    return scale, rows, assigned, levels


@BITS
def test_what_is_encoded_is_what_is_decoded(bits):
    vectors = clouds()
    scale, rows, assigned, levels = residual_codes(vectors, bits)
    assert levels.bits == bits
    packed, labels, decoded = residual.encode(vectors, assigned, rows, scale, levels)
    np.testing.assert_array_equal(residual.decode(packed, labels, rows, levels.tables), decoded)
    assert ((labels.astype(int) @ [1, 256, 65536]) & (2**22 - 1)).tolist() == assigned.tolist()
    # Lloyd-Max levels leave 1 % (4 bits) and 12 % (2 bits) of the energy of Gaussian residuals; these are not quite.
    energy = ((vectors - (rows[assigned] - 128.0) / scale) ** 2).sum()
    assert ((vectors - (decoded - 128.0) / scale) ** 2).sum() < {4: 0.03, 2: 0.25}[bits] * energy


@BITS
def test_every_coordinate_takes_its_nearest_level(bits):
    vectors = clouds(tokens=200)
    scale, rows, assigned, levels = residual_codes(vectors, bits)
    packed, labels, _ = residual.encode(vectors, assigned, rows, scale, levels)
    numbers = residual.unpack(packed, vectors.shape[1], bits)
    rest = vectors * scale - (rows[assigned] - 128.0)
    tables = levels.tables[labels[:, 2] >> 6].astype(float)
    best = np.abs(rest[:, :, None] - tables[:, None, :]).min(axis=2)
    chosen = np.abs(rest - np.take_along_axis(tables, numbers.astype(int), axis=1))
    assert (chosen <= best + 2 / residual.FINE).all()


@BITS
@pytest.mark.parametrize("kind", ["equal", "huge spread", "one token"])
def test_odd_residuals(bits, kind):
    signs = (-1.0) ** np.arange(100)[:, None]
    vectors = {
        "equal": np.ones((100, 8)),
        "huge spread": np.eye(8)[np.arange(100) % 8] * signs,
        "one token": np.ones((1, 8)),
    }[kind].astype(np.float32)
    scale = codec.choose_scale([vectors])
    rows = np.full((1, 8), 128, dtype=np.uint8) if kind != "equal" else codec.encode(vectors[:1], scale)
    assigned = np.zeros(len(vectors), dtype=np.int32)
    levels = residual.choose_levels(residual.residuals_of(vectors, rows[assigned], scale), bits)
    packed, labels, decoded = residual.encode(vectors, assigned, rows, scale, levels)
    np.testing.assert_array_equal(residual.decode(packed, labels, rows, levels.tables), decoded)
    assert np.abs((decoded - 128.0) / scale - vectors).max() <= 2 / scale + 1e-6
