"""Write training pairs of code: the first paragraph of a docstring, and the function without it.

    python recipes/python_functions.py FOLDER/python-functions.jsonl

The functions are those of the standard library of the Python that runs this (PSF licence). They keep a model that is
trained on prose able to read code.
"""

from __future__ import annotations

import ast
import json
import random
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

LEFT_OUT = {"test", "tests", "site-packages", "dist-packages", "idlelib", "lib2to3", "turtledemo", "ensurepip"}


def functions(source: str) -> Iterator[tuple[str, str]]:
    r"""Yield (what it does, code) for each documented function of a file.

    >>> list(functions('def f(x):\n    "Return the next whole number."\n    return x + 1'))
    [('Return the next whole number.', 'def f(x):\n    return x + 1')]
    """
    for node in ast.walk(ast.parse(source)):
        text = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
        if text is None or len(text.split()) < 5 or len(node.body) < 2:
            continue
        node.body = node.body[1:]
        yield " ".join(text.split("\n\n")[0].split())[:200], ast.unparse(node)


def main() -> None:
    """Write the pairs."""
    pairs: dict[str, str] = {}
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if LEFT_OUT.isdisjoint(path.parts):
            try:
                found = list(functions(path.read_text(encoding="utf-8")))
            except (SyntaxError, ValueError):
                continue
            pairs |= {text: code for text, code in found if 80 < len(code) < 3000}
    rows = sorted(pairs.items())
    random.Random(1).shuffle(rows)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"query": query, "positive": code}) + "\n" for query, code in rows)
    print(f"{len(rows):,} functions in {sys.argv[1]}")


if __name__ == "__main__":
    main()
