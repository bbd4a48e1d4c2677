"""Arguments at the edge of what computers can hold: one line that says what is wrong, never a raw error."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from weft import Document, Index, TokenVectors, WeftError
from weft.errors import CheckpointError, InvalidParameterError
from weft.search.encoder_of import load_encoder
from weft.search.lexical import search_lexical
from weft.storage.filters import parse

DIM = 4
QUERY = np.ones((2, DIM), np.float32)


def tokens(count=1):
    return TokenVectors.from_list([np.full((2, DIM), n + 1, np.float32) for n in range(count)])


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    with Index.create(tmp_path_factory.mktemp("arguments") / "i.weft", DIM, merge="off") as index:
        index.add([Document(f"d{n}", f"text {n}", {"n": n}) for n in range(5)], tokens(5))
        yield index


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "metadata",
    [
        {"a": nested(990)},
        {"a": nested(100_000)},
        {"a": nested(150)},
        {"a": 10**5000},
        {"a": "\ud800"},
        {"\udfff": 1},
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": b"bytes"},
        {"a": {1, 2}},
        {(1, 2): 3},
    ],
)
def test_metadata(index, metadata):
    with pytest.raises(InvalidParameterError, match="'metadata' parameter of Document") as error:
        index.add([Document("x", "", metadata)], tokens())
    assert len(str(error.value)) < 1000
    str(error.value).encode()


def test_metadata_that_are_deep_but_not_too_deep(index):
    metadata = {"a": nested(90), "b": 10**400, "brackets": "[{" * 500}
    index.add([Document("deep", "", metadata)], tokens())
    assert index.get("deep").metadata == metadata
    assert "deep" in index.matching("b > 5")
    index.delete("deep")


@pytest.mark.parametrize("document", [7, None, {"id": "x"}, ("x", "text")])
def test_documents_that_are_none(index, document):
    with pytest.raises(InvalidParameterError, match="'documents' parameter of add"):
        index.add([document], tokens())


@pytest.mark.parametrize("vectors", [[np.ones((2, DIM))], [[1.0, [2.0]]], np.ones((1, 2, DIM)), None, "text", 7])
def test_vectors_that_are_none(index, vectors):
    with pytest.raises(InvalidParameterError, match=r"'vectors' parameter of add must be TokenVectors") as error:
        index.add(["x"], vectors)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [5, 1.5, None, b"5", [], {}, ["5", 5]])
def test_ids_that_are_none(tmp_path, name):
    with Index.create(tmp_path / "i.weft", DIM) as index, index.writer() as writer:
        index.add(["5", "1.5", "b"], tokens(3))
        for use in (index.get, index.vectors, index.reading):
            with pytest.raises(InvalidParameterError, match="'id' parameter"):
                use(name)
        if name not in ([], {}):
            for use in (index.delete, writer.delete):
                with pytest.raises(InvalidParameterError, match="'id' parameter"):
                    use(name)
        assert name not in index
        assert len(index) == 3


@pytest.mark.parametrize("name", ["k", "n_probe", "refine", "k_prime", "threads"])
@pytest.mark.parametrize("value", [2**31, 2**63, 2**64, 10**30, 0, -1, 1.5, float("inf"), "3", None, True])
def test_counts(index, name, value):
    if value is None and name not in ("k", "threads"):
        assert index.search(QUERY, **{name: None})
        return
    with pytest.raises(InvalidParameterError, match=f"'{name}' parameter"):
        index.search(QUERY, **{name: value})


@pytest.mark.parametrize("name", ["k", "n_probe", "refine", "k_prime"])
def test_the_largest_counts(index, name):
    assert len(index.search(QUERY, **{name: 2**31 - 1})[0]) == 5


@pytest.mark.parametrize("alignment", [f"xtr:{2**63}", f"xtr:{10**30}", f"top-k:{2**63}", "top-k:-1", "top-p:nan"])
def test_alignments(index, alignment):
    with contextlib.suppress(WeftError):
        index.search(QUERY, alignment=alignment)


@pytest.mark.parametrize(
    "query",
    [[[1.0, 2.0, 3.0, 4.0], [1.0]], [[]], [], 7, "text", [["a"] * DIM], [[None] * DIM], np.full((2, DIM), np.nan),
     np.ones((2, DIM), complex), np.ones((2, DIM), object), np.ones((2, 2, DIM)), np.ones((2, DIM + 1)),
     [QUERY, [[1.0, 2.0]]]],
)  # fmt: skip
def test_queries(index, query):
    with pytest.raises(WeftError) as error:
        index.search(query)
    assert "\n" not in str(error.value)


HALF = "half a character: \ud800"


@pytest.mark.parametrize(
    "use",
    [
        lambda index: index.get(HALF),
        lambda index: HALF in index,
        lambda index: index.vectors(HALF),
        lambda index: index.delete(HALF),
        lambda index: index.matching(f'n == "{HALF}"'),
        lambda index: index.search(QUERY, among=[HALF]),
        lambda index: index.add([Document(HALF)], tokens()),
        lambda index: index.add([Document("x", HALF)], tokens()),
    ],
)
def test_half_a_character(index, use):
    with pytest.raises(WeftError, match="Unicode"):
        use(index)
    assert len(index) == 5
    assert search_lexical(index, HALF).ids == ()


def test_numbers_in_filters(index):
    for text in (f"n == {2**63}", f"n < {10**400}", f"n in [{2**64}]", "n > 1e400"):
        with contextlib.suppress(WeftError):
            index.matching(text)


def test_filters_without_end(index):
    for text in ("(" * 5000 + "n == 1" + ")" * 5000, " and ".join(["n == 1"] * 5000), "not " * 5000 + "n == 1"):
        with contextlib.suppress(WeftError):
            index.matching(text)


@given(st.text(max_size=60))
def test_any_text_as_a_filter(text):
    try:
        found = parse(text)
    except WeftError:
        return
    assert parse(str(found)) == found


@given(st.text(alphabet="ns()[]\"'=!<>&|~,. 1-andortimesg@\\#\ud800\0", max_size=40))
def test_any_signs_as_a_filter(index, text):
    try:
        found, where = index.matching(text), parse(text)
    except WeftError:
        return
    assert set(found) == {f"d{n}" for n in range(5) if where.matches({"n": n}, f"d{n}")}


ARRAYS = arrays(
    st.sampled_from([np.float16, np.float32, np.float64, np.int32, np.uint8, np.complex64, np.bool_, "U3"]),
    array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@given(ARRAYS, st.sampled_from(["sum-of-max", "top-k:2", "xtr:5"]), st.booleans())
def test_any_array_as_a_query(index, query, alignment, exact):
    try:
        (found,) = index.search(query, alignment=alignment, exact=exact)
    except WeftError:
        return
    assert query.ndim == 2
    assert query.shape[1] == DIM
    if alignment == "sum-of-max" and (np.abs(query.astype(np.float64)) < 1e3).all():
        # Document n is n + 1 everywhere: the maxima are the sums of the query's rows times that.
        sums = query.astype(np.float32).sum(axis=1, dtype=np.float64)
        right = sorted(((n + 1) * sums.sum() for n in range(5)), reverse=True)
        assert found.scores == pytest.approx(right, rel=1e-4, abs=1e-2)


@pytest.mark.parametrize("dim", [float("inf"), 0, -1, 65537, True, "8", None, 2**63])
def test_dimensions(tmp_path, dim):
    with pytest.raises(InvalidParameterError, match="dim"):
        Index.create(tmp_path / "i.weft", dim)


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in ("beta_d", "keep", "find_by") for value in (10**400, -1, 0, float("nan"), "1", True)]
    + [("bits", value) for value in (3, 8.0, True, np.float32(8), "8", [], 10**400)],
)
def test_settings(tmp_path, name, value):
    with pytest.raises(InvalidParameterError, match=name):
        Index.create(tmp_path / "i.weft", DIM, **{name: value})


def test_settings_that_are_numpys(tmp_path):
    with Index.create(tmp_path / "i.weft", DIM, beta_d=np.float32(0.5)) as index:
        assert index.beta_d == 0.5


def test_a_model_that_only_the_index_names_is_not_fetched(tmp_path, monkeypatch):
    import huggingface_hub

    asked = []
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda _, name, **__: asked.append(name))
    with Index.create(tmp_path / "i.weft", DIM, model="someone/evil") as index:
        with pytest.raises(CheckpointError, match=r"the model of the index at .*which was not asked.*--model"):
            load_encoder(index)
        assert asked == []
        with pytest.raises(CheckpointError):
            load_encoder(index, "someone/evil")  # the user said so
        assert asked == ["someone/evil"]


def test_the_command_does_not_ask_a_hub(tmp_path):
    Index.create(tmp_path / "i.weft", DIM, model="someone/evil").close()
    script = (
        "import sys, socket\n"
        "def refuse(*_): print('CONNECTED'); raise OSError\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from weft.cli.main import main\n"
        "sys.exit(main(['search', sys.argv[1], 'anything']))"
    )
    ended = subprocess.run([sys.executable, "-c", script, tmp_path / "i.weft"], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "CONNECTED" not in ended.stdout
    assert "the model of the index" in ended.stderr
