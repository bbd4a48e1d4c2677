"""Text in a language that the model does not read: said once, recorded, through Python and the command line."""

import json
import logging
import subprocess
import sys

import pytest

from encoders import light_models
from weft import TextIndex

GERMAN = "Die Katze schläft den ganzen Tag auf dem Sofa, weil sie nicht hungrig ist."
ENGLISH = "The cat sleeps on the sofa all day because it is not hungry."


@pytest.fixture
def index(tmp_path):
    with TextIndex.open(tmp_path / "n.weft", create=True) as opened:
        yield opened


def told(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_at_indexing(index, caplog):
    made = index.add({"a": GERMAN, "b": ENGLISH})
    assert made.languages == {"de": 1}
    (line,) = told(caplog)
    assert line.startswith("1 of 2 passages are not in English, the language of weft-small: 1 German.")
    assert "use a model that reads them (--model" in line
    assert line.endswith("), or search by words (--hybrid --weights 0 1)")
    index.add({"c": GERMAN + " Wirklich."})
    assert len(told(caplog)) == 1, "said once"
    assert index.info()["other_languages"] == {"de": 2}
    assert "weft" not in index.search("a cat", 1)[0].metadata
    index.delete(["a", "c"])
    assert index.info()["other_languages"] == {}


def test_at_search(index, caplog):
    index.add({"b": ENGLISH})
    assert index.info()["other_languages"] == {}
    index.search("where does the cat sleep")
    index.search("Sofa")
    assert told(caplog) == []
    index.search("Wo schläft die Katze und warum?")
    index.search("Où dort le chat et pourquoi ?")
    (line,) = told(caplog)
    assert line.startswith("the query is in German, but weft-small reads English: ask in English")


def test_models_of_which_nothing_is_known(tmp_path, caplog):
    model = light_models.write(tmp_path / "tiny")
    with TextIndex.open(tmp_path / "n.weft", create=True, model=model) as index:
        index.add({"a": GERMAN})
        index.search(GERMAN)
        assert index.info()["other_languages"] == {}
    assert not [line for line in told(caplog) if "German" in line]


def test_the_command_line(tmp_path):
    def run(*arguments):  # a process of its own: pytest takes over what is logged in this one
        done = subprocess.run([sys.executable, "-m", "weft", *arguments], cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "de.txt").write_text(GERMAN)
    (tmp_path / "notes" / "en.txt").write_text(ENGLISH)
    code, out, err = run("index", "notes", "-o", "n.weft", "--json")
    assert (code, json.loads(out)["languages"]) == (0, {"de": 1})
    assert err.count("1 of 2 passages are not in English") == 1
    code, _, err = run("index", "notes", "-o", "n.weft")
    assert (code, err) == (0, ""), "nothing was written"
    code, out, err = run("info", "n.weft")
    assert "languages  1 German: passages that the model does not read well" in out
    _, out, _ = run("info", "n.weft", "--json")
    assert json.loads(out)["other_languages"] == {"de": 1}
    code, _, err = run("search", "n.weft", "Wo schläft die Katze und warum?")
    assert code == 0
    assert "the query is in German" in err
    code, _, err = run("search", "n.weft", "where does the cat sleep")
    assert (code, err) == (0, "")
