"""Explanations as one self-contained page: no script, style, font or picture from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from weft.explain.explanation import Explanation
from weft.explain.view import View, view
from weft.explain.words import Word, WordPair

PAIRS = 12
"""Pairs in the table; the rest is summed up in one row."""
COLUMNS = 24
"""Document words in the heat map: those that add the most, in the order of the text."""


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def to_html(explanations: Sequence[Explanation], title: str | None = None) -> str:
    """Return a page about one query and any number of documents."""
    query = explanations[0].query.text if explanations else ""
    heading = title if title is not None else query
    first = view(explanations[0]) if explanations else None
    body = "\n".join(_article(view(explanation, first)) for explanation in explanations)
    lead = "Which words of the query met which words of the document, and what each pair added to the score."
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{_text(heading)} – weft</title>
<style>
{_asset("page.css")}</style>
</head>
<body>
<main>
<h1>{_text(heading)}</h1>
<p class="lead">{lead}</p>
{body or "<p>No documents were found.</p>"}
<footer>Each pair adds A · S / Z: its weight times its similarity, over Z. What is shown is what the search summed.
Made with weft.</footer>
</main>
<script>
{_asset("page.js")}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return files("weft.explain").joinpath(name).read_text(encoding="utf-8")


def _text(text: str) -> str:
    # Lone surrogates cannot be written as UTF-8.
    return escape(text.encode("utf-8", "replace").decode("utf-8"), quote=True)


def _article(shown: View) -> str:
    explanation = shown.explanation
    rank = "" if explanation.rank is None else f'<span class="rank">{explanation.rank}.</span>'
    imputed = sum(pair.contribution for pair in explanation.imputed)
    how = (
        f"<code>{_text(explanation.alignment)}</code>, {len(explanation.pairs)} pairs of tokens, Z = {explanation.z:g}"
        + (f"; blended: {_text(explanation.blended)}" if explanation.blended else "")
    )
    if explanation.imputed:
        how += f"; {len(explanation.imputed)} imputed, {imputed:.4f} of the score"
    return f"""<article>
