"""The kernels for AArch64, cross-compiled and run under qemu: ``make test-neon``.

    apt-get install -y g++-aarch64-linux-gnu qemu-user

Skipped where these are not installed.
"""

import shutil
from pathlib import Path

import pytest

from native.cpp import build, leaving, run

BUILD = Path(__file__).parents[2] / "build" / "native-tests-neon"
NEEDED = ("aarch64-linux-gnu-g++", "aarch64-linux-gnu-nm", "qemu-aarch64")
MISSING = [name for name in NEEDED if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"no {', '.join(MISSING)}: apt-get install -y g++-aarch64-linux-gnu qemu-user"
)


@pytest.fixture(scope="module")
def built():
    """The folder with the library and its tests for AArch64; static, so that no library of that machine is needed."""
    return build(
        BUILD,
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++",
        "-DCMAKE_EXE_LINKER_FLAGS=-static",
    )


@pytest.mark.parametrize(
    ("cpu", "levels"),
    [
        ("max", ["baseline", "neon", "neondot"]),
        ("cortex-a76", ["baseline", "neon", "neondot"]),
        ("cortex-a72", ["baseline", "neon"]),  # ARMv8.0: no dot product
    ],
)
def test_byte_kernels_are_the_baselines(built, cpu, levels):
    """To the last bit; and a processor is asked what it has."""
    code, output = run("qemu-aarch64", "-cpu", cpu, str(built / "weft_check_bytes"))
    assert code == 0, output
    assert output.split("\n")[:-1] == [f"{level}: ok" for level in levels]


def test_scores_equal_brute_force(built):
    code, output = run("qemu-aarch64", "-cpu", "cortex-a72", str(built / "weft_check_kernels"))
    assert code == 0, output
    assert "neon: 4 lanes, tiles of 6 x 4: ok" in output


def test_no_instruction_leaves_its_level(built):
    assert leaving(built, "dot", "weft::neon_dot_level", "aarch64-linux-gnu-nm") == []
