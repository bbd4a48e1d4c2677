"""The file of all benchmark results: each benchmark owns the section between its markers."""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")


def write_section(name: str, title: str, lines: list[str], path: Path = RESULTS) -> None:
    """Replace the lines between ``<!-- name:begin -->`` and ``<!-- name:end -->``, or add the section."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = path.read_text(encoding="utf-8") if path.exists() else "# Benchmark results\n"
    if begin not in text or end not in text:
        text += f"\n## {title}\n\n{begin}\n{end}\n"
    before, _, rest = text.partition(begin)
    path.write_text(before + begin + "\n" + "\n".join(lines) + "\n" + end + rest.partition(end)[2], encoding="utf-8")
