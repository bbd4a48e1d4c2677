"""Write why documents were found as a page for the browser: ``python examples/explanation_page.py``."""

from pathlib import Path

import weft
from weft.explain import to_html

NOTES = {
    "tides": "The pull of the Moon makes the tide rise twice a day.",
    "phases": "The Moon shows us the part of it that the Sun is shining on.",
    "mill": "Mills on the coast let the flood in and ground corn while the water ran out.",
}

with weft.TextIndex.open("moon.weft", create=True) as notes:
    notes.add(NOTES)
    explained = notes.explain("what makes the tide come in", k=3)  # alignment="top-k:2" would explain that one

Path("why.html").write_text(to_html(explained), encoding="utf-8")
for why in explained:
    pairs = [(why.query.tokens[p.query], why.document.tokens[p.document], p) for p in why.strongest()]
    asked, found, pair = next((q, d, p) for q, d, p in pairs if q.span and d.span)  # of the texts: not [CLS], [SEP]
    print(f"{why.rank}. {why.id}  {why.score:.3f}  {asked.text} – {found.text} adds {pair.contribution:.3f}")
print("open why.html in a browser")
