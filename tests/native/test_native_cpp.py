"""The C++ tests of the kernels, built with AddressSanitizer and UBSan.

They see what Python cannot: a read one float beyond an array, and the 16-lane shape of AVX-512 on machines
without it. The build is kept in build/native-tests, so only the first run and changes to native/ take time.
"""

import shutil
from pathlib import Path

import pytest

import weft
from native.cpp import build, leaving, run

BUILD = Path(__file__).parents[2] / "build" / "native-tests"


@pytest.fixture(scope="module")
def built():
    """The folder with the library and its tests, compiled."""
    return build(BUILD, "-DWEFT_SANITIZE=ON")


def test_kernels_in_cpp_with_sanitizers(built):
    code, output = run(str(built / "weft_check_kernels"))
    assert code == 0, output
    assert "wide: 16 lanes, tiles of 12 x 2: ok" in output


def test_byte_kernels_of_all_levels_are_the_baselines(built):
    code, output = run(str(built / "weft_check_bytes"))
    assert code == 0, output
    assert output.split("\n")[:-1] == [f"{level}: ok" for level in weft.simd_levels()]


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm")
@pytest.mark.parametrize("level", ["avx2", "avx512", "vnni"])
def test_no_instruction_leaves_its_level(built, level):
    """Of a function that several files define, the linker keeps one: it must not be one that needs a newer machine."""
    assert leaving(built, level, f"weft::{level}") == []
