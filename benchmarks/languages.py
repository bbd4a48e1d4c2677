"""Languages: how often a text in another language is noticed, how often English is taken for one, and what is found.

    python benchmarks/languages.py --data FOLDER --work FOLDER --write

``FOLDER/xquad`` holds parallel texts in twelve languages; all other collections of the folder are English, and are read
whole. Flagged English texts are listed in ``--work``/flagged.txt, since some of them really are in another language.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from weft import TextIndex
from weft.encoders.languages import other_language
from weft.search.lexical import search_lexical
from weft.sources.beir import Collection, read_corpus, read_queries

sys.path.insert(0, str(Path(__file__).parent))
from results_file import write_section

READ = ("en",)
ASKED = 200
"""Queries of each language whose first result is looked at."""


def flagged(texts: Iterable[str]) -> tuple[list[str], int]:
    """Return the texts that are said to be in another language than English, and how many texts there are."""
    listed = list(texts)
    return [text for text in listed if other_language(text, READ)], len(listed)


def first_results(collection: Collection, language: str, work: Path) -> list[int]:
    """Return how many of `ASKED` queries have their paragraph first: vectors, blend, BM25."""
    place = work / f"xquad-{language}.weft"
    with TextIndex.open(place, create=True) as texts:
        if not len(texts):
            texts.add({one.id: one.text for one in collection.documents if one.id.startswith(f"{language}-")})
        parents = {passage: passage.partition("##")[0] for passage in texts}
        queries = list(collection.queries.items())[:: len(collection.queries) // ASKED][:ASKED]
        right = [0, 0, 0]
        for name, query in queries:
            ways = [texts.search(query, 1), texts.search(query, 1, hybrid=True), search_lexical(texts.index, query, 1)]
            for at, found in enumerate(ways):
                ids = [parents[one.id] for one in found]
                right[at] += bool(ids) and ids[0] in collection.qrels[name]
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder of collections in BEIR's layout")
    parser.add_argument("--work", type=Path, required=True, help="where indexes are kept")
    parser.add_argument("--write", action="store_true", help="write the tables to RESULTS.md")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    lines = [
        "`python benchmarks/languages.py --data FOLDER --work FOLDER --write`; weft-small, which reads English.",
        "",
        f"XQuAD, 240 paragraphs and 1,190 questions each. Noticed as another language; and of {ASKED}",
        "questions, how many have their paragraph first, among those of the same language.",
        "",
        "| language | paragraphs noticed | questions noticed | vectors | blend | BM25 (FTS5) |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    splits = sorted(path.stem for path in (options.data / "xquad" / "qrels").glob("test-*.tsv"))
    for split in splits:
        language = split.removeprefix("test-")
        collection = Collection.read(options.data / "xquad", split)
        documents, of_documents = flagged(d.text for d in collection.documents if d.id.startswith(f"{language}-"))
        queries, of_queries = flagged(collection.queries.values())
        right = first_results(collection, language, options.work)
        shares = f"{len(documents) / of_documents:.1%} | {len(queries) / of_queries:.1%}"
        lines.append(f"| {language} | {shares} | " + " | ".join(map(str, right)) + " |")
    lines += ["", "English collections, whole: texts taken for another language.", ""]
    lines += ["| collection | documents | taken | queries | taken |", "| --- | ---: | ---: | ---: | ---: |"]
    with open(options.work / "flagged.txt", "w", encoding="utf-8") as listing:
        for folder in sorted(path for path in options.data.iterdir() if path.is_dir() and path.name != "xquad"):
            documents, of_documents = flagged(d.full_text for d in read_corpus(folder))
            queries, of_queries = flagged(text for _, text in read_queries(folder))
            lines.append(f"| {folder.name} | {of_documents:,} | {len(documents)} | {of_queries:,} | {len(queries)} |")
            for kind, found in (("D", documents), ("Q", queries)):
                listing.writelines(f"{folder.name} {kind} {other_language(x, READ)} {x[:300]!r}\n" for x in found)
    print("\n".join(lines))
    if options.write:
        write_section("languages", "Languages", lines)


if __name__ == "__main__":
    main()
