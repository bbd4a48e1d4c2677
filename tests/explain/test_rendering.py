"""What people see: the terminal and the page, hostile text included."""

import io
import json
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from weft.explain import Explanation, Pair, Side, Token, to_html
from weft.explain.snippet import Fragment
from weft.explain.terminal import highlighted, printable, render

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp;<!-- \x1b[31m\u202e]]> javascript:alert(1)"
)


def explanation(query="red planet", document="Mars is red", id="mars", salience=None):
    words = [(w, document.index(w)) for w in document.split()]
    tokens = tuple(Token(w, (a, a + len(w)), salience, c) for (w, a), c in zip(words, [0.6, 0.0, 0.9], strict=False))
    sides = Side(query, (Token(query, (0, len(query)), salience, 1.5), Token("[MASK]", None, salience, 0.25)))
    pairs = [Pair(0, 0, 0.6, 1.0, 0.6), Pair(0, 2, 0.9, 1.0, 0.9), Pair(1, None, 0.25, 1.0, 0.25)]
    kept = tuple(pair for pair in pairs if pair.document is None or pair.document < len(tokens))
    return Explanation(id, 1, 1.75, 1.0, "xtr:100", sides, Side(document, tokens), kept)


class Page(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.open, self.said = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        if tag not in ("meta", "br", "img", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"unbalanced: </{tag}>"

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.said += data


def safe(page):
    assert page.open == []
    assert page.tags.count("script") == 1
    assert not set(page.tags) & {"img", "link", "iframe", "object", "embed", "base", "form"}
    for _, name, value in page.attributes:
        assert not name.startswith("on"), name
        assert name not in ("src", "href", "srcdoc", "action"), name
        assert name != "style" or "url" not in value


def test_the_page_says_it_all():
    page = Page(to_html([explanation(salience=0.5)]))
    safe(page)
    for words in ("red planet", "mars", "1.7500", "Mars is red", "0.9000", "[MASK]", "imputed", "xtr:100"):
        assert words in page.said
    chips = [value for tag, name, value in page.attributes if (tag, name) == ("li", "data-query")]
    assert chips == ["0", "1"]
    pairs = [value for _, name, value in page.attributes if name == "data-pairs"]
    assert pairs == ["0:0.60", "0:0.90"]
    assert any(name == "title" and "salience 0.500" in value for _, name, value in page.attributes)


def test_nothing_comes_from_elsewhere():
    text = to_html([explanation()])
    assert "default-src 'none'" in text
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text
    assert "url(" not in text


@pytest.mark.parametrize("where", ["query", "document", "id"])
def test_hostile_text_stays_text(where):
    page = Page(to_html([explanation(**{where: HOSTILE})]))
    safe(page)
    assert HOSTILE in page.said


@given(st.text(st.characters(codec=None), min_size=1), st.text(st.characters(codec=None)), st.text(min_size=1))
def test_any_text_gives_a_sound_page(query, document, name):
    text = to_html([explanation(query, document, name)])
    text.encode("utf-8")
    safe(Page(text))


def test_several_documents_and_none():
    page = Page(to_html([explanation(), explanation(id="other")]))
    assert page.tags.count("article") == 2
    assert "No documents" in Page(to_html([], title="x")).said


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium: apt-get install chromium")
def test_pointing_at_a_word_in_a_browser(tmp_path):
    point = """<script>
      document.querySelector(".chip").dispatchEvent(new PointerEvent("pointerenter"));
      const lit = [...document.querySelectorAll(".word.on")];
      document.body.dataset.on = lit.map((word) => word.textContent + word.dataset.similarity);
      document.querySelector(".chip").dispatchEvent(new PointerEvent("pointerleave"));
      document.querySelectorAll(".word")[1].dispatchEvent(new Event("focus"));
      document.body.dataset.back = [...document.querySelectorAll(".chip.on")].map((c) => c.dataset.query);
      document.body.dataset.rows = document.querySelectorAll("tr.pair.on").length;
    </script></body>"""
    (tmp_path / "page.html").write_text(to_html([explanation()]).replace("</body>", point))
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --dump-dom"
    command = ["chromium", *flags.split(), f"--user-data-dir={tmp_path}/profile", (tmp_path / "page.html").as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    (body,) = [dict(a[1:] for a in Page(dom).attributes if a[0] == "body")]
    assert body == {"data-on": "Mars0.60,red0.90", "data-back": "0", "data-rows": "1"}


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium: apt-get install chromium")
@pytest.mark.parametrize("width", [320, 390])
def test_the_page_fits_a_phone(tmp_path, width):
    inner = to_html([explanation(id="a-file-with-a-very-long-name-that-cannot-be-broken/" * 3)])
    source = json.dumps(inner).replace("</", "<\\/")  # which would end the script
    outer = f"""<!doctype html><body><script>
      const frame = document.createElement("iframe");
      frame.width = {width}; frame.height = 800; frame.srcdoc = {source};
      frame.onload = () => {{
        const page = frame.contentDocument.documentElement;
        document.body.dataset.fits = page.scrollWidth <= page.clientWidth;
        document.body.dataset.widths = [page.scrollWidth, page.clientWidth].join(" ");
      }};
      document.body.append(frame);
    </script></body>"""
    (tmp_path / "page.html").write_text(outer)
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --dump-dom"
    command = ["chromium", *flags.split(), f"--user-data-dir={tmp_path}/profile", (tmp_path / "page.html").as_uri()]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert 'data-fits="true"' in dom, dom[:300]


def shown(what, **options):
    out = io.StringIO()
    Console(file=out, width=100, **options).print(what)
    return out.getvalue()


def test_the_terminal_says_it_all():
    plain = shown(render(explanation(salience=0.5)))
    assert "\x1b" not in plain
    for words in ("1. mars  1.7500  xtr:100, Z = 1", "Mars is red", "imputed: not retrieved", "u=0.50", "the score"):
        assert words in plain
    coloured = shown(render(explanation()), force_terminal=True, color_system="truecolor", no_color=False)
    assert "\x1b[" in coloured


def test_no_color(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown(highlighted([Fragment("red", 1.0)]), force_terminal=True, color_system="truecolor")
    assert "red" in text
    assert "\x1b[3" not in text
    assert "46m" not in text


def test_documents_do_not_drive_the_terminal():
    assert printable("a\x1b[31mb\u202ec\rd\ne") == "a\ufffd[31mb\ufffdc\ufffdd\ne"
    for part in (render(explanation(HOSTILE, HOSTILE, HOSTILE)), highlighted([Fragment(HOSTILE, 1.0)])):
        assert "\x1b" not in shown(part)
        assert "\u202e" not in shown(part)


def test_square_brackets_are_no_markup():
    assert "[bold]x[/bold]" in shown(render(explanation("[bold]x[/bold]", "[red]", "[/]")))
