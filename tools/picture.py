"""Take the picture of an explanation for the README: ``make picture``. Needs Chromium and the model of the package."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import weft
from weft.explain import to_html
from weft.sources.beir import DEMO, read_corpus

QUERY = "Why do aeroplane windows have round corners?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="the .png to write")
    parser.add_argument("--query", default=QUERY)
    parser.add_argument("--model", help="a folder or a name; the one that comes with weft")
    parser.add_argument("--size", default="960,1050", help="width,height in pixels")
    arguments = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("no Chromium: apt-get install chromium")
    with TemporaryDirectory() as made:
        with weft.TextIndex.open(Path(made) / "demo.weft", create=True, model=arguments.model) as texts:
            texts.add((weft.Document(d.id, d.full_text) for d in read_corpus(DEMO)), split=False)
            found = texts.explain(arguments.query)
        page = Path(made) / "why.html"
        page.write_text(to_html(found), encoding="utf-8")
        flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
        more = f"--disable-component-update --disable-quic --hide-scrollbars --window-size={arguments.size}"
        command = [browser, *flags.split(), *more.split(), f"--user-data-dir={made}/profile"]
        picture = arguments.output.resolve()
        subprocess.run([*command, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)
    print(f"{arguments.output}: {found[0].id}, {found[0].score:.4f}")


if __name__ == "__main__":
    main()
