"""Search over coded segments: near the truth by default, the truth itself with exact=True."""

import numpy as np
import pytest

import weft
from weft import Document, TokenVectors
from weft.search import Index
from weft.storage import merger
from weft.storage.arrays import Arrays, write_arrays
from weft.storage.check import check

DIM, N = 24, 400


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def topical(rng, words, n):
    """A text of n tokens about four of the words, as token vectors are: near their word, no two alike."""
    topic = rng.choice(len(words), 4, replace=False)
    return unit(words[rng.choice(topic, n)] + 0.15 * rng.standard_normal((n, DIM)))


@pytest.fixture(scope="module")
def corpus():
    rng = np.random.default_rng(0)
    words = unit(rng.standard_normal((60, DIM)))
    documents = [topical(rng, words, int(rng.integers(0, 40))) for _ in range(N)]
    queries = []
    for size in rng.integers(1, 40, 20):  # each query is a disturbed copy of some document's tokens
        source = documents[int(rng.integers(0, N))]
        tokens = source[rng.integers(0, len(source), size)] if len(source) else words[:size]
        queries.append(unit(tokens + 0.1 * rng.standard_normal(tokens.shape)))
    return documents, queries


@pytest.fixture(scope="module")
def index(corpus, tmp_path_factory):
    """400 documents, coded although they are few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merger, "CODED_TOKENS", 1000)
        with Index.create(tmp_path_factory.mktemp("coded") / "c.weft", DIM) as made:
            documents = [Document(f"d{i}", metadata={"n": i, "rare": i % 100 == 7}) for i in range(N)]
            made.add(documents, TokenVectors.from_list(corpus[0]))
            yield made


def stored(index):
    """The vectors that the codes stand for."""
    (live,) = index.view().__enter__().segments
    assert live.segment.coded
    return live.segment.vectors()


def recall(found, scores, k):
    truth = set(np.argsort(-scores, kind="stable")[:k].tolist())
    return len(truth & {int(id[1:]) for id in found.ids}) / k  # noqa: A001


def test_codes_are_close_to_the_vectors(index, corpus):
    original = TokenVectors.from_list(corpus[0]).values
    error = np.linalg.norm(stored(index).values - original, axis=1)
    assert error.max() < 0.03


@pytest.mark.parametrize("alignment", ["sum-of-max", "sum-of-max,z=query", "top-k:2", "top-p:0.1", "da:2"])
def test_exact_is_the_truth_under_the_codes(index, corpus, alignment):
    documents = stored(index)
    for query in corpus[1][:6]:
        (ranking,) = index.search(query, k=10, alignment=alignment, exact=True)
        scores = weft.score(query, documents, alignment)
        scores[documents.lengths == 0] = -np.inf
        expected = np.sort(scores)[::-1][:10]
        assert ranking.scores == pytest.approx(expected, rel=1e-3, abs=1e-4)
        assert ranking.certified
        assert 0 <= ranking.margin <= expected[-1] - np.sort(scores)[-11] + 1e-3


def test_default_effort_finds_nearly_all(index, corpus):
    documents = TokenVectors.from_list(corpus[0])
    found = [recall(index.search(q, refine=60)[0], weft.score(q, documents), 10) for q in corpus[1]]
    assert np.mean(found) > 0.93
    assert not index.search(corpus[1][0], refine=60)[0].certified


def test_more_effort_finds_more(index, corpus):
    documents = TokenVectors.from_list(corpus[0])

    def mean_recall(**effort):
        return np.mean([recall(index.search(q, **effort)[0], weft.score(q, documents), 10) for q in corpus[1]])

    little, much = mean_recall(n_probe=1, k_prime=48, refine=12), mean_recall(n_probe=20, k_prime=4000, refine=200)
    assert little < much - 0.1
    assert much > 0.97


def test_a_filter_does_not_cost_recall(index, corpus):
    kept = [i for i in range(N) if i % 100 == 7 and len(corpus[0][i])]
    documents = stored(index).select(kept)
    for query in corpus[1]:
        (ranking,) = index.search(query, k=3, filter="rare", refine=20)
        scores = weft.score(query, documents)
        assert ranking.scores == pytest.approx(np.sort(scores)[::-1][:3], rel=1e-3)


def test_hits_sum_to_the_score(index, corpus):
    (ranking,) = index.search(corpus[1][0], k=5)
    for result, hits in zip(ranking, ranking.hits, strict=True):
        assert hits.similarity.sum() == pytest.approx(result.score, rel=1e-4)


@pytest.mark.parametrize("alignment", ["xtr", "xtr:200", "xtr:200,impute=none", "xtr:200,impute=zero"])
def test_xtr_from_all_tokens_equals_its_definition(index, corpus, alignment):
    documents = stored(index)
    (ranking,) = index.search(corpus[1][0], k=30, alignment=alignment, exact=True)
    expected = weft.score(corpus[1][0], documents, alignment)
    for result in ranking:
        assert result.score == pytest.approx(float(expected[int(result.id[1:])]), rel=1e-3, abs=1e-4)


def test_xtr_from_probed_documents_is_near(index, corpus):
    truth = index.search(corpus[1][0], k=10, alignment="xtr:100", exact=True)[0]
    found = index.search(corpus[1][0], k=10, alignment="xtr:100", refine=150)[0]
    assert len({*truth.ids} & {*found.ids}) >= 8


def test_deletes_updates_and_compaction(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000)
    documents = TokenVectors.from_list(corpus[0])
    with Index.create(tmp_path / "c.weft", DIM) as index:
        index.add([f"d{i}" for i in range(N)], documents)
        query = corpus[1][0]
        first, second = index.search(query, k=2)[0].ids
        index.delete(first)
        assert index.search(query, k=1)[0].ids[0] == second
        index.add(["new"], TokenVectors.from_list([query]))  # flat, beside the coded segment
        assert index.search(query, k=1)[0].ids[0] == "new"
        before = index.search(query, k=10, exact=True)[0]
        index.compact()
        assert index.info()["segments"] == 1
        after = index.search(query, k=10, exact=True)[0]
        # Coded anew, a vector may move by a rounding: neighbours in the ranking may change places, no more.
        assert after.scores == pytest.approx(before.scores, rel=5e-3)
        assert len({*after.ids} & {*before.ids}) >= 9
        assert check(index).sound


def test_coding_a_decoded_vector_again_changes_nothing(index):
    """Compaction after compaction must not wear the vectors away."""
    from weft.storage.codecs import clustering as codec
    from weft.storage.segments.writing import ROTATION_SEED

    values = stored(index).values
    rotated = values @ codec.rotation(DIM, ROTATION_SEED)
    (live,) = index.view().__enter__().segments
    scale = live.segment._arrays.info["scale"]
    again = codec.encode(rotated, scale)
    assert (again != live.segment._arrays["codes"]).mean() < 1e-3


def test_compaction_of_coded_segments_keeps_most_codes(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000)
    with Index.create(tmp_path / "c.weft", DIM) as index:
        index.add([f"d{i}" for i in range(300)], TokenVectors.from_list(corpus[0][:300]))
        before = index.vectors("d7").values
        index.add([f"d{i}" for i in range(300, N)], TokenVectors.from_list(corpus[0][300:]))
        index.compact()
        assert index.info()["segments"] == 1
        assert np.abs(index.vectors("d7").values - before).max() < 1e-3  # float32 rounding, not a second coding


def test_a_build_is_coded_once(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000)
    monkeypatch.setattr("weft.storage.building.FIRST_TOKENS", 1500)
    with Index.create(tmp_path / "b.weft", DIM) as built, Index.create(tmp_path / "a.weft", DIM) as added:
        built.build(((f"d{i}", x) for i, x in enumerate(corpus[0])), progress=False)
        added.add([f"d{i}" for i in range(N)], TokenVectors.from_list(corpus[0]))
        assert np.array_equal(built.vectors("d7").values, added.vectors("d7").values)


def test_salience_weighs_the_result(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000)
    rng = np.random.default_rng(9)
    saliences = [rng.random(len(d)).astype(np.float32) for d in corpus[0]]
    documents = TokenVectors.from_list(corpus[0], salience=saliences)
    with Index.create(tmp_path / "s.weft", DIM) as index:
        index.add([f"d{i}" for i in range(N)], documents)
        coded = stored(index)
        assert np.array_equal(coded.salience, documents.salience)
        scores = weft.score(corpus[1][0], coded)
        (ranking,) = index.search(corpus[1][0], k=5, exact=True)
        assert ranking.scores == pytest.approx(np.sort(scores)[::-1][:5], rel=1e-3)


def read_all(index, query):
    index.search(query, k=10, exact=True)
    index.search(query, k=10, refine=100)  # looks at the sketches of all


def test_damage_in_the_codes_is_never_answered_from(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000)
    with Index.create(tmp_path / "d.weft", DIM) as index:
        index.add([f"d{i}" for i in range(N)], TokenVectors.from_list(corpus[0]))
    (file,) = (tmp_path / "d.weft" / "segments").iterdir()
    good = file.read_bytes()
    for position in range(2000, len(good), len(good) // 37):
        bad = bytearray(good)
        bad[position] ^= 4
        file.write_bytes(bad)
        with Index.open(tmp_path / "d.weft") as index, pytest.raises(weft.WeftError, match=r"\.seg: damaged"):
            read_all(index, corpus[1][0])


@pytest.mark.parametrize(("bits", "least"), [(8, 0.97), (4, 0.9), (2, 0.7)])
def test_fewer_bits_are_smaller_and_rougher(corpus, tmp_path, monkeypatch, bits, least):
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000)
    with Index.create(tmp_path / "b.weft", DIM, bits=bits) as index:
        index.add([f"d{i}" for i in range(N)], TokenVectors.from_list(corpus[0]))
        assert index.info()["bits"] == bits
        scores = weft.score(TokenVectors.from_list(corpus[1]), TokenVectors.from_list(corpus[0]))
        found = index.search(TokenVectors.from_list(corpus[1]), exact=True)
        assert np.mean([recall(f, s, 10) for f, s in zip(found, scores, strict=True)]) > least
        assert check(index).sound
    with Index.open(tmp_path / "b.weft") as index:
        assert index.bits == bits


def without(path, *names):
    """Take arrays out of the only segment of an index, as if it were written before they were thought of."""
    (file,) = (path / "segments").iterdir()
    with Arrays(file) as stored:
        kept = {name: stored[name].copy() for name in stored._places if name not in names}
        info = stored.info
    file.unlink()
    write_arrays(file, kept, info)


@pytest.mark.parametrize("missing", [["sketches", "codebooks"], ["spread"], ["spread", "sketches", "codebooks"]])
def test_segments_without_sketches_or_spread(corpus, tmp_path, monkeypatch, missing):
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000)
    documents = TokenVectors.from_list(corpus[0])
    with Index.create(tmp_path / "o.weft", DIM) as index:
        index.add([Document(f"d{i}", metadata={"n": i}) for i in range(N)], documents)
        before = [index.search(q, exact=True)[0] for q in corpus[1]]
    without(tmp_path / "o.weft", *missing)
    with Index.open(tmp_path / "o.weft") as index:
        assert check(index).sound
        for query, expected in zip(corpus[1], before, strict=True):
            found = index.search(query, exact=True)[0]
            assert found.ids == expected.ids
            assert found.scores.tolist() == expected.scores.tolist()
        found = [recall(index.search(q, refine=60)[0], weft.score(q, documents), 10) for q in corpus[1]]
        assert np.mean(found) > 0.9
        (ranking,) = index.search(corpus[1][0], k=5, filter="n < 20", refine=8)
        assert all(int(id[1:]) < 20 for id in ranking.ids)  # noqa: A001
        index.add(["new"], TokenVectors.from_list([corpus[1][0]]))
        index.delete("d3")
        index.compact()  # writes what was missing
        (live,) = index.view().__enter__().segments
        assert live.segment.sketched
        assert index.search(corpus[1][0], k=1)[0].ids[0] == "new"


def test_only_eight_bits_have_sketches(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000)
    for bits in (8, 4, 2):
        with Index.create(tmp_path / f"{bits}.weft", DIM, bits=bits) as index:
            index.add([f"d{i}" for i in range(N)], TokenVectors.from_list(corpus[0]))
            (live,) = index.view().__enter__().segments
            assert live.segment.sketched == (bits == 8)
            assert "spread" in live.segment._arrays


def test_scores_are_those_of_the_stored_codes(index, corpus):
    documents = stored(index)
    for query in corpus[1]:
        scores = weft.score(query, documents)
        for result in index.search(query, k=12, refine=30)[0]:
            assert result.score == pytest.approx(float(scores[int(result.id[1:])]), rel=1e-4, abs=1e-4)


def test_a_remembered_filter_sees_every_write(tmp_path):
    def text(i):
        return TokenVectors.from_list([np.full((1, 2), i + 1.0)])

    with Index.create(tmp_path / "f.weft", 2) as index:
        for i in range(3):
            index.add([Document(f"d{i}", metadata={"n": i})], text(i))
        found = lambda: [*index.search(np.ones((1, 2)), filter="n >= 1")[0].ids]  # noqa: E731
        assert found() == found() == ["d2", "d1"]
        index.delete("d2")
        assert found() == ["d1"]
        index.add([Document("d0", metadata={"n": 7})], text(9))
        assert found() == ["d0", "d1"]
        with Index.open(tmp_path / "f.weft") as other:
            assert [*other.search(np.ones((1, 2)), filter="n >= 1")[0].ids] == ["d0", "d1"]
            index.add([Document("d3", metadata={"n": 3})], text(4))
            assert [*other.search(np.ones((1, 2)), filter="n >= 1")[0].ids] == ["d0", "d3", "d1"]
        index.compact()
        assert found() == ["d0", "d3", "d1"]


def test_several_segments_with_deletes_and_filters(corpus, tmp_path, monkeypatch):
    """Coded segments beside each other and a flat one; what is found is what is allowed, best first."""
    monkeypatch.setattr(merger, "CODED_TOKENS", 1000)
    with Index.create(tmp_path / "m.weft", DIM) as index:
        for first, last in ((0, 180), (180, 380), (380, N)):
            made = [Document(f"d{i}", metadata={"odd": bool(i % 2)}) for i in range(first, last)]
            index.add(made, TokenVectors.from_list(corpus[0][first:last]))
        index.add([Document("d5", metadata={"odd": True})], TokenVectors.from_list([corpus[0][6]]))  # moves it
        index.delete([f"d{i}" for i in range(100, 150)])
        texts = {i: corpus[0][6 if i == 5 else i] for i in range(N) if not 100 <= i < 150}
        for odd in (None, True):
            allowed = [i for i in texts if len(texts[i]) and (odd is None or i % 2 == 1)]
            scores = weft.score(TokenVectors.from_list(corpus[1]), TokenVectors.from_list([texts[i] for i in allowed]))
            found = index.search(
                TokenVectors.from_list(corpus[1]), k=10, refine=60, filter=None if odd is None else "odd"
            )
            hits = []
            for ranking, row in zip(found, scores, strict=True):
                truth = {f"d{allowed[j]}" for j in np.argsort(-row, kind="stable")[:10]}
                assert {*ranking.ids} <= {f"d{i}" for i in allowed}
                hits.append(len(truth & {*ranking.ids}) / 10)
            assert np.mean(hits) > 0.93


def test_bits_are_eight_four_or_two(tmp_path):
    with pytest.raises(weft.WeftError, match=r"'bits'.*8, 4 or 2.*3"):
        Index.create(tmp_path / "x.weft", DIM, bits=3)
