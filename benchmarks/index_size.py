"""What a smaller index costs: nDCG@10 kept with a part of each document's vectors, exactly and through an index.

    python benchmarks/index_size.py --data FOLDER --cache FOLDER [--collections NAME …] [--write]

Ways to keep a part: *salience* prunes to the most salient tokens (β_d), *pooling* takes similar tokens together without
looking at saliences, *both* is ``keep`` as an index does it. Each is scored exactly; ``keep`` also through an index at
the default effort. Collections and encodings are those of `whole.py`; measured rows are kept in ``--cache``, so that a
stopped run goes on. What is reported is the average over collections of what is kept of each one's own nDCG@10.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from quality import Results, Vectors
from results_file import write_section
from weft import Encoder, Index, TokenVectors
from weft.evaluation.pools import Encoded
from weft.evaluation.runs import Run
from weft.evaluation.scoring import score_all, to_run
from weft.storage.pooling import pool
from weft.storage.pruning import prune
from whole import DEV, SPLITS, Cut, Encodings, read

PARTS = (0.5, 0.3, 0.2, 0.1)
WAYS: dict[str, Callable[[TokenVectors, float], TokenVectors]] = {
    "salience": prune,
    "pooling": lambda texts, part: pool(texts.without_salience(), part),
    "both": pool,
}
ALIGNMENTS = ("sum-of-max", "xtr")
DEPTH = 10


def rows_of(cut: Cut, vectors: Vectors, results: Results) -> None:
    """Measure all rows of one collection."""
    of = vectors.encodings.encoder.fingerprint
    forms = {("all", 1.0): lambda: vectors.documents}
    forms |= {(way, part): partial(how, vectors.documents, part) for part in PARTS for way, how in WAYS.items()}
    for (way, part), make in forms.items():
        for alignment in ALIGNMENTS:
            if way == "all" or alignment == "sum-of-max" or way == "both":
                for split in cut.splits:
                    results.put(
                        cut,
                        split,
                        f"{way} {part}, {alignment}",
                        of,
                        partial(exact, cut, split, vectors, make, alignment),
                    )
    for part in (1.0, 0.2, 0.1):
        places = [(split, alignment) for split in cut.splits for alignment in ALIGNMENTS]
        indexed(cut, vectors, part, places, results)


def exact(cut: Cut, split: str, vectors: Vectors, documents: Callable[[], TokenVectors], alignment: str) -> Run:
    scores = score_all(Encoded(vectors.queries(split), documents(), salience_weighs=False), alignment)
    return to_run(cut.splits[split].queries, list(cut.documents), scores)


def indexed(cut: Cut, vectors: Vectors, part: float, places: list[tuple[str, str]], results: Results) -> None:
    """The same through an index that is made with ``keep`` and searched with default settings."""
    with tempfile.TemporaryDirectory() as place:
        opened: list[Index] = []

        def index() -> Index:
            if not opened:
                settings = {} if part == 1 else {"keep": part}
                made = Index.create(
                    Path(place) / "i.weft", dim=vectors.documents.dim, salience_weighs=False, **settings
                )
                made.add(list(cut.documents), vectors.documents)
                made.compact()
                opened.append(made)
            return opened[0]

        def run(split: str, alignment: str) -> Run:
            found = index().search(vectors.queries(split).without_salience(), k=DEPTH, alignment=alignment, hits=False)
            return {
                q: {r.id: r.score for r in ranking} for q, ranking in zip(cut.splits[split].queries, found, strict=True)
            }

        for split, alignment in places:
            of = vectors.encodings.encoder.fingerprint
            results.put(cut, split, f"index {part}, {alignment}", of, partial(run, split, alignment))
        for made in opened:
            made.close()


def share(results: Results, row: str, of: str, places: list[tuple[str, str]]) -> float:
    """Return the average nDCG@10 of a row over that of another, in percent."""
    mean, whole = (np.mean([results.rows[name][place].mean() for place in places]) for name in (row, of))
    return float(100 * mean / whole)


def report(results: Results, encoder: Encoder) -> list[str]:
    everywhere = list(results.rows["all 1.0, sum-of-max"])
    lines = [
        "Command: `python benchmarks/index_size.py --data FOLDER --cache FOLDER --write`; "
        f"{encoder.name}, fingerprint `{encoder.fingerprint}`, {encoder.settings.precision}, whole collections and "
        "pools of 6,000 documents of larger ones. Percent of the average nDCG@10 with all vectors, under the same "
        "scoring, that is kept with a part of them. *Index*: `keep` in an index at the default effort, in percent of "
        "the index with all vectors.",
    ]
    for title, deciding in (("Dev splits", True), ("Test splits", False)):
        places = [place for place in everywhere if (place[1] == DEV) == deciding]
        if not places:
            continue
        columns = [(f"{way}, sum-of-max", f"{way} {{}}, sum-of-max", "all 1.0, sum-of-max") for way in WAYS]
        columns += [("both, xtr", "both {}, xtr", "all 1.0, xtr")]
        columns += [(f"index, {a}", f"index {{}}, {a}", f"index 1.0, {a}") for a in ALIGNMENTS]
        lines += ["", f"**{title}**: {', '.join(dict.fromkeys(place[0] for place in places))}", ""]
        lines += [
            "| part | " + " | ".join(name for name, _, _ in columns) + " |",
            "| --- " + "| ---: " * len(columns) + "|",
        ]
        for part in PARTS:
            cells = [
                f"{share(results, row.format(part), of, places):.1f}" if row.format(part) in results.rows else "–"
                for _, row, of in columns
            ]
            lines.append(f"| {part} | " + " | ".join(cells) + " |")
        lines += ["", "nDCG@10 through the index, by collection:", ""]
        names = [f"{part}, {alignment}" for alignment in ALIGNMENTS for part in (1.0, 0.2, 0.1)]
        lines += ["| | " + " | ".join(names) + " |", "| --- " + "| ---: " * len(names) + "|"]
        for place in places:
            cells = [f"{results.rows[f'index {name}'][place].mean():.3f}" for name in names]
            lines.append(
                f"| {place[0]}{'' if place[1] in (DEV, 'test') else ' ' + place[1]} | " + " | ".join(cells) + " |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of BEIR collections")
    parser.add_argument("--cache", type=Path, required=True, help="folder for encodings and results")
    parser.add_argument("--model", default="weft-small", help="light folder of a model with saliences")
    parser.add_argument("--collections", nargs="+", default=list(SPLITS))
    parser.add_argument("--queries", type=int, default=300, help="of a split, at most")
    parser.add_argument("--write", action="store_true", help="write the section of RESULTS.md")
    options = parser.parse_args()
    encoder = Encoder.load(options.model)
    encodings, results = Encodings(options.cache, encoder), Results(options.cache / "index_size.jsonl")
    for name in options.collections:
        cut = read(options.data, name).few(options.queries)
        rows_of(cut, Vectors(encodings, cut), results)
    lines = report(results, encoder)
    print("\n".join(lines))
    if options.write:
        write_section("index-size", "A smaller index: nDCG@10 kept", lines)


if __name__ == "__main__":
    main()
