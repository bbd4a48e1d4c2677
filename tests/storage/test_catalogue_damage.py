"""A damaged or crafted catalogue: right answers or one of our errors, never a wrong answer, a raw error or a hang."""

import json
import random
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from faults.machine import require_strace
from weft import Document, Index, TokenVectors, WeftError
from weft.errors import CorruptIndexError, StorageError
from weft.search.lexical import search_lexical
from weft.search.parts import Words, search_lexical_part
from weft.storage.check import check
from weft.storage.repair import repair
from weft.storage.sums import checks_id, tombstones_sum

DIM = 4
COUNT = 60
QUERY = np.ones((2, DIM), np.float32)


def tokens(start, stop):
    rng = np.random.default_rng(start)
    return TokenVectors.from_list([rng.standard_normal((3, DIM)).astype(np.float32) for _ in range(start, stop)])


def documents(start, stop):
    return [Document(f"d{n}", f"text number {n} " * 20, {"n": n, "tags": ["a", "b"]}) for n in range(start, stop)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An index, and what it answers."""
    path = tmp_path_factory.mktemp("made") / "i.weft"
    with Index.create(path, DIM, merge="off") as index:
        index.add(documents(0, 40), tokens(0, 40))
        index.add(documents(40, COUNT), tokens(40, COUNT))
        index.delete(["d3", "d50"])
        return path, answers(index)


def answers(index):
    """Everything that a user may read."""
    found = {"len": len(index), "bits": index.bits, "alignment": index.alignment}
    (ranking,) = index.search(QUERY, 100, exact=True)
    found["search"] = [(r.id, round(r.score, 4)) for r in ranking]
    found["documents"] = [index.get(f"d{n}") for n in range(COUNT)]
    found["lexical"] = sorted(search_lexical(index, "text", 100).ids)
    return found


def copied(made, tmp_path, name="copy.weft"):
    path = tmp_path / name
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(made[0], path)
    return path


def outcome(path, right):
    """'right', 'refused' by one of our errors, or 'wrong'; anything else is raised."""
    try:
        with Index.open(path, merge="off") as index:
            found = answers(index)
    except WeftError:
        return "refused"
    return "right" if found == right else "wrong"


def test_flipped_bytes_anywhere(made, tmp_path):
    rng, counts = random.Random(7), {"right": 0, "refused": 0, "wrong": 0}
    size = (made[0] / "catalogue.sqlite").stat().st_size
    for _ in range(150):
        path = copied(made, tmp_path)
        data = bytearray((path / "catalogue.sqlite").read_bytes())
        at = rng.randrange(size)
        data[at] ^= 1 << rng.randrange(8)
        (path / "catalogue.sqlite").write_bytes(data)
        counts[how := outcome(path, made[1])] += 1
        if how == "wrong":  # SQLite's own index of ids, and of words, are not summed: something is not found there
            with Index.open(path) as index:
                found, right = answers(index), made[1]
                assert not check(index).sound, at
            assert found["search"] == right["search"], at
            assert all(a in (b, None) for a, b in zip(found["documents"], right["documents"], strict=True)), at
    assert counts["refused"] > 20
    assert counts["wrong"] < 10


@pytest.mark.parametrize("value", ["x'643137'", "17", "'d99'", "'d18x'"])
def test_words_do_not_find_an_id_that_was_not_written(made, tmp_path, value):
    """Found by fuzzing: searches by words returned ids as they were read, numbers and bytes among them."""
    path = copied(made, tmp_path)
    with sqlite3.connect(path / "catalogue.sqlite") as db:
        db.execute(f"UPDATE documents SET id = {value} WHERE id = 'd17'")
    db.close()
    with Index.open(path) as index, pytest.raises(CorruptIndexError, match="checksum of document"):
        search_lexical(index, "text", 100)


@pytest.mark.parametrize("id", [None, 17, b"d17", 1.5])
def test_an_id_that_is_no_text_is_damage_even_in_a_row_without_a_checksum(id):
    """Found by fuzzing: a flipped bit in a row's header made NULL of the checksum and of the id."""
    assert checks_id(None, "d17")
    assert not checks_id(None, id)


@pytest.mark.parametrize("old", [b"number 17", b'"n":17', b"d17"])
def test_a_row_that_is_no_text(made, tmp_path, old):
    """Found by fuzzing: SQLite calls the file sound, and neither `check` nor `repair` got past the row."""
    path = copied(made, tmp_path)
    data = (path / "catalogue.sqlite").read_bytes()
    (path / "catalogue.sqlite").write_bytes(data.replace(old, old[:-1] + b"\xb7"))
    with Index.open(path) as index:
        with pytest.raises(CorruptIndexError):
            answers(index)
        assert any("checksum of document" in problem for problem in check(index).problems)
    assert repair(path).lost == (() if old == b"d17" else ("d17",))  # an id that is damaged cannot be named
    with Index.open(path) as index:
        assert check(index).sound
        assert len(index) == made[1]["len"] - 1


@pytest.mark.parametrize("column", ["id", "text", "metadata"])
def test_a_flipped_byte_of_a_row_is_never_returned(made, tmp_path, column):
    path = copied(made, tmp_path)
    data = (path / "catalogue.sqlite").read_bytes()
    marks = {"id": (b"d17", b"d97"), "text": (b"number 17", b"nomber 17"), "metadata": (b'"n":17', b'"n":18')}
    old, new = marks[column]
    assert old in data
    (path / "catalogue.sqlite").write_bytes(data.replace(old, new))
    with Index.open(path) as index, pytest.raises(CorruptIndexError):
        answers(index)
    with Index.open(path) as index:
        assert not check(index).sound


USES_OF_FILTERS = {
    "matching": lambda index, where: index.matching(where),
    "search": lambda index, where: index.search(QUERY, 5, filter=where, hits=False),
    "exact": lambda index, where: index.search(QUERY, 5, filter=where, exact=True),
    "words": lambda index, where: search_lexical(index, "text", 5, filter=where),
    "a part's words": lambda index, where: search_lexical_part(index, "text", 5, Words.of(index, "text"), filter=where),
    "counts": lambda index, where: index.value_counts(where),
}


@pytest.mark.parametrize("use", USES_OF_FILTERS.values(), ids=USES_OF_FILTERS)
def test_a_filter_does_not_believe_a_flipped_byte_of_metadata(made, tmp_path, use):
    path = copied(made, tmp_path)
    data = (path / "catalogue.sqlite").read_bytes()
    (path / "catalogue.sqlite").write_bytes(data.replace(b'"n":17', b'"n":77'))
    with Index.open(path) as index:
        assert use(index, "n == 16")
        with pytest.raises(CorruptIndexError, match="checksum of document 'd17'"):
            use(index, "n > 70")


@pytest.mark.parametrize(
    "old", [b"CREATE TABLE documents", b"CREATE TABLE tombstones", b"CREATE TRIGGER lexical_insert"]
)
def test_bytes_that_are_no_text_in_what_sqlite_complains_of(made, tmp_path, old):
    """Found by fuzzing: SQLite quotes them in its message, and Python raised a UnicodeDecodeError of its own."""
    path = copied(made, tmp_path)
    data = (path / "catalogue.sqlite").read_bytes()
    assert old in data
    (path / "catalogue.sqlite").write_bytes(data.replace(old, old.replace(b"CREATE T", b"CREATE \xb0")))
    assert outcome(path, made[1]) == "refused"
    with pytest.raises(CorruptIndexError):
        Index.open(path)
    done = repair(path)
    assert done.lost == ()
    assert outcome(path, made[1]) == "right"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE segments SET first = first + 1",
        "UPDATE segments SET documents = documents + 1",
        "UPDATE settings SET value = '4' WHERE key = 'bits'",
        "UPDATE settings SET value = '\"xtr\"' WHERE key = 'encoder'",
        "INSERT INTO settings VALUES ('alignment', '\"top-k:3\"')",
        "UPDATE settings SET value = '1e400' WHERE key = 'dim'",
        "DELETE FROM settings WHERE key = 'dim'",
        "DELETE FROM settings WHERE key = 'checksum'",
        "UPDATE settings SET value = 'x' WHERE key = 'generation'",
        "DROP TABLE tombstones",
        "UPDATE tombstones SET doc = 'x' WHERE seq = 1",
        "UPDATE tombstones SET doc = doc + 1 WHERE seq = 1",
        "DELETE FROM tombstones WHERE seq = 1",
        "INSERT INTO tombstones (doc) VALUES (7)",
        "UPDATE settings SET value = '7' WHERE key = 'tombstones'",
        "DELETE FROM documents",
    ],
)
def test_what_the_catalogue_says_is_summed(made, tmp_path, statement):
    path = copied(made, tmp_path)
    with sqlite3.connect(path / "catalogue.sqlite") as db:
        db.execute(statement)
    db.close()
    assert outcome(path, made[1]) == "refused"


