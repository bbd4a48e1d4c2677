"""What a wheel and an sdist hold: all that the package reads, and nothing else.

The wheel here is built without its native module, which takes no compiler; `make test-wheel` builds a whole one.
"""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("scikit_build_core", reason="needs scikit-build-core: pip install 'scikit-build-core>=0.11'")

ROOT = Path(__file__).parent.parent
BUILD = "import sys; from scikit_build_core import build; print(getattr(build, sys.argv[1])(sys.argv[2], {}))"
SIZE = 45_000_000  # PyPI takes no file above 100 MB, and users do not like to wait


def tracked(*folders):
    """The files of the repository under some folders."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode != 0:
        pytest.skip("needs a git checkout, whose files are compared")
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


def built(kind, folder):
    script = BUILD.replace("{}", '{"wheel.cmake": "false", "wheel.py-api": "py3"}') if kind == "build_wheel" else BUILD
    done = subprocess.run([sys.executable, "-c", script, kind, folder], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = Path(folder).iterdir()
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built("build_wheel", tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    package = {f"weft/{Path(name).relative_to('src/weft').as_posix()}" for name in tracked("src/weft")}
    recipes = {f"weft/{name}" for name in tracked("recipes")}
    inside = {name for name in names if name.startswith("weft/")}
    assert sorted((package | recipes) - inside) == []
    assert sorted(inside - package - recipes) == []
    assert {name.partition("/")[2] for name in names - inside} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
    }


@pytest.mark.parametrize(
    "needed",
    [
        "weft/py.typed",
        "weft/models/weft-small/model.onnx",
        "weft/models/weft-small/query-fast.json",
        "weft/models/weft-small/query-fast.onnx",
        "weft/models/weft-small/LICENSE-gte-small.txt",
        "weft/recipes/weft-small.toml",
        "weft/recipes/generative/seal-small.toml",
        "weft/serving/page_files/index.html",
        "weft/serving/page_files/app.js",
        "weft/sources/demo/corpus.jsonl",
    ],
)
def test_what_users_would_miss_is_inside(wheel, needed):
    with zipfile.ZipFile(wheel) as archive:
        assert needed in archive.namelist()


def test_the_wheel_is_small_enough(wheel):
    assert wheel.stat().st_size < SIZE


def test_the_note_on_packaging_has_the_wheels_size(wheel):
    note = (ROOT / "docs" / "notes" / "packaging.md").read_text(encoding="utf-8")
    models, whole = map(int, re.search(r"in the wheel \((\d+) of (\d+) MB\)", note).groups())
    with zipfile.ZipFile(wheel) as archive:
        inside = sum(file.compress_size for file in archive.infolist() if file.filename.startswith("weft/models/"))
    assert abs(inside / 1e6 - models) < 1
    assert abs(wheel.stat().st_size / 1e6 - whole) < 1
    assert f"{whole} MB a wheel" in note


def test_the_sdist_holds_what_a_build_needs(tmp_path):
    path = built("build_sdist", tmp_path)
    assert path.stat().st_size < SIZE
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = tracked(
        "src", "native", "recipes", "tests", "examples", "CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE"
    )
    assert sorted(wanted - names) == []
    assert not [name for name in names if name.startswith((".venv", "build/", "dist/", "site/"))]
