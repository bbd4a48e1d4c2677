"""Each SIMD level in a process of its own: a process keeps the level that it began with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft

SWEEPS = [Path(__file__).with_name(name) for name in ("parity.py", "building.py")]
ALL_LEVELS = ("baseline", "avx2", "avx512", "avx512vnni", "neon", "neondot")


def python(*arguments, level):
    environment = {key: value for key, value in os.environ.items() if key != "WEFT_SIMD"}
    if level is not None:
        environment["WEFT_SIMD"] = level
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda path: path.stem)
@pytest.mark.parametrize("level", weft.simd_levels())
def test_level_equals_brute_force(level, sweep):
    done = python(str(sweep), level=level)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == level
    assert int(done.stdout.split()[1]) > 500


@pytest.mark.parametrize("level", [None, ""])
def test_the_best_level_without_an_override(level):
    done = python("-c", "import weft; print(weft.simd_level())", level=level)
    assert done.stdout.strip() == weft.simd_levels()[-1], done.stderr


@pytest.mark.parametrize("level", [*sorted(set(ALL_LEVELS) - set(weft.simd_levels())), "AVX2", "sse9"])
def test_an_unsupported_level_is_one_clear_line(level):
    """Importing is harmless; the first use says what was asked for and what there is."""
    program = """
import numpy as np
import weft
from weft.kernels import aligned_pairs, score_ragged
texts = weft.TokenVectors.from_list([np.ones((2, 3))])
for use in (weft.simd_level, lambda: score_ragged(texts, texts), lambda: aligned_pairs(texts, texts)):
    try:
        use()
    except weft.UnsupportedCPUError as error:
        assert isinstance(error, weft.WeftError) and isinstance(error, RuntimeError)
        print(error)
    else:
        raise SystemExit("no error")
"""
    done = python("-c", program, level=level)
    assert done.returncode == 0, done.stderr
    supported = ", ".join(weft.simd_levels())
    for line in done.stdout.splitlines():
        assert line == (
            f"WEFT_SIMD is '{level}', but this machine and build support only: {supported}. "
            "Unset WEFT_SIMD to use the best of them."
        )
    assert len(done.stdout.splitlines()) == 3


def test_levels_are_known_and_the_baseline_always_there():
    assert weft.simd_levels()[0] == "baseline"
    assert set(weft.simd_levels()) <= set(ALL_LEVELS)