@pytest.mark.parametrize(
    "statement",
    ["UPDATE tombstones SET doc = doc + 1 WHERE seq = 1", "DELETE FROM tombstones WHERE seq = 1"],
)
def test_a_damaged_list_of_deleted_documents_is_put_right(made, tmp_path, statement):
    """Found by fuzzing: `len` was one off, and a search returned fewer documents than there are."""
    path = copied(made, tmp_path)
    with sqlite3.connect(path / "catalogue.sqlite") as db:
        db.execute(statement)
    db.close()
    with Index.open(path) as index:
        assert any("list of deleted documents" in problem for problem in check(index).problems)
    done = repair(path)
    assert done.lost == ()
    assert any("list of deleted documents" in note for note in done.notes)
    assert outcome(path, made[1]) == "right"
    with Index.open(path) as index:
        assert check(index).sound


def test_the_sum_of_deleted_documents_follows_every_write(tmp_path):
    rng, there = random.Random(3), set()
    path = tmp_path / "i.weft"
    with Index.create(path, DIM, merge="off") as index:
        for step in range(40):
            some = rng.sample(range(COUNT), 5)
            if rng.random() < 0.4 and there:
                gone = [f"d{n}" for n in some if f"d{n}" in there]
                index.delete(gone)
                there -= set(gone)
            else:
                index.add([f"d{n}" for n in some], tokens(0, 5))
                there |= {f"d{n}" for n in some}
            if step % 15 == 14:
                index.compact()
            with Index.open(path, merge="off") as other:  # which reads all tombstones, and verifies them
                assert len(other) == len(there)
    with sqlite3.connect(path / "catalogue.sqlite") as db:
        ((value,),) = db.execute("SELECT value FROM settings WHERE key = 'tombstones'").fetchall()
        buried = [doc for (doc,) in db.execute("SELECT doc FROM tombstones")]
    db.close()
    assert json.loads(value)[1:] == [len(buried), tombstones_sum(buried)]


