"""Pools, their encodings on disk, and exact scores over them."""

import numpy as np
import pytest

import oracles
from evaluation.conftest import write_collection
from weft import TokenVectors, score
from weft.errors import DataError, InvalidParameterError
from weft.evaluation.baselines import BM25_SYSTEM, LateInteraction, bm25, candidates_with_gold, late_interaction
from weft.evaluation.pools import Encoded, encode, make_pool
from weft.evaluation.scoring import score_all, to_run


class TestCutting:
    def test_whole(self, collection):
        pool = make_pool(collection, whole=True)
        assert pool.whole
        assert (len(pool.documents), len(pool.queries)) == (30, 20)
        assert pool.name == "tiny"

    def test_a_pool_has_the_relevant_and_the_hard_ones(self, collection):
        pool = make_pool(collection, documents=12, queries=4)
        assert not pool.whole
        assert (len(pool.documents), len(pool.queries)) == (12, 4)
        for query in pool.queries:
            number = int(query[1:])
            assert pool.qrels[query] == {f"d{number}": 2, f"d{(number + 9) % 30}": 1}
            assert set(pool.bm25[query]) <= set(pool.documents)
        everything = make_pool(collection, whole=True)
        hard = {next(iter(everything.bm25[query])) for query in pool.queries}
        assert hard <= set(pool.documents)

    def test_the_same_cut_every_time(self, collection):
        first, second = (make_pool(collection, documents=12, queries=4) for _ in range(2))
        assert first == second
        assert first.digest == second.digest
        assert first.digest != make_pool(collection, documents=12, queries=4, seed=6).digest

    def test_nothing_relevant(self, tmp_path):
        folder = write_collection(tmp_path / "none", {"a": "x"}, {"q": "x"}, {"q": {"a": 0}})
        with pytest.raises(DataError, match="none: no query of the split 'test' has a relevant document"):
            make_pool(folder)


class TestEncodings:
    def test_are_computed_once(self, collection, encoder, tmp_path):
        pool = make_pool(collection, documents=12, queries=4)
        made = encode(pool, encoder, tmp_path / "work")
        assert (len(made.queries), len(made.documents)) == (4, 12)
        assert made.documents.values.dtype == np.float16

        def never():
            raise AssertionError("encoded twice")

        again = encode(pool, never, tmp_path / "work")
        assert again.salience_weighs == made.salience_weighs == encoder.salience_weighs
        for one, other in zip(made[:2], again[:2], strict=True):
            for name in ("values", "offsets", "token_ids", "salience", "spans"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))

    def test_of_other_texts_are_computed_anew(self, collection, encoder, tmp_path, caplog):
        pool = make_pool(collection, documents=12, queries=4)
        encode(pool, encoder, tmp_path)
        other = make_pool(collection, documents=12, queries=4, seed=6)
        assert len(other.documents) == len(pool.documents)
        found = encode(other, encoder, tmp_path)
        assert "of another pool" in caplog.text
        expected = encode(other, encoder)
        np.testing.assert_array_equal(found.documents.values, expected.documents.values)

    def test_files_without_marks_are_read(self, collection, encoder, tmp_path):
        """As benchmarks wrote them before."""
        pool = make_pool(collection, documents=12, queries=4)
        made = encode(pool, encoder)
        arrays = {}
        for side, texts in zip("qd", made[:2], strict=True):
            arrays |= {f"{side}.values": texts.values, f"{side}.offsets": texts.offsets}
        np.savez(tmp_path / "tiny-12.npz", **arrays)
        again = encode(pool, lambda: pytest.fail("encoded"), tmp_path)
        np.testing.assert_array_equal(again.documents.values, made.documents.values)
        assert again.documents.salience is None


@pytest.fixture
def encoded():
    rng = np.random.default_rng(0)
    queries = TokenVectors.from_list([rng.standard_normal((n, 4)) for n in (3, 1, 5)])
    documents = TokenVectors.from_list([rng.standard_normal((m, 4)) for m in (4, 0, 1, 7, 2, 9)], dim=4)
    return Encoded(queries, documents)


class TestScores:
    @pytest.mark.parametrize("alignment", ["sum-of-max", "top-k:2", "top-p:0.3", "da:2", "document-to-query"])
    def test_are_the_definitions(self, encoded, alignment):
        found = score_all(encoded, alignment)
        expected = np.asarray(score(encoded.queries, encoded.documents, alignment))
        expected[:, 1] = -np.inf  # it has no tokens
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize(
        "alignment", ["xtr:1", "xtr:3", "xtr:100", "xtr:4,impute=zero", "xtr:4,impute=0.2", "xtr:4,impute=none"]
    )
    def test_of_xtr_are_the_definition_for_candidates(self, encoded, alignment):
        found = score_all(encoded, alignment)
        full = np.asarray(score(encoded.queries, encoded.documents, alignment))
        candidates = np.isfinite(found)
        np.testing.assert_allclose(found[candidates], full[candidates], rtol=1e-4, atol=1e-5)
        # A document is a candidate if some query token has one of its tokens among its k′ best.
        k = min(int(alignment.split(",")[0].split(":")[1]), encoded.documents.n_tokens)
        for i in range(len(encoded.queries)):
            S = encoded.queries[i] @ encoded.documents.values.T
            owner = np.repeat(np.arange(6), encoded.documents.lengths)
            expected = {int(owner[j]) for row in S for j in np.argsort(-row)[:k]}
            assert set(np.flatnonzero(candidates[i])) == expected

    def test_saliences_that_do_not_weigh(self):
        rng = np.random.default_rng(1)
        texts = TokenVectors.from_list([rng.standard_normal((3, 4))] * 2, salience=[[0.0, 2.0, 1.0]] * 2)
        plain = score_all(Encoded(texts.without_salience(), texts.without_salience()), "top-k:2")
        np.testing.assert_array_equal(score_all(Encoded(texts, texts, salience_weighs=False), "top-k:2"), plain)
        assert np.abs(score_all(Encoded(texts, texts), "top-k:2") - plain).max() > 0.01

    def test_of_training_are_refused(self, encoded):
        with pytest.raises(InvalidParameterError, match="xtr:k_prime"):
            score_all(encoded, "xtr-in-batch:4")

    def test_runs(self):
        scores = np.array([[0.1, -np.inf, 0.3], [0.2, 0.2, 0.1]], np.float32)
        run = to_run(["p", "q"], ["a", "b", "c"], scores, 2)
        assert {q: list(documents) for q, documents in run.items()} == {"p": ["c", "a"], "q": ["a", "b"]}
        some = to_run(["p", "q"], ["a", "b", "c"], scores, 2, among={"p": ["a", "b"], "q": ["c", "b"]})
        assert {q: list(documents) for q, documents in some.items()} == {"p": ["a"], "q": ["b", "c"]}


