"""Where saliences weigh scores, documents are found by weighed scores: recall at default effort against brute force."""

from itertools import pairwise

import numpy as np
import pytest

from weft import TokenVectors
from weft.search import Index
from weft.storage import merger
from weft.storage.arrays import Arrays, write_arrays
from weft.storage.codecs.byte import ByteCodec

DIM, N, WORDS, QUERIES, K, LONGEST = 64, 5000, 400, 60, 10, 30
KINDS = ["weights-8", "gates-8", "gates-4", "gates-2"]


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def texts(rng, words, chosen):
    return unit(words[chosen] + 0.3 * rng.standard_normal((len(chosen), DIM)) * 2 / np.sqrt(DIM))


def made_texts(kind):
    """Documents of common words and words of their subject, and queries that repeat some; all with saliences.

    Queries have ten tokens or more. Where a single one weighs, documents win whose nearest token is far away and heavy:
    no list of near tokens has those.
    """
    rng = np.random.default_rng(4)
    words = unit(rng.standard_normal((WORDS, DIM)))
    common = 1 / np.arange(1, WORDS + 1) ** 0.8
    weight = rng.gamma(2, 0.5, WORDS) * (1 - common)
    documents, saliences = [], []
    for _ in range(N):
        m = int(rng.integers(5, LONGEST))
        subject = rng.choice(WORDS, 8, replace=False)
        of = np.where(rng.random(m) < 0.5, rng.choice(WORDS, m, p=common / common.sum()), rng.choice(subject, m))
        salience = rng.random(m)
        if kind == "gates":  # by the word, about half of them 0, as ALIGNER's gates make them
            salience = weight[of] * np.exp(0.3 * rng.standard_normal(m))
            salience[salience < np.median(salience)] = 0
        documents.append(texts(rng, words, of))
        saliences.append(salience.astype(np.float32))
    queries = []
    for d in rng.choice(N, QUERIES, replace=False):
        rows = rng.integers(0, len(documents[d]), int(rng.integers(10, 40)))
        q = unit(documents[d][rows] + 0.3 * rng.standard_normal((len(rows), DIM)) * 2 / np.sqrt(DIM))
        queries.append(TokenVectors.from_list([q], salience=[np.maximum(saliences[d][rows], 0.01)]))
    return TokenVectors.from_list(documents, salience=saliences), queries


@pytest.fixture(scope="module", params=KINDS)
def made(request, tmp_path_factory):
    """An index that was written in parts and merged, the queries, and what is stored."""
    kind, _, bits = request.param.partition("-")
    documents, queries = made_texts(kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merger, "CODED_TOKENS", 2000)
        with Index.create(tmp_path_factory.mktemp("salient") / "i", DIM, bits=int(bits), merge="inline") as index:
            for a, b in pairwise([0, 3000, 3600, 4200, 4300, 4900, N]):
                index.add([f"d{i}" for i in range(a, b)], documents[a:b])
            index.settle()
            index.delete("d7")
            yield index, queries, stored(index)


def stored(index):
    """Vectors (N, m, dim) and saliences (N, m) as they are stored, −1 where a shorter document has no token."""
    with index.view() as view:
        numbered = [(s.segment.numbers - 1, s.segment.vectors()) for s in view.segments]  # the catalogue's begin at 1
        assert any(s.segment.coded for s in view.segments)
    values, salience = np.zeros((N, LONGEST, DIM), np.float32), np.full((N, LONGEST), -1, np.float32)
    for numbers, vectors in numbered:
        for number, a, b in zip(numbers, vectors.offsets, vectors.offsets[1:], strict=False):
            values[number, : b - a], salience[number, : b - a] = vectors.values[a:b], vectors.salience[a:b]
    salience[7] = -1  # deleted
    return values, salience


def brute_force(query, values, salience):
    """Σ_i u_i u_j(i) S_ij(i) of every document, j(i) the nearest token, and Z = Σ_i u_i u_j(i)."""
    S = values.reshape(-1, DIM) @ query.values.T
    S = np.where(salience[:, :, None] < 0, -np.inf, S.reshape(*salience.shape, -1))  # (N, m, n)
    nearest = S.argmax(axis=1)  # (N, n)
    weight = query.salience * np.take_along_axis(salience, nearest, axis=1)
    total = (weight * np.take_along_axis(S, nearest[:, None], axis=1)[:, 0]).sum(axis=1)
    return np.where((salience >= 0).any(axis=1), total, -np.inf), np.maximum(weight.sum(axis=1), 1e-6)


