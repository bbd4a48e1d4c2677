"""Calls that a new user makes of `TextIndex`: misspelt, closed, in a row, asynchronous."""

import asyncio
import inspect
import subprocess
import sys

import pytest

from encoders import light_models
from weft import Document, TextIndex, WeftError
from weft.errors import IndexStateError, InvalidParameterError
from weft.search import Index, Searcher
from weft.search.options import SEARCH_OPTIONS

TEXTS = {"mars": "the red planet mars", "sky": "the sky is blue", "dog": "the lazy dog"}
LONG = "the quick fox jumps over the lazy dog. " * 20


@pytest.fixture
def index(tmp_path):
    model = light_models.write(tmp_path / "tiny")
    with TextIndex.open(tmp_path / "t.weft", create=True, model=model) as made:
        made.add(TEXTS)
        yield made


def test_the_options_are_those_of_the_methods_below():
    below = set(inspect.signature(Index.search).parameters) - {"self", "queries", "k"}
    own = {
        name
        for name, parameter in inspect.signature(Searcher.search).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert below | own == SEARCH_OPTIONS


@pytest.mark.parametrize("method", ["search", "search_many", "answers", "explain"])
def test_a_misspelt_keyword(index, method):
    query = "red" if method in ("search", "explain") else ["red"]
    with pytest.raises(InvalidParameterError, match="search has no parameter 'filtr': did you mean 'filter'"):
        getattr(index, method)(query, filtr="year > 2000")


def test_a_misspelt_keyword_is_a_type_error(tmp_path):
    pytest.importorskip("mypy", reason="needs mypy: make lint installs it")
    program = tmp_path / "program.py"
    program.write_text(
        "from weft import TextIndex\n\n\ndef ask(index: TextIndex) -> None:\n"
        "    index.search('a', filter='year > 2000')\n    index.search('a', filtr='year > 2000')\n"
    )
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "program.py:6" in done.stdout
    assert '"filtr"' in done.stdout
    assert "program.py:5" not in done.stdout


HALF = "half a character: \ud800"


@pytest.mark.parametrize(
    "documents",
    [{"x": HALF}, {HALF: "x"}, {5: "x"}, {"x": 5}, [HALF], [Document("x", "y", {"a": HALF})], [Document("x", "y", 7)],
     [Document("x", "y", {"a": {1, 2}})], [Document("x", "y", {"a": 10**5000})], 5, None, b"bytes", [("id", "text")]],
)  # fmt: skip
def test_documents_that_are_none(index, documents):
    with pytest.raises(InvalidParameterError) as error:
        index.add(documents)
    assert "\n" not in str(error.value)
    assert len(index) == len(TEXTS)


def test_metadata_with_numbers_for_names(index):
    metadata = {1: "one", "a": 2}
    assert index.add([Document("x", "y", metadata)]).added == 1
    assert index.add([Document("x", "y", metadata)]).unchanged == 1


@pytest.mark.parametrize("name", [5, None, [5], ["mars", 5]])
def test_ids_that_are_none(index, name):
    for use in (index.get, index.delete):
        with pytest.raises(InvalidParameterError, match="'id' parameter"):
            use(name)
    assert len(index) == len(TEXTS)


def test_one_query_or_many(index):
    with pytest.raises(InvalidParameterError, match="search_many takes several"):
        index.search(["a", "b"])
    with pytest.raises(InvalidParameterError, match="search takes one"):
        index.search_many("a")
    assert [len(found) for found in index.search_many(["red", "blue"], k=2)] == [2, 2]


def test_hybrid_is_a_switch(index):
    assert index.search("lazy dog", hybrid=True) == index.search("lazy dog", hybrid="blend")
    assert index.search("lazy dog", hybrid=False) == index.search("lazy dog")


def test_get_in_and_iteration(index):
    index.add({"long": LONG})
    assert "long" in index
    assert "mars" in index
    assert "nothing" not in index
    assert 7 not in index
    assert index.get("long").text == LONG
    assert set(index.get("long").metadata) == {"weft"}
    assert index.get("nothing") is None
    assert len(list(index)) == len(index) > 4
    assert {"mars", "sky", "dog", "long##0"} <= set(index)


@pytest.mark.parametrize(
    "call",
    [
        lambda index: index.search("a"),
        lambda index: index.add({"a": "b"}),
        lambda index: index.get("a"),
        lambda index: len(index),
        lambda index: "a" in index,
        lambda index: list(index),
        lambda index: index.info(),
        lambda index: index.delete("a"),
        lambda index: index.explain("a"),
    ],
)
def test_a_closed_index(index, call):
    index.close()
    index.close()
    assert repr(index) == "TextIndex(closed)"
    with pytest.raises(IndexStateError, match="the index is closed"):
        call(index)


def test_asynchronous(index):
    async def work():
        summary = await index.aadd([Document("fox", "the quick fox", {"year": 2020})])
        both = await asyncio.gather(index.asearch("quick fox", k=1), index.asearch_many(["red", "blue"], k=1))
        return summary, both, await index.aget("fox"), await index.adelete("fox")

    summary, (one, many), document, deleted = asyncio.run(work())
    assert (summary.added, document.text, deleted) == (1, "the quick fox", 1)
    assert [len(found) for found in (one, *many)] == [1, 1, 1]
    with pytest.raises(WeftError):
        asyncio.run(index.asearch("a", filtr=1))
