"""Build native/ alone, with its C++ tests, and run what came out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
SCRIPTS = sysconfig.get_path("scripts")  # where PyPI's cmake and ninja live


def run(*command):
    environment = {**os.environ, "PATH": os.pathsep.join([SCRIPTS, os.environ.get("PATH", "")])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    return done.returncode, done.stdout + done.stderr


def build(folder: Path, *options: str) -> Path:
    """Compile the library and its tests into a folder, which is kept: only changes to native/ take time."""
    cmake = shutil.which("cmake", path=SCRIPTS) or shutil.which("cmake")
    if cmake is None:
        pytest.skip("needs cmake: pip install cmake ninja")
    ninja = shutil.which("ninja", path=SCRIPTS) or shutil.which("ninja")
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
    always = ["-DWEFT_NATIVE_TESTS=ON", "-DCMAKE_BUILD_TYPE=Release"]
    configure = [cmake, "-S", str(NATIVE), "-B", str(folder), *generator, *always, *options]
    code, output = run(*configure)
    if code != 0:  # perhaps a build folder of another environment's cmake: begin anew, once
        shutil.rmtree(folder, ignore_errors=True)
        code, output = run(*configure)
    if code != 0 and "CMAKE_CXX_COMPILER" in output:
        pytest.skip("needs a C++ compiler")
    assert code == 0, output
    code, output = run(cmake, "--build", str(folder))
    assert code == 0, output
    return folder


def leaving(folder: Path, level: str, namespace: str, nm: str = "nm") -> list[str]:
    """Functions of a level's files that the linker may take in place of another file's: a machine may not run them."""
    objects = sorted(folder.glob(f"**/weft_kernels.dir/*_{level}.cpp.o"))
    if not objects:
        pytest.skip("this machine's kind has no such level")
    found = []
    for path in objects:
        code, output = run(nm, "-C", "--defined-only", str(path))
        assert code == 0, output
        shared = re.findall(r"^\S* W (.*)$", output, flags=re.MULTILINE)
        found += [name for name in shared if namespace not in name]
    return found
