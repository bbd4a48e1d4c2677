"""A tiny light model and a folder of notes, for every verb."""

import os
import signal
import sys

import pytest

NOTES = {
    "mars.txt": "the red planet mars is known as the red planet. why does rain fall? the quick fox jumps over it.",
    "sub/sky.md": "# Sky\n\nthe sky is blue.",
    "dog.txt": "the lazy dog",
}


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    from encoders import light_models

    return str(light_models.write(tmp_path_factory.mktemp("light") / "tiny"))


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """The folder ``notes`` of the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, text in NOTES.items():
        path = tmp_path / "notes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "notes"


@pytest.fixture
def run(capsys):
    """A command's exit code, stdout and stderr."""
    from weft.cli.main import main

    def run(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def indexed(notes, model, run):
    """The index ``n.weft`` of the notes, next to them."""
    code, _, _ = run("index", "notes", "-o", "n.weft", "--model", model)
    assert code == 0
    return notes.parent / "n.weft"


def _hear_interrupts():
    # Tests that a shell started in the background ignore Ctrl-C, and so would their children.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def session(tmp_path):
    """A function that starts weft in a terminal of its own; keywords are environment variables."""
    pexpect = pytest.importorskip("pexpect")
    opened = []
    outside = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}  # xdist sets them

    def spawn(*arguments, dimensions=(24, 150), **environment):
        child = pexpect.spawn(
            sys.executable,
            ["-m", "weft", *map(str, arguments)],
            cwd=str(tmp_path),
            env={**outside, "TERM": "xterm", "OMP_NUM_THREADS": "1", **environment},
            dimensions=dimensions,
            echo=False,
            encoding="utf-8",
            timeout=300,  # of a machine that others use too
            preexec_fn=_hear_interrupts,
        )
        child.delaybeforesend = None  # pexpect would sleep before each line
        child.ptyproc.delayafterterminate = 1.0  # only where a test failed and the child lives on
        opened.append(child)
        return child

    yield spawn
    for child in opened:
        child.close(force=True)
