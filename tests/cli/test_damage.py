"""Searching an index of which a part is damaged: refused, or gone on without it when asked, and marked."""

import json

import pytest

from weft import TextIndex
from weft.errors import CorruptIndexError, InvalidParameterError

MARK = "1 passage could not be searched"


@pytest.fixture
def damaged(indexed, run, model):
    """The notes, a note that was added later, and a flipped byte in that one's segment."""
    before = set((indexed / "segments").iterdir())
    with TextIndex.open(indexed, model=model) as texts, texts.index.merging.paused():
        texts.add({"later": "the red planet again"})
        (file,) = set((indexed / "segments").iterdir()) - before
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return indexed


def test_is_refused_unless_asked(damaged, run):
    code, out, err = run("search", "n.weft", "red planet")
    assert (code, out) == (1, "")
    assert "damaged" in err


@pytest.mark.parametrize("hybrid", [[], ["--hybrid"], ["--hybrid", "--fusion", "rrf"]])
def test_goes_on_and_says_so(damaged, run, hybrid):
    code, out, err = run("search", "n.weft", "red planet", "--on-damage", "skip", *hybrid)
    assert code == 0
    assert "mars.txt" in out
    assert MARK in err
    code, out, err = run("search", "n.weft", "red planet", "--on-damage", "skip", "--json", *hybrid)
    row = json.loads(out)
    assert (code, row["missing"], row["certified"]) == (0, 1, False)
    assert MARK in err
    code, out, err = run("search", "n.weft", "red planet", "--on-damage", "skip", "--tsv", *hybrid)
    assert "mars.txt" in out
    assert MARK in err


def test_explanations_go_on_too(damaged, run):
    code, out, err = run("explain", "n.weft", "red planet", "--on-damage", "skip")
    assert code == 0
    assert "the score" in out
    assert MARK in err
    code, _, err = run("explain", "n.weft", "red planet", "--doc", "later", "--on-damage", "skip")
    assert code == 1
    assert "document 'later' is in no segment that can be read" in err


def test_a_sound_index_has_nothing_to_say(indexed, run):
    code, out, err = run("search", "n.weft", "red planet", "--on-damage", "skip", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["missing"] == 0


def test_other_words_are_refused(indexed, run):
    code, _, err = run("search", "n.weft", "red planet", "--on-damage", "ignore")
    assert code == 2
    assert "--on-damage" in err
    with pytest.raises(InvalidParameterError, match="on_damage"):
        TextIndex.open(indexed, on_damage="ignore")


def test_no_escape_reaches_the_terminal_from_a_damaged_index(indexed, run, model):
    """Ids and SQLite's own messages, which quote what stands in the file."""
    escape = "\x1b]0;owned\x07\x1b[31m"
    with TextIndex.open(indexed, model=model) as texts, texts.index.merging.paused():
        texts.add({f"id{escape}": "the red planet again"})
        texts.index.remember_model(f"model{escape}")
    for file in (indexed / "segments").iterdir():
        file.write_bytes(b"")
    said = [run("check", "n.weft"), run("info", "n.weft"), run("search", "n.weft", "red"), run("repair", "n.weft")]
    data = (indexed / "catalogue.sqlite").read_bytes()
    assert data.count(b"CREATE TABLE documents")
    quoted = data.replace(b"CREATE TABLE documents", b"CREATE \x1b[31m documents")
    (indexed / "catalogue.sqlite").write_bytes(quoted)
    said += [run("check", "n.weft"), run("search", "n.weft", "red"), run("repair", "n.weft")]
    assert [code for code, _, _ in said[:4]] == [1, 1, 1, 0]
    for code, out, err in said:
        assert "\x1b" not in out + err, (code, out, err)
        assert "\x07" not in out + err


def test_in_python(damaged, model):
    with TextIndex.open(damaged, model=model) as texts, pytest.raises(CorruptIndexError):
        texts.search("red planet")
    with TextIndex.open(damaged, model=model, on_damage="skip") as texts:
        assert "later" not in [match.id for match in texts.search("red planet")]
        for hybrid in (None, "blend", "scores"):
            (answer,) = texts.answers(["red planet"], hybrid=hybrid)
            assert (answer.ranking.missing, answer.ranking.certified) == (1, False)
        assert texts.get("later").text == "the red planet again"
