"""The command line: exit codes, one line on stderr, nothing heavy before a verb runs."""

import subprocess
import sys

import pytest

from weft.cli import main as cli
from weft.errors import CheckpointError


def run(capsys, *arguments):
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_version_and_help(capsys):
    code, out, _ = run(capsys, "--version")
    assert (code, out.split()[0]) == (0, "weft")
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "export" in out


@pytest.mark.parametrize("arguments", [["no-such-verb"], ["export"], ["export", "a", "b", "--precision", "int3"]])
def test_wrong_usage_is_2(capsys, arguments):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert "Error" in err


def test_an_error_is_one_line_and_1(capsys, tmp_path):
    code, out, err = run(capsys, "export", str(tmp_path / "none"), str(tmp_path / "out"))
    assert (code, out) == (1, "")
    assert err.startswith("weft: there is no folder")
    assert err.count("\n") == 1
    code, _, err = run(capsys, "export", "x", str(tmp_path / "out"), "--data", str(tmp_path / "nothing"))
    assert code == 1
    assert err.startswith("weft: no such folder")


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "weft: interrupted\n"),
        (CheckpointError("two\n  lines"), 1, "weft: two lines\n"),
        (PermissionError(13, "Permission denied", "there"), 1, "weft: [Errno 13] Permission denied: 'there'\n"),
    ],
)
def test_what_a_verb_raises(capsys, monkeypatch, raised, code, line):
    def verb(*_, **__):
        raise raised

    monkeypatch.setattr("weft.encoders.export.as_torch_encoder", verb)
    assert run(capsys, "export", "model", "folder") == (code, "", line)


def test_a_bug_is_not_hidden(monkeypatch):
    monkeypatch.setattr("weft.encoders.export.as_torch_encoder", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["export", "model", "folder"])


def test_the_command_starts_light():
    code = "import sys, weft.cli.main; print([m for m in ('torch', 'onnxruntime', 'transformers') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    done = subprocess.run([sys.executable, "-m", "weft", "export"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
