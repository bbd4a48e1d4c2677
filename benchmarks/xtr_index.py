"""XTR's scoring in an index beside the sum of max: nDCG@10 and processor time of whole collections.

    python benchmarks/xtr_index.py FOLDER/cranfield FOLDER/scifact --work FOLDER --write

Each collection is encoded with the bundled model (kept in ``--work``) and put into an index; its test queries are
searched under each alignment, in turns, on one thread. ``exact`` compares every document.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np

from weft import Encoder, Index
from weft.evaluation.measures import evaluate
from weft.evaluation.pools import encode, make_pool

sys.path.insert(0, str(Path(__file__).parent))
from results_file import write_section

SEARCHES: dict[str, dict[str, Any]] = {
    "sum-of-max": {},
    "xtr": {"alignment": "xtr"},
    "sum-of-max, exact": {"exact": True},
    "xtr, exact": {"alignment": "xtr", "exact": True},
}
ROUNDS = 3
FEW = 500_000
"""In collections of more tokens ``xtr, exact``, a second and more for each query, is left out."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="BEIR folders")
    parser.add_argument("--work", type=Path, required=True, help="folder for encodings")
    parser.add_argument("--write", action="store_true", help="write the section of RESULTS.md")
    options = parser.parse_args()
    encoder = Encoder.load()
    lines = [
        f"Command: `python benchmarks/xtr_index.py FOLDER/… --work FOLDER`; {encoder!r}. CPU time of an encoded query "
        f"on one thread, the median over queries and {ROUNDS} rounds in turns, hits not gathered.",
        "",
        "| collection | documents | tokens | search | nDCG@10 | CPU ms |",
        "| --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for folder in options.folders:
        pool = make_pool(folder, "test", whole=True)
        encoded = encode(pool, encoder, options.work / encoder.fingerprint)
        queries = encoded.queries.astype(np.float32).without_salience()
        few = encoded.documents.n_tokens <= FEW
        searches = {name: how for name, how in SEARCHES.items() if few or name != "xtr, exact"}
        with tempfile.TemporaryDirectory() as place, Index.create(Path(place) / "i.weft", dim=encoder.dim) as index:
            index.add(list(pool.documents), encoded.documents.astype(np.float32).without_salience())
            index.compact()
            times: dict[str, list[float]] = {name: [] for name in searches}
            runs: dict[str, dict[str, dict[str, float]]] = {name: {} for name in searches}
            for _ in range(ROUNDS):
                for i, query in enumerate(pool.queries):
                    for name, how in searches.items():
                        before = time.process_time()
                        (ranking,) = index.search(queries[i : i + 1], k=10, hits=False, **how)
                        times[name].append(time.process_time() - before)
                        runs[name][query] = {result.id: result.score for result in ranking}
        for name, run in runs.items():
            ndcg = evaluate(run, pool.qrels, ["nDCG@10"])["nDCG@10"]
            size = f"{len(pool.documents):,} | {encoded.documents.n_tokens:,}"
            lines.append(f"| {folder.name} | {size} | {name} | {ndcg:.3f} | {1e3 * np.median(times[name]):.1f} |")
            print(lines[-1], flush=True)
    if options.write:
        write_section("xtr-index", "XTR's scoring in an index", lines)


if __name__ == "__main__":
    main()
