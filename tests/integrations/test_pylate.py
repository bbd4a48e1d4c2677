"""PyLate's shapes: against brute force, and where PyLate is installed against PyLate itself."""

import inspect

import numpy as np
import pytest

from encoders import light_models
from weft import Index
from weft.errors import DataError, IndexExistsError, IndexStateError, InvalidParameterError
from weft.integrations.pylate import indexes, models, rank, retrieve

DIM = 16
IDS = [f"d{i}" for i in range(40)]


def embeddings(seed, count):
    """Unit vectors, and many of them: no best similarity is negative, which PyLate's padding would cut off at 0."""
    rng = np.random.default_rng(seed)
    made = [rng.standard_normal((length, DIM)).astype(np.float32) for length in rng.integers(8, 20, count)]
    return [text / np.linalg.norm(text, axis=1, keepdims=True) for text in made]


QUERIES, DOCUMENTS = embeddings(0, 3), embeddings(1, len(IDS))
SCORES = np.array([[(query @ document.T).max(axis=1).sum() for document in DOCUMENTS] for query in QUERIES])


@pytest.fixture
def index(tmp_path):
    return indexes.PLAID(index_folder=tmp_path, index_name="colbert", override=True, n_ivf_probe=4).add_documents(
        documents_ids=IDS, documents_embeddings=DOCUMENTS
    )


def told(results):
    return [[(one["id"], pytest.approx(one["score"], abs=1e-2)) for one in of] for of in results]


def best(k=5, among=None):
    rows = []
    for row in SCORES:
        order = [j for j in np.argsort(-row, kind="stable") if among is None or IDS[j] in among]
        rows.append([{"id": IDS[j], "score": row[j]} for j in order[:k]])
    return rows


class TestIndex:
    def test_retrieve_is_brute_force(self, index):
        assert told(retrieve.ColBERT(index=index).retrieve(queries_embeddings=QUERIES, k=5)) == told(best())
        single = retrieve.ColBERT(index).retrieve(QUERIES[0], k=5)
        assert told(single) == told(best()[:1])

    def test_subsets(self, index):
        some = ["d3", "d7", "d11", "nothing"]
        assert told(index(QUERIES, k=9, subset=some)) == told(best(9, some))
        each = [["d1"], ["d2", "d3"], ["d4"]]
        found = index(QUERIES, k=9, subset=each)
        assert [{one["id"] for one in of} for of in found] == [{"d1"}, {"d2", "d3"}, {"d4"}]
        with pytest.raises(InvalidParameterError, match="one for each of the 3 queries"):
            index(QUERIES, subset=[["d1"]])

    def test_adding_again_replaces_and_removing_removes(self, index, tmp_path):
        index.add_documents("d0", [QUERIES[0]])
        assert index(QUERIES[:1], k=1)[0][0]["id"] == "d0"
        index.remove_documents(["d0", "nothing"])
        assert "d0" not in {one["id"] for one in index(QUERIES[:1], k=99)[0]}
        with Index.open(tmp_path / "colbert") as opened:
            assert len(opened) == 39
            assert opened.check().sound

    def test_it_is_kept_and_can_be_begun_anew(self, index, tmp_path):
        again = indexes.Weft(tmp_path, "colbert")
        assert told(again(QUERIES, k=5)) == told(best())
        anew = indexes.Weft(tmp_path, "colbert", override=True)
        with pytest.raises(IndexStateError, match="call add_documents first"):
            anew(QUERIES)

    def test_integers_come_back_as_integers(self, tmp_path):
        made = indexes.Voyager(tmp_path, "i", embedding_size=DIM).add_documents(range(40), DOCUMENTS, batch_size=7)
        assert [one["id"] for one in made(QUERIES, k=5)[0]] == [int(one["id"][1:]) for one in best()[0]]
        made.remove_documents([best()[0][0]["id"][1:]])
        assert len(made(QUERIES[:1], k=99)[0]) == 39

    def test_stored_vectors(self, index):
        ((first, second), (third,)) = index.get_documents_embeddings([["d0", "d1"], ["d2"]])
        for got, expected in ((first, DOCUMENTS[0]), (second, DOCUMENTS[1]), (third, DOCUMENTS[2])):
            np.testing.assert_allclose(got, expected, atol=2e-3)
        with pytest.raises(DataError, match="no document 'x'"):
            index.get_documents_embeddings([["x"]])

    def test_mistakes(self, tmp_path):
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "notes.txt").write_text("mine")
        with pytest.raises(IndexExistsError, match="not a weft index"):
            indexes.PLAID(tmp_path, "full", override=True)
        assert (tmp_path / "full" / "notes.txt").exists()
        with pytest.raises(TypeError, match="'nprobes'"):
            indexes.PLAID(tmp_path, "x", nprobes=3)
        with pytest.raises(InvalidParameterError, match="8, 4 or 2"):
            indexes.PLAID(tmp_path, "x", nbits=1)
        made = indexes.PLAID(tmp_path, "x")
        for ids, texts, said in (
            (["a"], DOCUMENTS[:2], "one for each of the 1 ids"),
            ([1.5], DOCUMENTS[:1], "strings or integers"),
            (["a"], "text", "an array, a tensor"),
            (["a"], np.zeros(3), "of shape"),
            (["a"], [np.zeros((1, 2, 3))], "for each text"),
        ):
            with pytest.raises(InvalidParameterError, match=said):
                made.add_documents(ids, texts)


