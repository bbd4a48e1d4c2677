"""XTR in an index at the default effort beside a brute force of eq. 4, and what it costs beside the sum of max.

    python benchmarks/xtr_index.py FOLDER/cranfield FOLDER/scifact --work FOLDER --write
    python benchmarks/xtr_index.py SYNTHETIC …          # a folder of benchmarks/engines/workload.py: tokens.npy, …

Each collection is encoded with the bundled model (kept in ``--work``) and put into an index. The brute force is NumPy
over the vectors that the index stores. Overlap is the share of results that are among its ten best, ties counted, over
``--queries`` test queries; nDCG@10 of both is over the same queries. CPU time is of one thread, the median over these
queries and three rounds, in turns with the sum of max.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np
from numpy.typing import NDArray

from weft import Encoder, Index, TokenVectors
from weft.alignment import XTR
from weft.evaluation.measures import evaluate
from weft.evaluation.pools import encode, make_pool

sys.path.insert(0, str(Path(__file__).parent))
from results_file import write_section

K_PRIMES = (None, 100, 1_000, 4_000, 40_000)
IMPUTATIONS = ("kth", "zero", "0.2", "none")
ROUNDS = 3
K = 10


class Collection(NamedTuple):
    """What is searched, and judgements where there are some."""

    name: str
    documents: list[str]
    vectors: TokenVectors
    queries: list[str]
    query_vectors: TokenVectors
    qrels: Any


def synthetic(folder: Path) -> Collection:
    values, lengths = np.load(folder / "tokens.npy"), np.load(folder / "doclens.npy")
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    queries = np.load(folder / "queries.npy").astype(np.float32)
    names = [str(i) for i in range(len(lengths))]
    asked = [str(i) for i in range(len(queries))]
    return Collection(folder.name, names, TokenVectors(values, offsets), asked, TokenVectors.from_list(queries), None)


def real(folder: Path, work: Path) -> Collection:
    encoder = Encoder.load()
    pool = make_pool(folder, "test", whole=True)
    encoded = encode(pool, encoder, work / encoder.fingerprint)
    vectors = encoded.documents.astype(np.float32).without_salience()
    queries = encoded.queries.astype(np.float32).without_salience()
    return Collection(folder.name, list(pool.documents), vectors, list(pool.queries), queries, pool.qrels)


def brute_force(
    S: NDArray[np.float32], starts: NDArray[np.int64], alignment: XTR, kth: NDArray[np.float32]
) -> NDArray[np.float64]:
    """The scores of eq. 4 for similarities (n, tokens), −∞ for documents of which nothing was retrieved."""
    maxima = np.maximum.reduceat(S, starts, axis=1).astype(np.float64)
    retrieved = maxima >= kth[:, None]
    if alignment.impute == "none":
        total = np.where(retrieved, maxima, 0).sum(axis=0) / np.maximum(retrieved.sum(axis=0), 1)
    else:
        m = {"kth": kth, "zero": np.zeros_like(kth)}.get(alignment.impute)
        m = (np.full_like(kth, float(alignment.impute)) if m is None else m)[:, None]
        total = np.where(retrieved, np.maximum(maxima, m), m).mean(axis=0)
    return np.where(retrieved.any(axis=0), total, -np.inf)


def measure(collection: Collection, number: int) -> list[str]:
    chosen = np.linspace(0, len(collection.queries) - 1, min(number, len(collection.queries))).astype(int)
    alignments = [XTR(k, impute) for k in K_PRIMES for impute in IMPUTATIONS]
    lines = []
    with tempfile.TemporaryDirectory() as place:
        index = Index.create(Path(place) / "i.weft", dim=collection.vectors.dim)
        parts = (collection.vectors[i] for i in range(len(collection.documents)))
        index.build(zip(collection.documents, parts, strict=True), progress=False)
        stored = [index.vectors(name)[0] for name in collection.documents]
        filled = np.array([len(vectors) > 0 for vectors in stored])
        starts = np.cumsum([0, *(len(v) for v in stored if len(v))])[:-1]
        whole = np.concatenate(stored).astype(np.float32)
        names = np.array(collection.documents)[filled]
        best: dict[XTR, list[Any]] = {alignment: [] for alignment in alignments}
        for i in chosen:
            S = collection.query_vectors[i] @ whole.T
            ordered = -np.sort(-S, axis=1)
            for alignment in alignments:
                kth = ordered[:, min(alignment.retrieves(len(whole)), len(whole)) - 1]
                best[alignment].append(brute_force(S, starts, alignment, kth))
        for alignment in alignments:
            lines.append(row(collection, index, alignment, chosen, names, best[alignment]))
            print(lines[-1], flush=True)
        index.close()
    return lines


def row(
    collection: Collection,
    index: Index,
    alignment: XTR,
    chosen: NDArray[np.int64],
    names: NDArray[Any],
    exact: list[NDArray[np.float64]],
) -> str:
    """Search under one alignment and the sum of max, in turns."""
    place = {name: position for position, name in enumerate(names)}
    times: dict[str, list[float]] = {"sum-of-max": [], str(alignment): []}
    overlaps, ours, theirs = [], {}, {}
    for round_ in range(-1, ROUNDS):  # the first warms up
        for i, scores in zip(chosen, exact, strict=True):
            for name, of in times.items():
                before = time.process_time()
                (ranking,) = index.search(collection.query_vectors[i : i + 1], k=K, alignment=name, hits=False)
                if round_ >= 0:
                    of.append(time.process_time() - before)
            if round_ == 0:
                top = np.argsort(-scores, kind="stable")[:K]
                least = scores[top[-1]] - 1e-5
                overlaps.append(np.mean([scores[place[id]] >= least for id in ranking.ids]))  # noqa: A001
                query = collection.queries[i]
                ours[query] = {result.id: result.score for result in ranking}
                theirs[query] = {names[d]: float(scores[d]) for d in top if scores[d] > -np.inf}
    ndcg = "–"
    if collection.qrels is not None:
        judged = {query: collection.qrels[query] for query in ours if query in collection.qrels}
        found = [evaluate(run, judged, ["nDCG@10"])["nDCG@10"] for run in (ours, theirs)]
        ndcg = f"{found[0]:.4f} ({found[1]:.4f})"
    how = "–" if ranking.retrieval is None else ranking.retrieval.how
    milliseconds = [1e3 * float(np.median(of)) for of in times.values()]
    return (
        f"| {collection.name} | `{alignment}` | {how} | {np.mean(overlaps):.3f} | {ndcg} | {milliseconds[1]:.2f} "
        f"| {milliseconds[1] / milliseconds[0]:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="BEIR folders, or synthetic ones")
    parser.add_argument("--work", type=Path, default=Path("build/xtr"), help="folder for encodings")
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--write", action="store_true", help="write the section of RESULTS.md")
    options = parser.parse_args()
    lines = [
        f"Command: `python benchmarks/xtr_index.py FOLDER/… --queries {options.queries}`; {Encoder.load()!r}, load",
        f"average {os.getloadavg()[0]:.1f}. A search at its default effort is compared with a brute force of eq. 4",
        "over the stored vectors, whose nDCG@10 is in brackets. The last column: CPU time, × the sum of max's.",
        "",
        "| collection | alignment | tokens were | overlap@10 | nDCG@10 | CPU ms | × sum-of-max |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for folder in options.folders:
        made = synthetic(folder) if (folder / "tokens.npy").exists() else real(folder, options.work)
        lines += measure(made, options.queries)
    if options.write:
        write_section("xtr-index", "XTR's scoring in an index", lines)


if __name__ == "__main__":
    main()