def test_documents_are_found_by_weighed_scores(made):
    index, queries, (values, salience) = made
    recalls = {"sum-of-max": [], "top-k:1": []}
    for query in queries:
        totals, mass = brute_force(query, values, salience)
        for alignment, truth in (("sum-of-max", totals), ("top-k:1", totals / mass)):
            (found,) = index.search(query, K, alignment=alignment)
            best = {f"d{i}" for i in np.argsort(-truth, kind="stable")[:K]}
            recalls[alignment].append(len(best & set(found.ids)) / K)
            assert found.scores[0] == pytest.approx(truth[int(found.ids[0][1:])], rel=1e-3)
    assert min(np.mean(found) for found in recalls.values()) >= 0.97, recalls


def test_filtered_and_pruned_queries_find_by_weighed_scores(made):
    index, queries, (values, salience) = made
    some = [f"d{i}" for i in range(0, N, 3)]
    recalls = []
    for query in queries[:20]:
        kept = np.argsort(-query.salience, kind="stable")[: -(-len(query.salience) // 2)]
        part = TokenVectors.from_list([query.values[np.sort(kept)]], salience=[query.salience[np.sort(kept)]])
        truth, _ = brute_force(part, values, salience)
        truth = {f"d{i}" for i in np.argsort(-truth[::3], kind="stable")[:K] * 3}
        (found,) = index.search(query, K, alignment="sum-of-max", beta_q=0.5, among=some)
        recalls.append(len(truth & set(found.ids)) / K)
    assert np.mean(recalls) >= 0.97, recalls


def test_weights_of_the_query_alone_weigh(tmp_path, monkeypatch):
    """Documents without saliences, a query with."""
    monkeypatch.setattr(merger, "CODED_TOKENS", 2000)
    documents, queries = made_texts("gates")
    queries = queries[:25]
    with Index.create(tmp_path / "i", DIM, merge="off") as index:
        index.add([f"d{i}" for i in range(N)], documents.without_salience())
        values, salience = stored_plain(index)
        recalls = []
        for query in queries:
            truth, _ = brute_force(query, values, salience)
            (found,) = index.search(query, K, alignment="sum-of-max")
            recalls.append(len({f"d{i}" for i in np.argsort(-truth, kind="stable")[:K]} & set(found.ids)) / K)
        assert np.mean(recalls) >= 0.97, recalls


def stored_plain(index):
    with index.view() as view:
        vectors = view.segments[0].segment.vectors()
    values, salience = np.zeros((N, LONGEST, DIM), np.float32), np.full((N, LONGEST), -1, np.float32)
    for i, (a, b) in enumerate(pairwise(vectors.offsets)):
        values[i, : b - a], salience[i, : b - a] = vectors.values[a:b], 1
    return values, salience


def test_segments_written_before_weights_were_stored_still_answer(tmp_path, monkeypatch):
    """Without list_weights documents are found as they were, and a merge stores weights."""
    monkeypatch.setattr(merger, "CODED_TOKENS", 2000)
    documents, queries = made_texts("gates")
    with Index.create(tmp_path / "i", DIM, merge="off") as index:
        index.add([f"d{i}" for i in range(1000)], documents[:1000])
    (file,) = (tmp_path / "i" / "segments").iterdir()
    arrays = Arrays(file)
    names = ("offsets", "salience", *ByteCodec.required, "spread", "codebooks", "sketches", "codes")
    kept = {name: np.array(arrays[name]) for name in names}
    info = {key: value for key, value in arrays.info.items() if key != "weight_unit"}
    del arrays
    file.unlink()
    write_arrays(file, kept, info)
    with Index.open(tmp_path / "i", merge="off") as index:
        with index.view() as view:
            assert not view.segments[0].segment.weighed
        (before,) = index.search(queries[0], K, alignment="sum-of-max", exact=True)
        (found,) = index.search(queries[0], K, alignment="sum-of-max")
        assert len(found.ids) == K
        assert set(found.scores.tolist()) <= set(
            index.search(queries[0], N, alignment="sum-of-max", exact=True)[0].scores.tolist()
        )
        index.add(["d1000"], documents[1000:1001])
        index.compact()
        with index.view() as view:
            assert view.segments[0].segment.weighed
        (after,) = index.search(queries[0], K, alignment="sum-of-max", exact=True)
        assert after.ids == before.ids
