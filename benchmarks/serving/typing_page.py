"""How long after typing stops the first result is on the screen: the search page in Chromium, over a server of its own.

python benchmarks/serving/typing_page.py INDEX [--queries 50]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from collection import text_queries
from run import serving

WATCH = """
() => {
  const results = document.getElementById("results");
  let typed = 0;
  window.taken = [];
  document.getElementById("query").addEventListener("input", () => { typed = performance.now(); });
  new MutationObserver(() => {
    if (!typed || !results.querySelector("mark")) return;
    const since = typed;
    typed = 0;
    requestAnimationFrame(() => setTimeout(() => window.taken.push(performance.now() - since)));  // painted
  }).observe(results, { childList: true });
}
"""


def measured(index: Path, queries: int) -> dict[str, float]:
    """Type each query in one go, as the last key press is what counts."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with serving(index) as server, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1180, "height": 820})
        page.goto(f"http://{server.host}:{server.port}")
        page.wait_for_selector("#empty h2")
        page.evaluate(WATCH)
        for number, query in enumerate(text_queries(queries + 5)):
            page.fill("#query", query)
            page.wait_for_function("n => window.taken.length > n", arg=number)
        taken = page.evaluate("window.taken")[5:]
        browser.close()
    p50, p95, worst = np.percentile(taken, [50, 95, 100])
    return {"queries": len(taken), "p50": round(p50, 1), "p95": round(p95, 1), "max": round(worst, 1)}


def main() -> None:
    """Print what was measured as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("--queries", type=int, default=50)
    options = parser.parse_args()
    print(json.dumps(measured(options.index, options.queries)))


if __name__ == "__main__":
    main()