HANGING = """
import sys
from weft import Index, WeftError
try:
    with Index.open(sys.argv[1]) as index:
        len(index), index.get("d0"), index.check()
except WeftError as error:
    print(error)
"""
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS key, i AS value FROM n"


@pytest.mark.parametrize(
    "script",
    [
        f"ALTER TABLE settings RENAME TO old; CREATE VIEW settings AS {ENDLESS}",
        f"CREATE VIEW more AS {ENDLESS}",
        "CREATE TRIGGER more AFTER INSERT ON documents BEGIN DELETE FROM documents; END",
        "CREATE TABLE more (y, x GENERATED ALWAYS AS (zeroblob(1000000000)))",
        "CREATE INDEX more ON documents (length(text))",
    ],
)
def test_tables_views_and_triggers_of_someone_else(made, tmp_path, script):
    path = copied(made, tmp_path)
    with sqlite3.connect(path / "catalogue.sqlite") as db:
        db.executescript(script)
    db.close()
    ended = subprocess.run(
        [sys.executable, "-c", HANGING, path], capture_output=True, text=True, timeout=60, check=True
    )
    assert "that weft did not make" in ended.stdout


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("lexical_data", "id INTEGER PRIMARY KEY, block BLOB AS (zeroblob(1000000000))"),
        ("lexical_docsize", "id INTEGER PRIMARY KEY, sz BLOB AS (zeroblob(1000000000))"),
        ("lexical_config", "k PRIMARY KEY, v CHECK (length(zeroblob(1000000000)))"),
    ],
)
def test_tables_of_the_lexical_index_that_take_a_gigabyte(made, tmp_path, table, columns):
    path = copied(made, tmp_path)
    with sqlite3.connect(path / "catalogue.sqlite", isolation_level=None) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (f"CREATE TABLE '{table}'({columns})", table))
    db.close()
    with pytest.raises(CorruptIndexError, match=f"has a table '{table}' that weft did not make"):
        Index.open(path)


