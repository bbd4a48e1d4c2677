"""Measuring and adapting an index."""

import numpy as np
import pytest

from weft import Document, Index, TokenVectors
from weft.errors import DataError, InvalidParameterError
from weft.evaluation.adaptation import choose
from weft.evaluation.indexes import Parents, read_examples, score_examples, search_index
from weft.evaluation.measures import evaluate


class Letters:
    """A token for each letter of a … d: an encoder whose vectors are known."""

    dim = 4

    def encode_query(self, texts, **_):
        return TokenVectors.from_list([np.eye(4)[["abcd".index(c) for c in text]] for text in texts], dim=4)


@pytest.fixture
def index(tmp_path):
    """Twenty pairs: of each one document says a thing once among much else, the other says it often."""
    rng = np.random.default_rng(0)
    documents, vectors = [], []
    for i in range(20):
        topic = rng.standard_normal(4)
        topic /= np.linalg.norm(topic)
        away = rng.standard_normal((5, 4)) * 0.1
        documents += [f"once{i}", f"often{i}"]
        vectors += [np.concatenate([[topic], away]), np.concatenate([[topic * 0.95] * 4, away[:2]])]
    with Index.create(tmp_path / "i.weft", dim=4) as index:
        index.add(documents, TokenVectors.from_list(vectors))
        index.queries = TokenVectors.from_list([vectors[2 * i][:1] for i in range(20)])
        yield index


def test_the_index_adapts_where_it_should(index):
    """Where the document that says it often is the relevant one, a larger k is right."""
    names = [str(i) for i in range(20)]
    often = {str(i): {f"often{i}": 1} for i in range(20)}
    values = score_examples(index, index.queries, names, often).ndcg
    assert next(iter(values)) == "sum-of-max"
    assert values["top-k:4"].mean() > values["sum-of-max"].mean()
    choice = choose(score_examples(index, index.queries[:8], names[:8], often), "sum-of-max")
    assert choice.alignment.startswith("top-k:")
    index.remember_alignment(choice.alignment)
    # The search itself now does what was measured.
    run = {
        n: {r.id: r.score for r in ranking} for n, ranking in zip(names, index.search(index.queries, 100), strict=True)
    }
    found = evaluate(run, often, ["nDCG@10"]).values("nDCG@10")
    np.testing.assert_allclose(found, values[choice.alignment], atol=1e-6)
    # And what is right now stays right.
    assert choose(score_examples(index, index.queries, names, often), index.alignment).alignment == choice.alignment


def test_and_stays_where_it_should(index):
    names = [str(i) for i in range(8)]
    once = {str(i): {f"once{i}": 1} for i in range(8)}
    assert not choose(score_examples(index, index.queries[:8], names, once), index.alignment).changed


def test_scores_are_those_of_searching(index):
    """Under each alignment, what ranking the candidates says is what a search finds (all documents are candidates)."""
    names = [str(i) for i in range(5)]
    qrels = {n: {f"often{n}": 2, f"once{n}": 1} for n in names}
    values = score_examples(index, index.queries[:5], names, qrels, ["top-k:2", "top-p:0.5", "xtr:30", "da:2"]).ndcg
    for alignment, found in values.items():
        rankings = index.search(index.queries[:5], 40, alignment=alignment)
        run = {n: {r.id: r.score for r in ranking} for n, ranking in zip(names, rankings, strict=True)}
        np.testing.assert_allclose(found, evaluate(run, qrels, ["nDCG@10"]).values("nDCG@10"), atol=1e-6)


class TestTheIndexsOwnAlignment:
    def test_is_kept_and_seen_by_readers(self, index):
        with Index.open(index.folder) as reader:
            assert reader.alignment == "sum-of-max" == reader.info()["alignment"]
            query = index.queries[:1]
            before = reader.search(query, 3)[0]
            index.remember_alignment("top-k:4")
            after = reader.search(query, 3)[0]  # no need to open it again
            assert reader.alignment == "top-k:4" == reader.info()["alignment"]
            assert after.ids == reader.search(query, 3, alignment="top-k:4")[0].ids != before.ids
            assert before.ids == reader.search(query, 3, alignment="sum-of-max")[0].ids
        with Index.open(index.folder) as again:
            assert again.alignment == "top-k:4"

    def test_must_be_one_for_searching(self, index):
        for bad in ("xtr-in-batch:4", "top-q:3"):
            with pytest.raises(InvalidParameterError):
                index.remember_alignment(bad)
        assert index.alignment == "sum-of-max"

    def test_searchers_take_it(self, tmp_path):
        from weft.search import Searcher

        with Index.create(tmp_path / "s.weft", dim=4) as index:
            index.add(["x"], Letters().encode_query(["ab"]))
            index.remember_alignment("top-k:2")
            searcher = Searcher(index, Letters())
            assert str(searcher.search(["a"])[0].alignment) == "top-k:2"
            assert str(searcher.search(["a"], alignment="sum-of-max")[0].alignment) == "sum-of-max"


class TestPassages:
    @pytest.fixture
    def split(self, tmp_path):
        with Index.create(tmp_path / "p.weft", dim=4) as index:
            texts = {"long#0": "ab", "long#1": "cc", "whole": "cd", "odd#1": "aa"}
            documents = [Document(n, t, {"parent": "long"} if n.startswith("long") else {}) for n, t in texts.items()]
            index.add(documents, Letters().encode_query(list(texts.values())))
            yield index

    def test_count_for_their_document(self, split):
        run = search_index(split, Letters(), {"q": "cc", "r": "a"}, depth=3)
        assert list(run["q"]) == ["long", "whole", "odd#1"]
        assert run["q"]["long"] == pytest.approx(2.0)
        assert set(run["r"]) == {"long", "odd#1", "whole"}

    def test_unknown_documents(self, split, caplog):
        assert Parents(split).known({"q": {"long": 1, "gone": 1}, "r": {"gone": 1}}) == {"q": {"long": 1}}
        assert "2 judgements name unknown" in caplog.text
        with pytest.raises(DataError, match="none of the 1 documents judged is in the index"):
            Parents(split).known({"q": {"gone": 1}})


class TestExamples:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "has no examples"),
            ("only a query\n", "line 1: expected a query, a document's id"),
            ("q\td\tone\n", "line 1: expected"),
            ("q\td\t1\textra\n", "line 1: expected"),
            ("\td\n", "line 1: expected"),
            ("q\td\t1\nq\td\t2\n", "line 2: document 'd' has two grades for 'q'"),
        ],
    )
    def test_bad_files(self, tmp_path, text, message):
        path = tmp_path / "e.tsv"
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_examples(path)

    def test_a_header(self, tmp_path):
        path = tmp_path / "e.tsv"
        path.write_text("query\tdocument\tgrade\nwhy?\td1\t2\n")
        assert read_examples(path) == ({"1": "why?"}, {"1": {"d1": 2}})
