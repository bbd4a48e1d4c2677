"""Write why documents were found as a page for the browser: ``python examples/explanation_page.py``."""

from pathlib import Path

import weft
from weft.explain import to_html

NOTES = {
    "tides": "Twice a day the pull of the Moon raises the sea.",
    "phases": "The Moon shows us the part of it that the Sun is shining on.",
    "mill": "Mills on the coast let the flood in and ground corn while the water ran out.",
}

with weft.TextIndex.open("moon.weft", create=True) as notes:
    notes.add(NOTES)
    # Each alignment is another answer to what relevance is; the explanation shows the one that was used.
    explained = notes.explain("what makes the tide come in", k=3, alignment="top-k:2")

Path("why.html").write_text(to_html(explained), encoding="utf-8")
for why in explained:
    (pair, *_) = why.strongest(1)
    words = why.query.tokens[pair.query].text, why.document.tokens[pair.document].text
    print(f"{why.rank}. {why.id}  {why.score:.3f}  strongest pair: {words[0]} – {words[1]}")
print("open why.html in a browser")
