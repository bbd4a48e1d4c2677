"""The search page in a real browser: every feature clicked, hostile documents harmless, nothing but our own files."""

import json
import shutil
import urllib.parse
from itertools import pairwise

import pytest

from weft import Document, TextIndex
from weft.serving.page import Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")

QUERY = "Why do aeroplane windows have round corners?"
ALL_TRANSPORT = "() => [...document.querySelectorAll('.meta code')].every(c => c.innerText.startsWith('transport'))"
HOSTILE = '"><img src=x onerror="window.ran=1"><script>window.ran=1</script><svg onload="window.ran=1">'


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser):
    """A page; what it must never do fails the test at its end."""
    context = browser.new_context(viewport={"width": 1180, "height": 820})
    opened = context.new_page()
    opened.set_default_timeout(20_000)
    wrong = []
    opened.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    opened.on("console", lambda said: wrong.append(f"{said.type}: {said.text}") if _is_wrong(said) else None)
    opened.expose_function("violated", lambda what: wrong.append(f"policy: {what}"))
    opened.add_init_script(
        "addEventListener('securitypolicyviolation', (e) => violated(`${e.violatedDirective} ${e.blockedURI}`))"
    )
    yield opened
    context.close()
    assert wrong == []


def _is_wrong(said):
    # Chromium reports every refused request; those the tests provoke are looked at where they are provoked.
    return said.type == "error" and "Failed to load resource" not in said.text


def order(page):
    return [text.strip() for text in page.locator("weft-result .meta code").all_inner_texts()]


def wait_for_order(page, ids):
    codes = "[...document.querySelectorAll('weft-result')].map(r => r.querySelector('.meta code').textContent)"
    page.wait_for_function(f"ids => JSON.stringify({codes}) === ids", arg=json.dumps(ids, separators=(",", ":")))


def search(page, text):
    page.fill("#query", text)
    page.wait_for_function("q => document.title.startsWith(q)", arg=text)
    page.wait_for_selector("weft-result mark")


def test_results_come_while_typing(page, reader, texts):
    page.goto(reader.url)
    page.wait_for_selector("#empty h2")
    assert f"{len(texts)} passages" in page.inner_text("#empty h2")
    page.type("#query", QUERY)  # no Enter
    page.wait_for_function("q => new URL(location).searchParams.get('q') === q", arg=QUERY)
    wait_for_order(page, [match.id for match in texts.search(QUERY)])
    assert "10 results" in page.inner_text("#status")
    page.fill("#query", "")
    page.wait_for_selector("#empty h2")


def test_words_are_shaded_by_what_they_add(page, reader):
    page.goto(f"{reader.url}/?q={urllib.parse.quote(QUERY)}")
    page.wait_for_selector("weft-result mark")
    first = page.locator("weft-result").first
    marks = {mark.inner_text(): mark for mark in first.locator("mark").all()}
    assert {"windows", "rounded", "corners"} <= set(marks)
    shade = {word: float(mark.evaluate("m => m.style.getPropertyValue('--a')")) for word, mark in marks.items()}
    assert shade["windows"] > shade["are"]
    assert "adds" in marks["windows"].get_attribute("title")


def test_pointing_at_a_query_word_shows_what_it_met_in_every_result(page, reader):
    page.goto(f"{reader.url}/?q={urllib.parse.quote(QUERY)}")
    page.wait_for_selector("weft-result mark")
    page.hover("#words .word:text-is('windows')")
    met = page.locator("mark.on")
    assert met.count() >= 3
    assert met.first.inner_text() == "windows"
    page.mouse.move(5, 700)
    assert page.locator("mark.on").count() == 0
    page.focus("#words .word:text-is('corners')")  # by keyboard too
    assert page.locator("weft-result").first.locator("mark.on").inner_text() == "corners"


def test_why_shows_the_alignment_that_the_score_used(page, reader, texts):
    page.goto(f"{reader.url}/?q={urllib.parse.quote(QUERY)}")
    page.click("weft-result >> nth=0 >> text=Why?")
    page.wait_for_selector(".heat")
    rows = [row.all_inner_texts() for row in (tr.locator("th, td") for tr in page.locator(".heat tbody tr").all())]
    sums = {row[0]: float(row[-1]) for row in rows}
    (why,) = texts.explain(QUERY)
    expected = sum(t.contribution for t in why.query.tokens if t.text == "windows")
    assert sums["windows"] == pytest.approx(expected, abs=0.006)
    assert page.locator(".heat tbody th").first.evaluate("t => t.style.getPropertyValue('--s')") != ""
    page.click("weft-result >> nth=0 >> text=Why?")
    assert page.locator(".heat").count() == 0


