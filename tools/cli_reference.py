"""The reference of the command line, written from the commands themselves when the site is built: a hook of mkdocs."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from typing import Any

PAGE = "reference/cli.md"
INTRODUCTION = """# The command line

Results go to stdout, messages to stderr. The exit code is 0 on success, 1 with a one-line message on failure, 2 for
wrong usage, and 130 after Ctrl-C, which leaves an index sound. Every verb has `--help`. `weft -v VERB …` prints more on
stderr; `weft --version` prints the version.

For completion of verbs and options with the Tab key, in bash, zsh, fish or PowerShell:

    weft --install-completion

and open a new terminal; `weft --show-completion` prints the script instead.
"""


def reference() -> str:
    """Return the page: typer's own description of all verbs, below our introduction."""
    command = [sys.executable, "-m", "typer", "weft.cli.main", "utils", "docs", "--name", "weft"]
    described = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    _, _, verbs = described.partition("\n## ")
    from weft.cli.main import app

    commands = app.registered_commands
    told = [(command.name, (inspect.getdoc(command.callback) or "").split("\n")[0]) for command in commands]
    told += [(group.typer_instance.info.name, group.typer_instance.info.help) for group in app.registered_groups]
    for group in app.registered_groups:  # whose lists typer cuts off
        before, heading, section = verbs.partition(f"## `weft {group.typer_instance.info.name}`")
        for verb in group.typer_instance.registered_commands:
            name = verb.name or verb.callback.__name__
            line = f"* `{name}`: " + (inspect.getdoc(verb.callback) or "").split("\n")[0]
            section = re.sub(rf"^\* `{name}`: .*$", line, section, count=1, flags=re.MULTILINE)
        verbs = before + heading + section
    listed = "\n".join(f"| [`weft {name}`](#weft-{name}) | {line} |" for name, line in told)
    return f"{INTRODUCTION}\n| verb | |\n| --- | --- |\n{listed}\n\n## {verbs}"


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the site's files; mkdocs calls this."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=reference()))
    return files