def test_rerank():
    groups = [[0, 1, 2], [5], []]
    found = rank.rerank(
        documents_ids=[[IDS[j] for j in group] for group in groups],
        queries_embeddings=QUERIES,
        documents_embeddings=[[DOCUMENTS[j] for j in group] for group in groups],
    )
    for row, group, results in zip(SCORES, groups, found, strict=True):
        order = sorted(group, key=lambda j: -row[j])
        assert [one["id"] for one in results] == [IDS[j] for j in order]
        assert [one["score"] for one in results] == pytest.approx([row[j] for j in order], rel=1e-4)
    with pytest.raises(InvalidParameterError, match="as many lists"):
        rank.rerank([["a"]], QUERIES, [[DOCUMENTS[0]]])


def test_xtr_is_the_sum_of_what_was_retrieved_or_imputed(index):
    k_token = 30
    found = retrieve.XTR(index).retrieve(QUERIES, k=5, k_token=k_token)
    for query, results in zip(QUERIES, found, strict=True):
        similarities = [query @ document.T for document in DOCUMENTS]  # (n, m) each
        last = np.sort(np.concatenate(similarities, axis=1), axis=1)[:, -k_token]  # (n,)
        totals = {}
        for name, S in zip(IDS, similarities, strict=True):
            top = S.max(axis=1)
            if (top >= last).any():
                totals[name] = np.where(top >= last, top, last).sum()
        expected = sorted(totals, key=lambda name: -totals[name])[:5]
        assert [one["id"] for one in results] == expected
        assert [one["score"] for one in results] == pytest.approx([totals[name] for name in expected], abs=1e-2)


def test_models(tmp_path):
    model = models.ColBERT(model_name_or_path=light_models.write(tmp_path / "tiny"))
    one, two = model.encode(["red planet", "lazy dog"], is_query=True)
    np.testing.assert_allclose(one, light_models.answer("red planet", "query")["values"], atol=1e-5)
    np.testing.assert_array_equal(model.encode("lazy dog"), two)
    nested = model.encode([["the sky", "the dog"], ["a fox"]], is_query=False)
    assert [len(group) for group in nested] == [2, 1]
    np.testing.assert_allclose(nested[1][0], light_models.answer("a fox", "document")["values"], atol=1e-5)
    for options in ({"pool_factor": 2}, {"normalize_embeddings": False}):
        with pytest.raises(InvalidParameterError, match=next(iter(options))):
            model.encode("x", **options)
    with pytest.raises(InvalidParameterError, match="texts, or lists of texts"):
        model.encode(["x", ["y"]])