def test_another_alignment_shows_how_the_order_moves(page, reader, texts):
    page.goto(f"{reader.url}/?q={urllib.parse.quote(QUERY)}")
    page.wait_for_selector("weft-result")
    before = order(page)
    for label, options in {
        "Top-k": {"alignment": "top-k:4"},
        "Top-p": {"alignment": "top-p:0.02"},
        "MaxSim": {"alignment": "sum-of-max"},
        "Hybrid": {"hybrid": "blend"},
        "Best match": {},
    }.items():
        page.click(f"#alignments >> text={label}")
        expected = [match.id for match in texts.search(QUERY, **options)]
        wait_for_order(page, expected)
        for place, shown in enumerate(page.locator("weft-result").all()):
            old = before.index(expected[place]) if expected[place] in before else None
            said = shown.locator(".moved").inner_text()
            moved = "new" if old is None else "=" if old == place else f"{'▲▼'[old < place]}{abs(old - place)}"
            assert said.endswith(moved)
        before = expected


def test_the_own_alignment_of_an_index_is_offered_once(page, start, index, reader):
    """It is "Best match"; an address that names it shows the same."""
    page.goto(f"{reader.url}/?q=moon&a=xtr")
    page.wait_for_selector("weft-result mark")
    labels = page.locator("#alignments label").all_inner_texts()
    assert labels == ["Best match", "MaxSim", "Top-k", "Top-p", "Hybrid"]
    assert page.is_checked("#alignments input[value='']")
    with TextIndex.open(index) as texts:
        texts.index.remember_alignment("sum-of-max")
    page.goto(start(index).url)
    page.wait_for_selector("#empty h2")
    assert page.locator("#alignments label").all_inner_texts() == ["Best match", "Top-k", "Top-p", "XTR", "Hybrid"]


def test_filters_come_from_the_metadata_with_counts(page, reader, texts):
    page.goto(f"{reader.url}/?q=how+far")
    row = page.locator("weft-filters label", has_text="transport")
    row.wait_for()
    expected = texts.matching('subject == "transport"')
    assert row.locator(".count").inner_text() == str(len(expected))
    row.locator("input").check()
    page.wait_for_url("**f=**")
    page.wait_for_function(ALL_TRANSPORT)
    assert set(order(page)) <= set(expected)
    page.locator("weft-filters label", has_text="history").locator("input").check()
    page.wait_for_function("() => new URL(location).searchParams.getAll('f').length === 2")
    both = [m.id for m in texts.search("how far", filter='subject in ["transport"] and (tags contains "history")')]
    wait_for_order(page, both)
    page.click("text=Clear filters")
    page.wait_for_function("() => document.querySelectorAll('weft-result').length === 10")


def test_an_address_can_be_shared(page, browser, reader):
    page.goto(reader.url)
    search(page, QUERY)
    page.click("#alignments >> text=Hybrid")
    page.locator("weft-filters label", has_text="transport").locator("input").check()
    page.wait_for_url("**f=**")
    page.wait_for_function(ALL_TRANSPORT)
    other = browser.new_page()
    other.goto(page.url)
    other.wait_for_selector("weft-result")
    assert order(other) == order(page)
    assert other.input_value("#query") == QUERY
    assert other.is_checked("#alignments input[value=hybrid]")
    other.close()


def test_a_document_opens_at_its_passage(page, reader):
    page.goto(f"{reader.url}/?q=the+100th+voyage+to+the+island")
    page.click("weft-result >> nth=0 >> .title")
    page.wait_for_selector("#reader[open] .here mark")
    assert page.locator("#reader .passage").count() > 1
    box, frame = page.locator("#reader .here").bounding_box(), page.locator("#reader .document").bounding_box()
    assert box["y"] < frame["y"] + frame["height"]
    assert box["y"] + box["height"] > frame["y"]
    page.keyboard.press("Escape")
    assert page.locator("#reader[open]").count() == 0


def test_the_keyboard_is_enough(page, reader):
    page.goto(f"{reader.url}/?q={urllib.parse.quote(QUERY)}")
    page.wait_for_selector("weft-result")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "query"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    second = page.locator("weft-result").nth(1).locator(".title")
    assert second.evaluate("t => t === document.activeElement")
    page.keyboard.press("Enter")
    page.wait_for_selector("#reader[open]")
    page.keyboard.press("Escape")
    assert second.evaluate("t => t === document.activeElement")


def test_texts_are_added(page, start, index, tmp_path):
    server = start(index)
    page.goto(server.url)
    page.click("#add")
    page.fill("#new-text", "Lichens are a fungus and an alga that live as one.")
    page.fill("#new-id", "lichens")
    page.click("#adding button[type=submit]")
    page.wait_for_selector("#adding >> text=1 added")
    (tmp_path / "moss.txt").write_text("Moss has no roots.")
    page.set_input_files("#new-files", tmp_path / "moss.txt")
    page.click("#adding button[type=submit]")
    page.wait_for_function("() => document.querySelector('#adding .note').textContent.startsWith('1 added')")
    page.keyboard.press("Escape")
    search(page, "a plant without roots")
    page.wait_for_function("() => document.querySelector('.meta code').textContent === 'moss.txt'")


def test_dark_mode_is_kept(page, reader):
    page.goto(reader.url)
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light != dark
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    assert page.get_attribute("#theme", "aria-pressed") == "true"