<header class="top">{rank}<h2>{_text(explanation.id)}</h2>
<span class="score" title="score">{explanation.score:.4f}</span><span class="how">{how}</span></header>
<h3>Query</h3>
<ul class="chips">{"".join(_chip(shown, number, word) for number, word in enumerate(shown.query))}</ul>
<h3>Document</h3>
<p class="text">{_document(shown)}</p>
<h3>Strongest pairs</h3>
{_pairs(shown)}
<details open><summary>Alignment: {"weight of each" if _dense(shown) else "similarity of each aligned"} pair</summary>
<div class="scroll">{_heat(shown)}</div></details>
</article>"""


def _dense(shown: View) -> bool:
    """Tell whether nearly all words are aligned with each other; then the weights are shown."""
    everything = len(shown.pairs) == len(shown.query) * len(shown.document) > 0
    return everything and len({pair.weight for pair in shown.explanation.pairs}) > 1


def _name(shown: View, number: int) -> str:
    times = shown.repeats.get(number)
    return _text(shown.query[number].text) + (f" ×{times}" if times else "")


def _chip(shown: View, number: int, word: Word) -> str:
    most = max((w.salience or 0.0 for w in shown.query), default=0.0)
    salience, said = "", ""
    if word.salience is not None:
        share = word.salience / most if most > 0 else 0.0
        salience = f'<span class="salience"><i style="width:{100 * share:.0f}%"></i></span>'
        said = f", salience {word.salience:.3f}"
    kind = f"k{shown.colour[number]}" if word.contribution > 0 else "none"
    adds = f"{word.contribution:+.4f}"
    return (
        f'<li class="chip {kind}" tabindex="0" data-query="{number}" title="adds {adds}{said}">{_name(shown, number)}'
        f'<span class="number">{adds}</span>{salience}</li>'
    )


def _document(shown: View) -> str:
    source = shown.explanation.document
    by_word: dict[int, list[WordPair]] = {}
    for pair in shown.pairs:
        if pair.document is not None:
            by_word.setdefault(pair.document, []).append(pair)
    most = max((abs(word.contribution) for word in shown.document), default=0.0)

    def marked(number: int, text: str) -> str:
        found = by_word.get(number)
        if not found:
            return _text(text)
        word = shown.document[number]
        colour = shown.colour[shown.owner[number]]
        share = abs(word.contribution) / most if most > 0 else 0.0
        data = " ".join(f"{pair.query}:{pair.similarity:.2f}" for pair in found)
        said = "\n".join(
            f"{_name(shown, p.query)}: similarity {p.similarity:.3f}, adds {p.contribution:+.4f}" for p in found
        )
        if word.salience is not None:
            said += f"\nsalience {word.salience:.3f}"
        return (
            f'<span class="word k{colour}" style="--a:{share:.2f}" data-word="{number}" data-pairs="{data}"'
            f' title="{said}">{_text(text)}</span>'
        )

    apart = [n for n, word in enumerate(shown.document) if word.span is None and n in by_word]
    if not source.placed:
        return " ".join(marked(number, word.text) for number, word in enumerate(shown.document))
    parts, at = [], 0
    placed = sorted((word.span, number) for number, word in enumerate(shown.document) if word.span is not None)
    for span, number in placed:
        if span is None or span[0] < at:
            continue
        parts += [_text(source.text[at : span[0]]), marked(number, source.text[span[0] : span[1]])]
        at = span[1]
    parts.append(_text(source.text[at:]))
    if apart:
        listed = "  ".join(marked(number, shown.document[number].text) for number in apart)
        parts.append(f'\n<span class="apart">not of the text:  {listed}</span>')
    return "".join(parts)


def _pairs(shown: View) -> str:
    most = max((abs(pair.contribution) for pair in shown.pairs), default=0.0)
    rows = []
    for pair in shown.pairs[:PAIRS]:
        colour = shown.colour[pair.query]
        width = 100 * abs(pair.contribution) / most if most > 0 else 0
        minus = " minus" if pair.contribution < 0 else ""
        if pair.document is None:
            word, other = "", '<span class="imputed">imputed: nothing retrieved</span>'
        else:
            word, other = str(pair.document), _text(shown.document[pair.document].text)
        rows.append(
            f'<tr class="pair" data-query="{pair.query}" data-word="{word}">'
            f'<td><span class="q k{colour}">{_name(shown, pair.query)}</span></td><td>{other}</td>'
            f'<td class="n">{pair.similarity:.3f}</td><td class="n">{pair.weight:.3g}</td>'
            f'<td class="n">{pair.contribution:.4f}</td>'
            f'<td class="barcell"><span class="bar{minus} k{colour}" style="width:{width:.1f}%"></span></td></tr>'
        )
    rest = shown.pairs[PAIRS:]
    if rest:
        left = sum(pair.contribution for pair in rest)
        rows.append(
            f'<tr><td colspan="4" class="imputed">{len(rest)} more pair{"s"[: len(rest) - 1]}</td>'
            f'<td class="n">{left:.4f}</td><td></td></tr>'
        )
    total = shown.explanation.total
    rows.append(f'<tr class="total"><td colspan="4">The score</td><td class="n">{total:.4f}</td><td></td></tr>')
    head = "<th>query</th><th>document</th>"
    head += "".join(f'<th class="n">{name}</th>' for name in ("similarity", "weight", "adds")) + "<th></th>"
    return f'<table class="pairs"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _heat(shown: View) -> str:
    """Return a table of query words by document words; only aligned pairs have a value, or all have their weight."""
    heaviest = max((pair.weight for pair in shown.pairs), default=0.0) if _dense(shown) else None
    cells = {(pair.query, pair.document): pair for pair in shown.pairs if pair.document is not None}
    aligned = sorted({j for _, j in cells if j is not None}, key=lambda j: -abs(shown.document[j].contribution))
    columns = sorted(aligned[:COLUMNS], key=lambda j: shown.document[j].tokens[0])
    imputed = {pair.query: pair for pair in shown.pairs if pair.document is None}
    head = "".join(f"<th>{_text(shown.document[j].text[:24])}</th>" for j in columns)
    head += "<th>imputed</th>" if imputed else ""
    rows = []
    for i in range(len(shown.query)):
        row = [_cell(shown, i, cells.get((i, j)), heaviest) for j in columns]
        row += [_cell(shown, i, imputed.get(i))] if imputed else []
        rows.append(f"<tr><th>{_name(shown, i)}</th>{''.join(row)}</tr>")
    left = len(aligned) - len(columns)
    note = f'<p class="imputed">{left} more document words with smaller contributions are left out.</p>' if left else ""
    return f'<table class="heat"><thead><tr><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>{note}'


def _cell(shown: View, number: int, pair: WordPair | None, heaviest: float | None = None) -> str:
    if pair is None:
        return "<td></td>"
    value, most = (pair.similarity, 1.0) if heaviest is None else (pair.weight, heaviest)
    strength = min(max(value / most, 0.0), 1.0) if most > 0 else 0.0
    title = f"adds {pair.contribution:+.4f}"
    return f'<td class="k{shown.colour[number]}" style="--a:{strength:.2f}" title="{title}">{value:.2f}</td>'
