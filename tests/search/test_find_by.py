"""find_by: a part of the tokens finds documents, all of them rank (ALIGNER §3.2)."""

from itertools import pairwise

import numpy as np
import pytest

from weft import TokenVectors
from weft.errors import WeftError
from weft.search import Index
from weft.storage import merger
from weft.storage.pruning import kept

DIM, N = 16, 600


def made_texts():
    rng = np.random.default_rng(3)
    words = rng.standard_normal((80, DIM))
    texts = []
    for _ in range(N):
        x = words[rng.choice(80, int(rng.integers(3, 25)))]
        x = x + 0.2 * rng.standard_normal(x.shape)
        texts.append((x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32))
    return TokenVectors.from_list(texts, salience=[rng.permutation(len(x)) + 1.0 for x in texts])


def named(a, b):
    return [f"d{i}" for i in range(a, b)]


@pytest.mark.parametrize("weighs", [True, False], ids=["weighs", "chooses"])
@pytest.mark.parametrize("bits", [8, 4])
def test_the_salient_part_is_listed_and_every_token_ranks(tmp_path, monkeypatch, bits, weighs):
    monkeypatch.setattr(merger, "CODED_TOKENS", 500)
    documents = made_texts()
    options = {"bits": bits, "salience_weighs": weighs, "merge": "off"}
    query = documents[5][:4]
    with (
        Index.create(tmp_path / "part", DIM, find_by=0.3, **options) as part,
        Index.create(tmp_path / "all", DIM, **options) as whole,
    ):
        for index in (part, whole):
            for a, b in pairwise([0, 400, 500, 580, N]):
                index.add(named(a, b), documents[a:b])
            index.compact()
        assert part.info()["find_by"] == 0.3
        with part.view() as view:
            (segment,) = (s.segment for s in view.segments)
        finders = kept(documents, 0.3)
        assert np.array_equal(segment.column("finds", np.arange(N)) != 0, finders)
        _, listed = segment.codec.listed(segment.arrays)
        per_document = np.bincount(listed, minlength=N)
        assert (per_document >= 1).all()  # every document can be found
        number = np.add.reduceat(finders, documents.offsets[:-1])
        assert (per_document <= number).all()  # by its salient tokens, of which some may share a centroid
        for alignment in ("sum-of-max", "top-k:2", "xtr:50"):
            (expected,) = whole.search(query, 10, alignment=alignment, exact=True)
            (found,) = part.search(query, 10, alignment=alignment, exact=True)
            assert found.ids == expected.ids
            assert found.scores == pytest.approx(expected.scores, rel=1e-5)
        (found,) = part.search(query, 10, alignment="sum-of-max")
        (every,) = part.search(query, N, alignment="sum-of-max", exact=True)
        scores = dict(zip(every.ids, every.scores.tolist(), strict=True))
        assert found.scores == pytest.approx([scores[name] for name in found.ids], rel=1e-5)


def test_it_is_refused_where_it_cannot_be(tmp_path):
    for options in ({"find_by": 0.5, "beta_d": 0.5}, {"find_by": 0.5, "keep": 0.5}, {"find_by": 0.0}, {"find_by": 2}):
        with pytest.raises(WeftError, match="find_by"):
            Index.create(tmp_path / "x", DIM, **options)
    with Index.create(tmp_path / "y", DIM, find_by=0.5) as index, pytest.raises(WeftError, match=r"find_by.*saliences"):
        index.add(["a"], TokenVectors.from_list([np.eye(DIM)]))
