"""Take promises away one at a time and see their tests fail: `python tools/run_without.py`, or some of them by name.

In a copy of the source, a function named in `PROMISES` gets a first statement that makes it do nothing, or a line is
replaced. A test that still passes does not test what it says. The table is docs/notes/promises.md.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import weft._native

ROOT = Path(__file__).parent.parent
# Only the copy is to be found, not the package that this environment was installed with.
CUSTOMIZE = "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if 'ScikitBuild' not in type(f).__name__]\n"


class Promise(NamedTuple):
    """A change that takes a promise away: `function` begins with `statement`, or `function` is a text to replace."""

    name: str
    file: str
    function: str
    statement: str
    tests: str


def _read() -> list[Promise]:
    lines = (ROOT / "tools" / "promises.tsv").read_text().splitlines()
    return [Promise(*line.split("\t")) for line in lines if line and not line.startswith("#")]


def without(source: str, function: str, statement: str) -> str:
    r"""Return a source in which a function begins with another statement.

    Examples
    --------
    >>> print(without("def f(x):\n    return x\n", "f", "return 1"))
    def f(x):
        return 1
        return x
    <BLANKLINE>
    """
    if f"def {function.rpartition('.')[2]}" not in source:
        if function not in source:
            raise ValueError(f"no {function!r}")
        return source.replace(function, statement)
    found: ast.AST = ast.parse(source)
    for name in function.split("."):
        found = next(node for node in ast.walk(found) if getattr(node, "name", None) == name)
    assert isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef)
    body = found.body[1] if len(found.body) > 1 and isinstance(found.body[0], ast.Expr) else found.body[0]
    lines = source.splitlines()
    lines.insert(body.lineno - 1, " " * body.col_offset + statement)
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    names, survived = parser.parse_args().names, 0
    with tempfile.TemporaryDirectory(prefix="weft-without-") as place:
        copy = Path(place)
        for part in ("src", "tests", "tools", "docs", "recipes", "examples"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for file in (*ROOT.glob("*.toml"), *ROOT.glob("*.md")):
            shutil.copy(file, copy)
        shutil.copy(weft._native.__file__, copy / "src" / "weft")
        (copy / "sitecustomize.py").write_text(CUSTOMIZE)
        environment = {**os.environ, "PYTHONPATH": f"{copy}:{copy / 'src'}", "PYTHONDONTWRITEBYTECODE": "1"}
        for promise in _read():
            if names and promise.name not in names:
                continue
            path = copy / "src" / "weft" / promise.file
            source = path.read_text()
            path.write_text(without(source, promise.function, promise.statement))
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", "--no-header"]
            done = subprocess.run(
                [*command, *promise.tests.split()],
                cwd=copy,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            path.write_text(source)
            failed = done.returncode == 1 and "failed" in done.stdout
            survived += not failed
            last = done.stdout.strip().splitlines()[-1:] or [done.stderr[-300:]]
            print(f"{'fails' if failed else 'STILL PASSES'}\t{promise.name}\t{last[0]}", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