class TestBesidePyLate:
    """The real package, in an environment of its own: it cannot live beside sentence-transformers 6."""

    @pytest.fixture
    def pylate(self):
        pytest.importorskip("pylate", reason="needs PyLate: make test-integrations")
        import pylate.indexes
        import pylate.models
        import pylate.rank
        import pylate.retrieve

        return pylate

    def test_signatures(self, pylate):
        for ours, theirs in (
            (indexes.Weft.add_documents, pylate.indexes.Voyager.add_documents),
            (indexes.Weft.remove_documents, pylate.indexes.PLAID.remove_documents),
            (indexes.Weft.update_documents, pylate.indexes.PLAID.update_documents),
            (indexes.Weft.__call__, pylate.indexes.PLAID.__call__),
            (retrieve.ColBERT.__init__, pylate.retrieve.ColBERT.__init__),
            (retrieve.ColBERT.retrieve, pylate.retrieve.ColBERT.retrieve),
            (retrieve.XTR.retrieve, pylate.retrieve.XTR.retrieve),
            (rank.rerank, pylate.rank.rerank),
        ):
            mine, known = (inspect.signature(one).parameters for one in (ours, theirs))
            assert list(mine)[: len(known)] == list(known), ours
            assert all(mine[name].default == known[name].default for name in known), ours
        assert set(inspect.signature(models.ColBERT.encode).parameters) <= set(
            inspect.signature(pylate.models.ColBERT.encode).parameters
        )
        for theirs in (pylate.indexes.PLAID, pylate.indexes.Voyager):
            known = set(inspect.signature(theirs.__init__).parameters) - {"self", "kwargs"}
            assert known <= indexes.TUNING | set(inspect.signature(indexes.Weft.__init__).parameters)
        assert set(pylate.indexes.__all__) <= set(vars(indexes))

    def test_its_retriever_takes_our_index(self, pylate, index):
        found = pylate.retrieve.ColBERT(index=index).retrieve(queries_embeddings=QUERIES, k=5)
        assert told(found) == told(best())

    def test_one_script_either_way(self, pylate, tmp_path, index):
        pytest.importorskip("voyager")
        theirs = pylate.indexes.Voyager(str(tmp_path), "voyager", override=True, embedding_size=DIM)
        theirs.add_documents(documents_ids=IDS, documents_embeddings=DOCUMENTS)
        expected = pylate.retrieve.ColBERT(theirs).retrieve(queries_embeddings=QUERIES, k=5, k_token=200)
        assert told(retrieve.ColBERT(index).retrieve(queries_embeddings=QUERIES, k=5, k_token=200)) == told(expected)

    def test_rerank(self, pylate):
        import torch

        groups = [[IDS[:9], IDS[9:15], IDS[15:]], QUERIES, [DOCUMENTS[:9], DOCUMENTS[9:15], DOCUMENTS[15:]]]
        expected = pylate.rank.rerank(*groups)
        assert told(rank.rerank(*groups)) == told(expected)
        tensors = [torch.from_numpy(query) for query in QUERIES]
        assert told(rank.rerank(groups[0], tensors, groups[2])) == told(expected)

    def test_xtr(self, pylate, index):
        k_token = 30
        for query, ours in zip(QUERIES, retrieve.XTR(index).retrieve(QUERIES, k=5, k_token=k_token), strict=True):
            similarities = np.concatenate([query @ document.T for document in DOCUMENTS], axis=1)  # (n, T)
            owners = np.repeat(IDS, [len(document) for document in DOCUMENTS])
            order = np.argsort(-similarities, axis=1)[:, :k_token]
            expected = pylate.rank.score_xtr(
                [owners[row].tolist() for row in order], np.take_along_axis(similarities, order, axis=1).tolist(), k=5
            )
            assert told([ours]) == told([expected])