class TestSystems:
    def test_bm25_is_the_formula(self, collection):
        pool = make_pool(collection, whole=True)
        texts = {name: text.split() for name, text in pool.documents.items()}
        mean = np.mean([len(words) for words in texts.values()])
        query = pool.queries["q3"].split()
        found = bm25(pool)["q3"]

        def weight(word, words):
            frequency = sum(word in other for other in texts.values())
            idf = np.log((len(texts) - frequency + 0.5) / (frequency + 0.5) + 1)
            tf = words.count(word)
            return idf * tf / (tf + 0.9 * (1 - 0.4 + 0.4 * len(words) / mean))

        expected = {name: sum(weight(word, words) for word in query) for name, words in texts.items()}
        ratio = [found[name] / expected[name] for name in found if expected[name] > 0]
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)  # Lucene's leaves out the factor k1 + 1

    def test_more_than_was_kept(self, collection):
        pool = make_pool(collection, whole=True)
        assert len(bm25(pool, 25)["q0"]) == 25
        assert list(bm25(pool, 200)["q0"])[:5] == list(pool.bm25["q0"])[:5]

    def test_late_interaction(self, collection, encoder):
        pool = make_pool(collection, documents=12, queries=4)
        made = encode(pool, encoder)
        run = late_interaction(pool, made, "top-k:2", 5)
        for i, query in enumerate(pool.queries):
            scores = [oracles_score(made, i, j) for j in range(12)]
            best = sorted(zip(scores, pool.documents, strict=True), key=lambda pair: -pair[0])[:5]
            np.testing.assert_allclose(sorted(run[query].values(), reverse=True), [s for s, _ in best], rtol=1e-3)

    def test_through_an_index_it_is_the_same(self, collection, encoder, tmp_path, monkeypatch):
        pool = make_pool(collection, whole=True)
        exact = LateInteraction("tiny", encoder).system("sum-of-max").search(pool, 10, None)
        monkeypatch.setattr("weft.evaluation.baselines.IN_MEMORY", 5)
        system = LateInteraction("tiny", encoder, tmp_path).system("sum-of-max")
        for _ in range(2):  # made, then opened
            found = system.search(pool, 10, None)
            for query in pool.queries:
                np.testing.assert_allclose(sorted(found[query].values()), sorted(exact[query].values()), rtol=1e-2)
        among = {query: ["d0", "d7"] for query in pool.queries}
        assert all(set(documents) == {"d0", "d7"} for documents in system.search(pool, 10, among).values())

    def test_re_ranking(self, collection, encoder):
        """BM25's best and the relevant ones, whatever BM25 thinks of those."""
        pool = make_pool(collection, whole=True)
        among = candidates_with_gold(pool, depth=3)
        for query, names in among.items():
            assert set(pool.qrels[query]) <= set(names)
            assert names[:3] == sorted(pool.bm25[query], key=lambda d: -pool.bm25[query][d])[:3] or len(names) >= 3
            assert len(names) <= 3 + 2
        for system in (BM25_SYSTEM, LateInteraction("tiny", encoder).system("xtr")):
            found = system.search(pool, 10, among)
            assert all(set(found[query]) <= set(names) for query, names in among.items())
        assert {q: set(d) for q, d in BM25_SYSTEM.search(pool, 10, among).items()} == {
            q: set(d) for q, d in among.items()
        }


def oracles_score(made, i, j):
    query, document = made.queries[i : i + 1], made.documents[j : j + 1]
    S = oracles.similarities(query.values, document.values)
    return oracles.relevance(S, oracles.top_k(S, len(document.values), 2), "sum", query.salience, document.salience)


@pytest.mark.torch
def test_single_vectors_are_means(collection, tiny_bert):
    """Against transformers, without sentence-transformers' pooling."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from weft.evaluation.baselines import single_scores, single_vector

    pool = make_pool(collection, documents=12, queries=4)
    tokenizer, model = (
        transformers.AutoTokenizer.from_pretrained(tiny_bert),
        transformers.AutoModel.from_pretrained(tiny_bert),
    )
    model.eval()

    def mean(text):
        with torch.no_grad():
            hidden = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)
        return (hidden / hidden.norm()).numpy()

    expected = (
        np.stack([mean(q) for q in pool.queries.values()]) @ np.stack([mean(d) for d in pool.documents.values()]).T
    )
    np.testing.assert_allclose(single_scores(str(tiny_bert), pool), expected, atol=1e-4)
    assert single_vector("tiny", str(tiny_bert)).name == "tiny, one vector"
