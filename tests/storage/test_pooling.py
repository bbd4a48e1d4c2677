"""Pooling of similar tokens: the groups are Ward's, what is stored stands for its group, and adds go on with it."""

from __future__ import annotations

import numpy as np
import pytest

from weft import Index, TokenVectors, _native
from weft.errors import WeftError
from weft.storage.pooling import LEAST_WEIGHT, pool


def brute_force_ward(points, weights, groups):
    """Merge the pair whose union adds least to the weighted squared distances from centroids, by the definition."""
    members = [[i] for i in range(len(points))]

    def spread(of):
        w, x = weights[of][:, None], points[of]
        centre = (w * x).sum(axis=0) / w.sum()
        return float((w * (x - centre) ** 2).sum())

    while len(members) > groups:
        pairs = [(a, b) for a in range(len(members)) for b in range(a + 1, len(members))]
        rise = [spread(members[a] + members[b]) - spread(members[a]) - spread(members[b]) for a, b in pairs]
        a, b = pairs[int(np.argmin(rise))]
        members[a] += members.pop(b)
    return {frozenset(group) for group in members}


def sets_of(labels):
    return {frozenset(np.flatnonzero(labels == g).tolist()) for g in np.unique(labels)}


@pytest.mark.parametrize(("count", "groups"), [(1, 1), (2, 1), (7, 3), (12, 12), (12, 1), (15, 4)])
@pytest.mark.parametrize("weighted", [False, True])
def test_groups_are_wards(count, groups, weighted):
    rng = np.random.default_rng(count * 31 + groups)
    points = rng.normal(size=(count, 5))
    weights = rng.uniform(0.1, 3, count) if weighted else np.ones(count)
    distance = ((points[:, None] - points[None]) ** 2).sum(axis=-1).astype(np.float32)
    labels = np.empty(count, np.int32)
    _native.group_by_ward(distance, weights.astype(np.float32), groups, labels)
    assert sets_of(labels) == brute_force_ward(points, weights, groups)
    first = [int(np.flatnonzero(labels == g)[0]) for g in range(groups)]
    assert first == sorted(first)


def test_arguments_of_the_kernel_are_checked():
    labels = np.empty(3, np.int32)
    ones = np.ones(3, np.float32)
    for distance, weight, groups in (
        (np.zeros((3, 2), np.float32), ones, 1),
        (np.zeros((3, 3), np.float32), ones, 0),
        (np.zeros((3, 3), np.float32), np.array([1, 0, 1], np.float32), 1),
        (np.zeros((3, 3), np.float32), np.array([1, np.nan, 1], np.float32), 1),
    ):
        with pytest.raises(ValueError, match="must be"):
            _native.group_by_ward(distance, weight, groups, labels)


def units(rng, *shape):
    values = rng.normal(size=shape)
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def test_a_vector_stands_for_the_token_nearest_to_it():
    rng = np.random.default_rng(3)
    centres = units(rng, 4, 8)
    tokens = np.repeat(centres, 3, axis=0) + 0.05 * rng.normal(size=(12, 8))
    spans = np.stack([np.arange(12) * 5, np.arange(12) * 5 + 4], axis=1)
    texts = TokenVectors.from_list([tokens], token_ids=[np.arange(12)], spans=[spans])
    pooled = pool(texts, 1 / 3)
    expected = np.stack([tokens[i : i + 3].mean(axis=0) for i in range(0, 12, 3)])
    cosines = (pooled[0] * expected).sum(axis=1) / np.linalg.norm(pooled[0], axis=1) / np.linalg.norm(expected, axis=1)
    np.testing.assert_allclose(cosines, 1, atol=1e-5)
    norms = np.linalg.norm(tokens, axis=1).reshape(4, 3).mean(axis=1)
    np.testing.assert_allclose(np.linalg.norm(pooled[0], axis=1), norms, rtol=1e-5)
    for g, token in enumerate(pooled.token_ids):
        own = tokens[3 * g : 3 * g + 3]
        similar = own @ expected[g] / np.linalg.norm(own, axis=1)
        assert token == 3 * g + int(np.argmax(similar))
        assert pooled.spans[g].tolist() == spans[token].tolist()