class TestLog:
    """Commits that stand in SQLite's log alone, as after a crash."""

    @pytest.fixture
    def crashed(self, tmp_path):
        with Index.create(tmp_path / "live.weft", DIM, merge="off") as index:
            for n in range(8):
                index.add(documents(n, n + 1), tokens(n, n + 1))
            shutil.copytree(index.folder, tmp_path / "crashed.weft")
        (tmp_path / "crashed.weft" / "catalogue.sqlite-shm").unlink()
        return tmp_path / "crashed.weft"

    def test_is_replayed(self, crashed):
        with Index.open(crashed) as index:
            assert len(index) == 8

    @pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9, 0.99])
    @pytest.mark.parametrize("cut", [False, True])
    def test_a_damaged_tail_is_noticed(self, crashed, share, cut):
        log = crashed / "catalogue.sqlite-wal"
        data = bytearray(log.read_bytes())
        if cut:
            del data[int(len(data) * share) :]
        else:
            data[min(int(len(data) * share) + 40, len(data) - 1)] ^= 1
        log.write_bytes(data)
        with pytest.raises(WeftError) as error:
            Index.open(crashed).close()
        if "commits" in str(error.value):
            assert "are missing; `weft repair` accepts what is left" in str(error.value)
            done = repair(crashed)
            assert "commits are missing" in " ".join(done.notes)
            with Index.open(crashed) as index:
                assert check(index).sound
                assert len(index) < 8
                index.add(documents(0, 1), tokens(0, 1))
            with Index.open(crashed) as index:
                assert check(index).sound

    @pytest.mark.parametrize("mark", [b"9" * 32, b"\xff" * 32, b"-5", b"\xd9\xa3", b"", b"%d" % 2**63])
    def test_a_mark_that_is_damaged_itself_says_nothing(self, crashed, mark):
        (crashed / "writer.lock").write_bytes(b"1".ljust(32) + mark)
        with Index.open(crashed) as index:
            assert len(index) == 8
            index.add(documents(8, 9), tokens(8, 9))
        with Index.open(crashed) as index:
            assert check(index).sound

    def test_a_mark_that_is_too_high_is_accepted_by_repair(self, crashed):
        (crashed / "writer.lock").write_bytes(b"1".ljust(32) + b"%d" % (2**53 - 1))
        with pytest.raises(CorruptIndexError, match="are missing"):
            Index.open(crashed)
        repair(crashed)
        for n in range(8, 11):
            with Index.open(crashed) as index:
                assert (check(index).sound, len(index)) == (True, n)
                index.add(documents(n, n + 1), tokens(n, n + 1))

    def test_a_log_that_is_gone(self, crashed):
        (crashed / "catalogue.sqlite-wal").unlink()
        with pytest.raises(WeftError):
            Index.open(crashed)


EIO = """
import sys
import numpy as np
from weft import Index, WeftError
from weft.search.lexical import search_lexical
from weft.search.parts import Words, search_lexical_part
try:
    with Index.open(sys.argv[1]) as index:
        index.get("d30"), index.search(np.ones((2, 4), np.float32), 3), search_lexical(index, "text")
    print("done")
except WeftError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("nth", [*range(1, 12), *range(14, 26, 4), "6+"])
def test_a_disk_that_fails_is_not_called_damage(made, tmp_path, nth):
    require_strace()
    path = copied(made, tmp_path)
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", path / "catalogue.sqlite", "-e", "trace=pread64"]
    command += ["-e", f"inject=pread64:error=EIO:when={nth}", sys.executable, "-c", EIO, path]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith(("done", StorageError.__name__)), ended.stdout
