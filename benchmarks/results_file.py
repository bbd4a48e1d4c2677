"""The file of all benchmark results: each benchmark owns the section between its markers."""

from __future__ import annotations

import re
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
LAST = "## Earlier runs\n"
"""The section that new ones stand before."""


def write_section(name: str, title: str, lines: list[str], path: Path = RESULTS) -> None:
    """Replace the lines between ``<!-- name:begin -->`` and ``<!-- name:end -->``, or add the section."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = path.read_text(encoding="utf-8") if path.exists() else "# Benchmark results\n"
    if begin not in text or end not in text:
        before, last, rest = text.partition(LAST)
        text = f"{before.rstrip()}\n\n## {title}\n\n{begin}\n{end}\n" + (f"\n{last}{rest}" if last else "")
    before, _, rest = text.partition(begin)
    text = before + begin + "\n" + "\n".join(lines) + "\n" + end + rest.partition(end)[2]
    path.write_text(with_contents(text), encoding="utf-8")


def with_contents(text: str) -> str:
    """Return the page with the list of its sections brought up to date, where it has one."""
    begin, end = "<!-- contents:begin -->\n", "<!-- contents:end -->"
    before, marker, rest = text.partition(begin)
    if not marker:
        return text
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    anchors = [re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles]
    listed = "".join(f"- [{title}](#{anchor})\n" for title, anchor in zip(titles, anchors, strict=True))
    return before + begin + listed + end + rest.partition(end)[2]
