"""XTR or the sum of max as the alignment of a new index: both on whole collections, scored exactly, query by query.

    python benchmarks/default_alignment.py FOLDER/… --work FOLDER --write

Dev splits decide (SciFact has none, so its train split stands in); test splits are reported. Documents and queries are
encoded once with the bundled model and kept in ``--work``. Differences are of plain ``xtr`` less ``sum-of-max``, with
paired bootstrap intervals over queries; the last line of each split is the mean over collections.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np

from weft import Encoder
from weft.evaluation.measures import Scores, evaluate
from weft.evaluation.pools import Encoded, encode, make_pool
from weft.evaluation.scoring import score_all, to_run
from weft.evaluation.significance import compare, macro_average

sys.path.insert(0, str(Path(__file__).parent))
from results_file import write_section

MEASURES = ("nDCG@10", "R@100")
DECIDING = ("dev", "train")
"""The first of these splits that a collection has."""
REPORTED = "test"


def splits_of(folder: Path) -> list[str]:
    """The splits to be measured, the deciding one first."""
    there = {path.stem for path in (folder / "qrels").glob("*.tsv")}
    return [*[name for name in DECIDING if name in there][:1], *({REPORTED} & there)]


def measure(folder: Path, work: Path, encoder: Encoder) -> dict[str, tuple[Scores, Scores]]:
    """Return for each split what XTR and the sum of max reach."""
    found = {}
    documents = None
    for split in splits_of(folder):
        pool = make_pool(folder, split, whole=True)
        if documents is None:
            documents = encode(
                make_pool(folder, splits_of(folder)[-1], whole=True), encoder, work / encoder.fingerprint
            )
        asked = encoder.encode_query(list(pool.queries.values()), truncation="ignore", dtype=np.float16)
        encoded = Encoded(asked.without_salience(), documents.documents.without_salience(), False)
        runs = (
            to_run(pool.queries, list(pool.documents), score_all(encoded, alignment))
            for alignment in ("xtr", "sum-of-max")
        )
        xtr, sums = (evaluate(run, pool.qrels, MEASURES) for run in runs)
        found[split] = xtr, sums
    return found


def lines_of(measured: dict[str, dict[str, tuple[Scores, Scores]]]) -> list[str]:
    lines = ["| split | collection | queries | nDCG@10 sum-of-max | xtr | difference | R@100 difference |"]
    lines.append("| --- | --- | ---: | ---: | ---: | --- | --- |")
    for deciding in (True, False):
        chosen = [
            (name, split, both)
            for name, splits in measured.items()
            for split, both in splits.items()
            if (split != REPORTED) == deciding
        ]
        for name, split, both in chosen:
            ndcg, recall = (compare(*both, measure) for measure in MEASURES)
            lines.append(
                f"| {split} | {name} | {ndcg.queries} | {ndcg.second:.3f} | {ndcg.first:.3f} "
                f"| {ndcg.difference} | {recall.difference} |"
            )
        if chosen:
            ndcg_mean, recall_mean = (
                macro_average({name: xtr.values(m) - sums.values(m) for name, _, (xtr, sums) in chosen})
                for m in MEASURES
            )
            split = "dev" if deciding else REPORTED
            lines.append(f"| **{split}** | **mean of {len(chosen)}** | | | | **{ndcg_mean}** | **{recall_mean}** |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="collections in BEIR's layout")
    parser.add_argument("--work", type=Path, default=Path("build/default-alignment"), help="folder for encodings")
    parser.add_argument("--write", action="store_true", help="write the section of RESULTS.md")
    options = parser.parse_args()
    encoder = Encoder.load()
    measured = {}
    for folder in options.folders:
        measured[folder.name] = measure(folder, options.work, encoder)
        print("\n".join(lines_of({folder.name: measured[folder.name]})[2:]), flush=True)
    lines = [
        "Command: `python benchmarks/default_alignment.py FOLDER/…`; weft-small, fingerprint "
        f"`{encoder.fingerprint}`, int8,",
        "whole collections, exact scores. Differences are plain `xtr` less `sum-of-max`, with 95 % paired bootstrap "
        "intervals.",
        "",
        *lines_of(measured),
    ]
    if options.write:
        write_section("default-alignment", "The default alignment", lines)


if __name__ == "__main__":
    main()
