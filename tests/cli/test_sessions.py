"""``weft index`` in a real terminal: the bar, the summary, and Ctrl-C."""

import pytest

pexpect = pytest.importorskip("pexpect")


@pytest.fixture
def terminal(session):
    return session


def finish(child):
    child.expect(pexpect.EOF)
    said = child.before
    child.close()
    return said


def test_index_shows_a_bar_and_a_summary(notes, model, terminal):
    child = terminal("index", "notes", "-o", "n.weft", "--model", model)
    child.expect("indexing: ")
    child.expect("5 passages")
    child.expect(r"n\.weft: 3 added, 0 updated, 0 unchanged, 0 removed, 0 skipped \(5 passages written\)\r\n")
    assert finish(child) == ""
    assert child.exitstatus == 0


def test_ctrl_c_and_again(model, terminal, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    child = terminal("index", "-", "-o", "n.weft", "--model", model)
    child.expect("weft: reading texts from the terminal, one a line; Ctrl-D ends")
    for n in range(40):
        child.sendline(f"fox {n}")
    child.expect("32 passages")  # the first batch is committed, and the next waits for more lines
    child.sendintr()
    child.expect(r"weft: interrupted: n\.weft is sound and holds 32 passages; the same command goes on from there\r\n")
    finish(child)
    assert child.exitstatus == 130
    assert run("check", "n.weft") == (0, "n.weft: sound, 32 passages\n", "")

    child = terminal("index", "-", "-o", "n.weft")
    for n in range(40):
        child.sendline(f"fox {n}")
    child.sendeof()
    child.expect("8 added, 0 updated, 32 unchanged")
    finish(child)
    assert child.exitstatus == 0
    assert run("check", "n.weft") == (0, "n.weft: sound, 40 passages\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "n.weft", "the red fox", "--id", "fox"], "fox\r\nn.weft: 1 added"),
        (["delete", "n.weft", "notes/mars.txt"], "n.weft: 3 deleted\r\n"),
        (["info", "n.weft"], "\x1b[2m passages\x1b[0m  5\r\n"),
        (["check", "n.weft"], "n.weft: sound, 5 passages\r\n"),
        (["compact", "n.weft"], "n.weft: 1 → 1 segments, "),
    ],
)
def test_the_other_verbs(indexed, terminal, arguments, said):
    child = terminal(*arguments)
    child.expect_exact(said)
    finish(child)
    assert child.exitstatus == 0


def test_get_is_coloured_for_people(notes, model, terminal, run):
    run("index", "notes", "-o", "n.weft", "--model", model)
    child = terminal("get", "n.weft", "notes/dog.txt")
    child.expect_exact("\x1b[1mnotes/dog.txt\x1b[0m")
    child.expect_exact("the lazy dog")
    finish(child)
    assert child.exitstatus == 0
