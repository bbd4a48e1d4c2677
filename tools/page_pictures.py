"""Take the pictures of the search page anew: ``make page-pictures``. Needs Chromium and Playwright."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from playwright.sync_api import Browser, sync_playwright

QUERY = "Why do aeroplane windows have round corners?"
IMAGES = Path(__file__).parents[1] / "docs" / "images"


def main() -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("no Chromium: apt-get install chromium")
    with TemporaryDirectory() as made:
        command = [sys.executable, "-m", "weft", "demo", f"{made}/demo.weft", "--serve", "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            assert server.stderr is not None
            url = next(found.group(1) for line in server.stderr if (found := re.search(r"at (http://\S+)", line)))
            with sync_playwright() as driver:
                opened = driver.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
                take(opened, url)
        finally:
            server.terminate()
            server.wait()


def take(browser: Browser, url: str) -> None:
    page = browser.new_page(viewport={"width": 1180, "height": 760})
    page.goto(f"{url}/?q={quote(QUERY)}")
    page.wait_for_selector("weft-filters fieldset")
    page.click("weft-result >> nth=0 >> text=Why?")
    page.wait_for_selector(".heat")
    page.mouse.move(5, 700)
    page.screenshot(path=IMAGES / "page.png")
    page.click("#theme")
    page.click("weft-result >> nth=0 >> text=Why?")
    page.click("#alignments >> text=Hybrid")
    page.wait_for_selector(".moved")
    page.hover("#words .word:text-is('windows')")
    page.screenshot(path=IMAGES / "page-dark.png")
    phone = browser.new_page(viewport={"width": 390, "height": 760})
    phone.goto(f"{url}/?q={quote(QUERY)}")
    phone.wait_for_selector("weft-result mark")
    phone.screenshot(path=IMAGES / "page-phone.png")


if __name__ == "__main__":
    main()
