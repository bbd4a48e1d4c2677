"""Every fuzz target for a moment; `make test-fuzz` runs each for a minute."""

import importlib.util
import random

import pytest

from fuzz.targets import TARGETS

NEEDED = {
    "corpus-indexes": "pydivsufsort",
    "readers": "lxml",
    "bodies": "starlette",
}


@pytest.mark.parametrize("name", TARGETS)
def test_random_inputs(tmp_path, monkeypatch, name):
    if name in NEEDED and importlib.util.find_spec(NEEDED[name]) is None:
        pytest.skip(f"needs {NEEDED[name]}")
    monkeypatch.setattr("os.fsync", lambda handle: None)
    target = TARGETS[name](tmp_path)
    try:
        outcomes = {target.attempt(random.Random(f"here {i}")) for i in range(200)}
    finally:
        target.close()
    assert "refused" in outcomes
    assert len(outcomes) > 1
