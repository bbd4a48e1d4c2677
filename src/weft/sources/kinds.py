"""What a file is, by its name."""

from __future__ import annotations

ROWS = ("jsonl", "csv", "tsv", "parquet")
"""Kinds with a document in each row."""
CODE = "code:"
"""What kinds of source files begin with; the language follows."""

_DOCUMENTS = {
    "text": "txt text rst org adoc tex srt vtt yaml yml",
    "markdown": "md markdown",
    "html": "html htm xhtml",
    "pdf": "pdf",
    "docx": "docx",
    "xlsx": "xlsx xlsm",
    "epub": "epub",
    "mail": "eml",
    "mbox": "mbox",
    "notebook": "ipynb",
    "json": "json",
    "jsonl": "jsonl ndjson jsonl.gz ndjson.gz",
    "csv": "csv",
    "tsv": "tsv",
    "parquet": "parquet",
}
_LANGUAGES = {
    "bash": "sh bash zsh",
    "c": "c h",
    "c_sharp": "cs",
    "cpp": "cc cpp cxx c++ hh hpp hxx cu cuh",
    "go": "go",
    "java": "java",
    "javascript": "js mjs cjs jsx",
    "php": "php",
    "python": "py pyi pyw",
    "ruby": "rb rake gemspec",
    "rust": "rs",
    "typescript": "ts mts cts",
    "tsx": "tsx",
    # Read as lines: there is no grammar for these among our dependencies.
    "other": "bat clj cljs cmake css dart el elm erl ex exs f90 fs gradle graphql groovy hcl hs jl kt kts less lisp "
    "lua m ml mli mm nim nix pas pl pm proto ps1 r scala scm scss sql svelte swift tcl tf v vb "
    "vim vue zig toml ini cfg conf",
}
_NAMES = {"makefile": "other", "dockerfile": "other", "rakefile": "ruby", "gemfile": "ruby", "cmakelists.txt": "other"}

KINDS = {
    **{f".{suffix}": kind for kind, suffixes in _DOCUMENTS.items() for suffix in suffixes.split()},
    **{f".{suffix}": CODE + name for name, suffixes in _LANGUAGES.items() for suffix in suffixes.split()},
}
"""What a file is, by how its name ends."""


def kind_of(name: str) -> str | None:
    """Tell what a file is by its name, or None if it is of no known kind.

    Examples
    --------
    >>> kind_of("notes/Mars.MD"), kind_of("src/main.rs"), kind_of("rows.jsonl.gz"), kind_of("photo.jpg")
    ('markdown', 'code:rust', 'jsonl', None)
    """
    lower = name.lower().rpartition("/")[2]
    if lower in _NAMES:
        return CODE + _NAMES[lower]
    first = lower.find(".", 1)
    while first >= 0:  # the longest suffix that is known
        if lower[first:] in KINDS:
            return KINDS[lower[first:]]
        first = lower.find(".", first + 1)
    return None