def test_a_phone_shows_all_of_it(page, reader):
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{reader.url}/?q={urllib.parse.quote(QUERY)}")
    page.wait_for_selector("weft-result mark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.get_attribute("#filters", "open") is None  # out of the way until asked for
    labels = page.locator("#alignments span").evaluate_all("all => all.map(one => one.offsetHeight)")
    assert max(labels) < 40  # pixels: no name is broken into two lines
    assert page.locator("#alignments").evaluate("all => all.scrollWidth <= all.clientWidth")
    assert page.locator("weft-result").first.bounding_box()["y"] < 740
    page.click("weft-result >> nth=0 >> text=Why?")
    page.wait_for_selector(".heat")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.click("weft-result >> nth=0 >> text=Why?")  # the button is still within reach
    page.wait_for_selector(".heat", state="detached")


def test_a_key_is_asked_for(page, start, built):
    server = start(built, limits={}, keys=["page read a-key-for-the-page"])
    page.goto(f"{server.url.replace('127.0.0.1', 'localhost')}/?q=moon")
    page.fill("#key", "not-the-right-one")
    page.keyboard.press("Enter")
    page.wait_for_selector("#keyhole >> text=not accepted")
    page.fill("#key", "a-key-for-the-page")
    page.keyboard.press("Enter")
    page.wait_for_selector("weft-result mark")
    assert "a-key" not in page.url


def test_problems_are_told(page, start, built):
    server = start(built)
    page.goto(server.url)
    search(page, "moon")
    server.stop()
    page.fill("#query", "mars")
    page.wait_for_selector("#problem >> text=cannot be reached")


def test_hostile_documents_are_only_text(page, start, tmp_path):
    folder = tmp_path / "hostile.weft"
    marks = dict.fromkeys(("title", "path", "author"), HOSTILE)
    with TextIndex.open(folder, create=True) as texts:
        made = [Document(f"{HOSTILE} {n}", f"Beware {HOSTILE} of {n}", {**marks, HOSTILE: "x"}) for n in range(3)]
        texts.add([*made, Document("javascript:window.ran=1", "Beware of links", {"title": "javascript:window.ran=1"})])
    server = start(folder)
    page.goto(f"{server.url}/?q={urllib.parse.quote('beware ' + HOSTILE)}&f={urllib.parse.quote(HOSTILE)}")
    page.wait_for_selector("weft-result mark")
    for result in page.locator("weft-result").all():
        result.locator("text=Why?").click()
        result.locator(".heat").wait_for()
    page.wait_for_selector("weft-filters fieldset")
    page.locator("weft-filters input").first.check()
    page.wait_for_url("**f=**")
    page.locator("weft-result .title").first.click()
    page.wait_for_selector("#reader[open] .passage")
    assert HOSTILE in page.inner_text("#reader h2") + page.inner_text("#reader")
    assert page.evaluate("window.ran") is None
    assert page.locator("main img, main script, main svg, dialog img, dialog script").count() == 0


def test_the_page_is_small_and_asks_nobody_else(page, reader):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{reader.url}/?q=moon", wait_until="networkidle")
    page.wait_for_selector("weft-result mark")
    assert all(url.startswith(reader.url) for url in asked)
    own = Page().files
    assert len([url for url in asked if "/v1/" not in url]) <= len(own) + 2
    assert len([url for url in asked if "/v1/" in url]) == 3  # the indexes, the search, the fields
    assert sum(len(file._data) for file in own.values()) < 100_000
    policy = reader.http.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    again = reader.http.get("/page/app.js")
    headers = {"if-none-match": again.headers["etag"]}
    assert reader.http.get("/page/app.js", headers=headers).status_code == 304


def test_assistive_technology_finds_its_way(page, reader):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
    page.context.close()
    browser = page.context.browser
    # axe is a script of its own, which the page's policy would not let in.
    context = browser.new_context(viewport={"width": 1180, "height": 820}, bypass_csp=True)
    looked = context.new_page()
    for theme in (False, True):
        looked.goto(f"{reader.url}/?q={urllib.parse.quote(QUERY)}")
        looked.wait_for_selector("weft-filters fieldset")
        looked.click("weft-result >> nth=0 >> text=Why?")
        looked.wait_for_selector(".heat")
        if theme:
            looked.click("#theme")
        _no_serious(axe, looked)
        looked.click("weft-result >> nth=0 >> .title")
        looked.wait_for_selector("#reader[open]")
        _no_serious(axe, looked)
    context.close()


def _no_serious(axe, page):
    found = axe.Axe().run(page).response["violations"]
    serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
    assert serious == [], json.dumps(serious, indent=1)


def test_headings_go_down_by_one(page, reader):
    page.goto(f"{reader.url}/?q=moon")
    page.wait_for_selector("weft-result h2")
    levels = [int(name[1]) for name in page.eval_on_selector_all("h1, h2, h3", "e => e.map(x => x.tagName)")]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