def test_how_many_are_kept_and_in_which_order():
    rng = np.random.default_rng(4)
    lengths = [0, 1, 2, 5, 9, 40]
    texts = TokenVectors.from_list(
        [units(rng, n, 8) for n in lengths], token_ids=[np.arange(n) for n in lengths], dim=8
    )
    for keep in (0.1, 0.2, 0.5, 0.9, 1.0):
        pooled = pool(texts, keep)
        assert pooled.lengths.tolist() == [int(np.ceil(keep * n)) for n in lengths]
        for i in range(len(lengths)):
            ids = pooled.token_ids[pooled.offsets[i] : pooled.offsets[i + 1]]
            assert (np.diff(ids) > 0).all()
    assert pool(texts, 1.0) is texts


def test_vectors_of_the_whole_text_are_left_as_they_are():
    rng = np.random.default_rng(5)
    spans = np.array([[0, 0], *[[i, i + 1] for i in range(18)], [18, 18]])
    texts = TokenVectors.from_list([units(rng, 20, 8)], spans=[spans])
    pooled = pool(texts, 0.2)
    assert pooled.n_tokens == 4
    np.testing.assert_array_equal(pooled[0][[0, -1]], texts[0][[0, -1]])
    assert pool(texts, 0.1).n_tokens == 2  # where nothing would be left of the words, all are pooled alike


def test_saliences_weigh_groups_and_their_means():
    rng = np.random.default_rng(6)
    tokens, salience = units(rng, 14, 8).astype(np.float32), rng.permutation(14) / 14
    texts = TokenVectors.from_list([tokens], token_ids=[np.arange(14)], salience=[salience])
    pooled = pool(texts, 0.4)
    weights = (salience + LEAST_WEIGHT) / np.mean(salience + LEAST_WEIGHT)
    groups = sorted(brute_force_ward(tokens, weights, 6), key=min)
    means = [np.average(tokens[list(group)], axis=0, weights=weights[list(group)]) for group in groups]
    expected = {tuple(np.round(mean / np.linalg.norm(mean), 4)) for mean in means}
    found = pooled[0] / np.linalg.norm(pooled[0], axis=1, keepdims=True)
    np.testing.assert_allclose(sorted(map(tuple, found)), sorted(expected), atol=2e-4)
    assert sorted(pooled.salience) == pytest.approx(sorted(max(salience[list(group)]) for group in groups))
    unweighted = brute_force_ward(tokens, np.ones(14), 6)
    assert unweighted != set(groups)
    flat = TokenVectors.from_list([tokens], token_ids=[np.arange(14)], salience=[np.zeros(14)])
    bare = TokenVectors.from_list([tokens], token_ids=[np.arange(14)])
    np.testing.assert_allclose(pool(flat, 0.4).values, pool(bare, 0.4).values, atol=1e-6)


def test_an_index_keeps_pooling_after_it_is_opened_again(tmp_path):
    rng = np.random.default_rng(7)
    texts = TokenVectors.from_list([units(rng, 20, 8) for _ in range(3)], token_ids=[np.arange(20)] * 3)
    with Index.create(tmp_path / "i", dim=8, keep=0.2) as index:
        index.add(["a"], texts[:1])
    with Index.open(tmp_path / "i") as index:
        assert index.info()["keep"] == index.keep == 0.2
        index.add(["b"], texts[1:2])
        assert index.build([("c", texts[2])]) == 1
        pooled = pool(texts, 0.2)
        for i, name in enumerate("abc"):
            np.testing.assert_allclose(index.vectors(name).values, pooled[i], atol=2e-2)
        (ranking,) = index.search(pooled[1], 3)
        assert ranking.ids[0] == "b"


@pytest.mark.parametrize("keep", [0, -1, 1.01, float("nan"), "0.2", True])
def test_bad_keep(tmp_path, keep):
    with pytest.raises(WeftError, match=r"keep.*must be a number in \(0, 1\]"):
        Index.create(tmp_path / "i", dim=4, keep=keep)
    assert not (tmp_path / "i").exists()


def test_keep_and_beta_d_exclude_each_other(tmp_path):
    with pytest.raises(WeftError, match=r"keep.*left out where beta_d is given"):
        Index.create(tmp_path / "i", dim=4, keep=0.2, beta_d=0.5)
