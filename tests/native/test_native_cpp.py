"""The C++ tests of the kernels, built with AddressSanitizer and UBSan.

They see what Python cannot: a read one float beyond an array, and the 16-lane shape of AVX-512 on machines
without it. The build is kept in build/native-tests, so only the first run and changes to native/ take time.
"""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "native-tests"
SCRIPTS = sysconfig.get_path("scripts")  # where PyPI's cmake and ninja live


def run(*command):
    environment = {**os.environ, "PATH": os.pathsep.join([SCRIPTS, os.environ.get("PATH", "")])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def built():
    """The folder with the library and its tests, compiled."""
    cmake = shutil.which("cmake", path=SCRIPTS) or shutil.which("cmake")
    if cmake is None:
        pytest.skip("needs cmake: pip install cmake ninja")
    ninja = shutil.which("ninja", path=SCRIPTS) or shutil.which("ninja")
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
    options = ["-DWEFT_NATIVE_TESTS=ON", "-DWEFT_SANITIZE=ON", "-DCMAKE_BUILD_TYPE=Release"]
    configure = [cmake, "-S", str(ROOT / "native"), "-B", str(BUILD), *generator, *options]
    code, output = run(*configure)
    if code != 0:  # perhaps a build folder of another environment's cmake: begin anew, once
        shutil.rmtree(BUILD, ignore_errors=True)
        code, output = run(*configure)
    if code != 0 and "CMAKE_CXX_COMPILER" in output:
        pytest.skip("needs a C++ compiler")
    assert code == 0, output
    code, output = run(cmake, "--build", str(BUILD))
    assert code == 0, output
    return BUILD


def test_kernels_in_cpp_with_sanitizers(built):
    code, output = run(str(built / "weft_check_kernels"))
    assert code == 0, output
    assert "wide: 16 lanes, tiles of 12 x 2: ok" in output


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm")
@pytest.mark.parametrize("level", ["avx2", "avx512"])
def test_no_instruction_leaves_its_level(built, level):
    """Of a function that several files define, the linker keeps one: it must not be one that needs a newer machine."""
    objects = sorted(built.glob(f"**/weft_kernels.dir/*_{level}.cpp.o"))
    if not objects:
        pytest.skip("this machine's kind has no such level")
    for path in objects:
        code, output = run("nm", "-C", "--defined-only", str(path))
        assert code == 0, output
        shared = re.findall(r"^\S* W (.*)$", output, flags=re.MULTILINE)
        assert [name for name in shared if f"weft::{level}" not in name] == []
