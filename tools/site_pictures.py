"""Look at every page of the site as a browser shows it: ``make docs``, then ``python tools/site_pictures.py FOLDER``.

Takes a picture of each page at the width of a desktop, of a phone and in the dark, and reports what is wrong with it:
pictures that do not load, and tables, code and formulas that are cut off or widen the page. Needs Chromium and
Playwright.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from playwright.sync_api import sync_playwright

SITE = Path(__file__).parents[1] / "site"
VIEWS = {"desktop": (1280, "light"), "phone": (390, "light"), "dark": (1280, "dark")}
WRONG = """() => {
    const wrong = [], width = document.documentElement.clientWidth;
    const whole = document.documentElement.scrollWidth;
    if (whole > width) wrong.push(`wider than the window: ${whole}`);
    for (const picture of document.querySelectorAll(".md-content img"))
        if (!picture.complete || !picture.naturalWidth) wrong.push(`no picture: ${picture.getAttribute("src")}`);
    const scrolls = node => ["auto", "scroll"].includes(getComputedStyle(node).overflowX);
    for (const node of document.querySelectorAll(".md-content :is(table, pre, img, code, p, li, h1, h2, h3, h4)")) {
        if (node.getBoundingClientRect().right <= width + 1) continue;
        let box = node;
        while (box && !scrolls(box)) box = box.parentElement;
        if (!box) wrong.push(`cut off: ${node.tagName.toLowerCase()} ${node.textContent.trim().slice(0, 60)}`);
    }
    return wrong;
}"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves the site without a line for each request."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main(folder: Path) -> int:
    """Take all pictures; return how many pages have something wrong."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("no Chromium: apt-get install chromium")
    if not (SITE / "index.html").is_file():
        sys.exit("no site: make docs")
    folder.mkdir(parents=True, exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    Thread(target=server.serve_forever, daemon=True).start()
    pages = sorted(page.parent.relative_to(SITE).as_posix() for page in SITE.rglob("index.html"))
    faults = 0
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        for kind, (width, scheme) in VIEWS.items():
            tab = opened.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            for page in pages:
                tab.goto(f"http://127.0.0.1:{server.server_address[1]}/{page}/", wait_until="load")
                wrong = tab.evaluate(WRONG)
                faults += bool(wrong)
                for line in wrong:
                    print(f"{kind} {page}: {line}")
                name = "home" if page == "." else page.replace("/", "-")
                tab.screenshot(path=folder / f"{name}.{kind}.png", full_page=True)
        opened.close()
    server.shutdown()
    print(f"{len(pages)} pages, {len(VIEWS)} pictures each, {faults} with something wrong; pictures in {folder}")
    return faults


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(min(main(Path(sys.argv[1])), 1))
