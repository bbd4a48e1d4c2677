"""An experiment on disk: tables, plots, settings, and a self-contained page that shows all of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from weft.analysis.base import Experiment, Outcome
from weft.analysis.plots import Plot
from weft.evaluation.tables import Table

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
QUICK = (
    "The quick form: small settings on the demo collection, to show that all of it runs. Its numbers say little: "
    "do not quote them."
)


def write(folder: Path, experiment: Experiment, outcome: Outcome, config: Mapping[str, Any]) -> Path:
    """Write an experiment's folder and return its ``report.html``."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in outcome.tables:
        (folder / f"{table.name}.md").write_text(_markdown(table), encoding="utf-8")
        (folder / f"{table.name}.csv").write_text(table.csv(), encoding="utf-8")
    for plot in outcome.plots:
        (folder / f"{plot.name}.png").write_bytes(plot.png)
        (folder / f"{plot.name}.svg").write_bytes(plot.svg)
    text = json.dumps(config, indent=1, ensure_ascii=False) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    text = json.dumps(_data(experiment, outcome, config), indent=1, ensure_ascii=False) + "\n"
    (folder / "results.json").write_text(text, encoding="utf-8")
    (folder / "results.md").write_text(_summary(experiment, outcome, config), encoding="utf-8")
    page = folder / "report.html"
    page.write_text(to_html(experiment, outcome, config), encoding="utf-8")
    return page


def _data(experiment: Experiment, outcome: Outcome, config: Mapping[str, Any]) -> dict[str, Any]:
    """Everything but the plots, for programs."""
    return {
        "schema": "weft.experiment/1",
        "experiment": experiment.name,
        "config": dict(config),
        "findings": outcome.findings,
        "notes": outcome.notes,
        "tables": [table.data() for table in outcome.tables],
        "plots": [{"name": plot.name, "caption": plot.caption} for plot in outcome.plots],
    }


def _markdown(table: Table) -> str:
    parts = [f"**{table.title}**", table.markdown(), table.note]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(experiment: Experiment, outcome: Outcome, config: Mapping[str, Any]) -> str:
    """Everything but the plots, as Markdown to quote from."""
    parts = [f"# {experiment.title}", f"{experiment.reproduces}. `{config.get('command', '')}`"]
    if config.get("quick"):
        parts.append(QUICK)
    parts += ["\n".join(f"- {line}" for line in outcome.findings)]
    parts += [_markdown(table).strip() for table in outcome.tables]
    parts += ["\n".join(f"- {line}" for line in outcome.notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def to_html(experiment: Experiment, outcome: Outcome, config: Mapping[str, Any]) -> str:
    """Return the report as a page without anything from elsewhere."""
    body = [
        f'<p class="lead">{escape(experiment.reproduces)}</p>',
        f'<p class="quick">{escape(QUICK)}</p>' if config.get("quick") else "",
        f'<div class="paper"><b>The paper.</b> {escape(experiment.paper)}</div>',
        _section("What was found", _list(outcome.findings)),
        _section("Plots", "".join(_figure(plot) for plot in outcome.plots)),
        _section("Tables", "".join(_table(table) for table in outcome.tables)),
        _section("What limits it", _list(outcome.notes)),
        f"<details><summary>Settings</summary><pre>{escape(json.dumps(config, indent=1, ensure_ascii=False))}</pre>"
        "</details>",
    ]
    command = f"<pre>{escape(str(config['command']))}</pre>" if config.get("command") else ""
    return _page(experiment.title, "\n".join(part for part in (*body, command) if part))


def contents(entries: Sequence[tuple[type[Experiment], Path | None, str]], quick: bool) -> str:
    """Return a page that links to reports: (experiment, its report or None, why there is none)."""
    rows = []
    for experiment, page, why in entries:
        title = escape(experiment.title)
        name = title if page is None else f'<a href="{escape(page.as_posix())}">{title}</a>'
        said = f'<br><span class="note">Left out: {escape(why)}</span>' if page is None else ""
        rows.append(f'<tr><td>{escape(experiment.name)}</td><td class="t">{name}{said}</td>')
        rows.append(f"<td>{escape(experiment.reproduces)}</td></tr>")
    table = f"<table><thead><tr><th>name</th><th>experiment</th><th>after</th></tr></thead><tbody>{''.join(rows)}"
    note = f'<p class="quick">{escape(QUICK)}</p>' if quick else ""
    return _page("Experiments", f'{note}<div class="scroll">{table}</tbody></table></div>')


def _page(title: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)} – weft</title>
<style>
{files("weft.analysis").joinpath("report.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{body}
<footer>± and bands are 95 % percentile bootstrap intervals over queries, unless a table says otherwise. Made with
weft.</footer>
</main>
</body>
</html>
"""


def _section(title: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{body}" if body else ""


def _list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _figure(plot: Plot) -> str:
    data = base64.b64encode(plot.svg).decode("ascii")
    caption = escape(plot.caption)
    image = f'<img src="data:image/svg+xml;base64,{data}" alt="{caption}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"


def _table(table: Table) -> str:
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f'<h3>{escape(table.title)}</h3><div class="scroll">{table.html()}</div>{note}'
