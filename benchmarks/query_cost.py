"""What a query costs by each query encoder of a model, and what it loses: encoding, text to hits, nDCG@10.

    python benchmarks/query_cost.py --data FOLDER --cache FOLDER [--model FOLDER] [--write]

Documents are encoded by the model itself and kept in ``--cache`` (`whole.py`); queries by the model and by the towers
that lie beside it, one thread. Times are CPU milliseconds of this process, the least mean of several rounds, the
encoders taking turns. Text to hits searches an index of 10,000 of the documents.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np

from weft import Encoder, TextIndex, TokenVectors
from weft.encoders.loading import query_encoders
from weft.evaluation.measures import evaluate
from weft.evaluation.pools import Encoded
from weft.evaluation.scoring import score_all, to_run
from weft.search import Index

sys.path.insert(0, str(Path(__file__).parent))
from results_file import write_section
from whole import DEV, SPLITS, Encodings, read

NDCG = "nDCG@10"
ALIGNMENTS = ("sum-of-max", "xtr")
QUERY = "how do vaccines protect against the flu virus?"
"""11 tokens of weft-small's."""
INDEXED = 10_000


def least_ms(calls: dict[str, Callable[[], object]], rounds: int = 12, repeats: int = 60) -> dict[str, float]:
    """Least mean CPU milliseconds of a call, the calls taking turns."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            start = time.process_time()
            for _ in range(repeats):
                call()
            found[name] = min(found[name], 1e3 * (time.process_time() - start) / repeats)
    return found


def single(texts: TokenVectors) -> TokenVectors:
    return TokenVectors.trusted(
        texts.values.astype(np.float32), texts.offsets, texts.token_ids, texts.salience, texts.spans
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of BEIR collections")
    parser.add_argument("--cache", type=Path, required=True, help="folder for encodings")
    parser.add_argument("--model", default="weft-small", help="light folder, or weft-small")
    parser.add_argument("--collections", nargs="+", default=list(SPLITS))
    parser.add_argument("--write", action="store_true", help="write the section of RESULTS.md")
    options = parser.parse_args()
    model = options.model if options.model == "weft-small" else str(Path(options.model))
    encoders = {kind: Encoder.load(model, query=kind) for kind in query_encoders(model)}
    encodings = Encodings(options.cache, encoders["full"])
    values: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    cosines: dict[str, list[float]] = {kind: [] for kind in encoders}
    documents: list[TokenVectors] = []
    for name in options.collections:
        cut = read(options.data, name)
        vectors = single(encodings.documents(cut))
        if sum(map(len, documents)) < INDEXED:
            documents.append(vectors)
        for split, pool in cut.splits.items():
            asked = {
                kind: encoder.encode_query(pool.queries.values(), truncation="ignore", threads=1)
                for kind, encoder in encoders.items()
            }
            for kind, queries in asked.items():
                cosines[kind].append(float((queries.values * asked["full"].values).sum(1).mean()))
                for alignment in ALIGNMENTS:
                    scores = score_all(Encoded(queries, vectors, salience_weighs=False), alignment)
                    run = to_run(list(pool.queries), list(cut.documents), scores)
                    mean = float(evaluate(run, pool.qrels, [NDCG]).values(NDCG).mean())
                    values.setdefault((cut.label, split), {})[kind, alignment] = mean
                    print(f"{cut.label} {split} {kind} {alignment} {mean:.4f}", flush=True)
    encoding = least_ms({kind: lambda e=e: e.encode_query(QUERY, threads=1) for kind, e in encoders.items()})
    hits, size = text_to_hits(TokenVectors.concatenate(documents), encoders)
    lines = report(options, encoders, values, cosines, encoding, hits, size)
    print("\n".join(lines))
    if options.write:
        write_section("query-cost", "A query's cost", lines)


def text_to_hits(vectors: TokenVectors, encoders: dict[str, Encoder]) -> tuple[dict[str, float], int]:
    """CPU milliseconds from a text to its ten hits, and how many documents are searched."""
    vectors = vectors[: min(INDEXED, len(vectors))]
    calls = {}
    with TemporaryDirectory() as folder:
        own = encoders["full"].fingerprint
        with Index.create(folder, vectors.dim, encoder_fingerprint=own) as index:
            index.add([f"d{i}" for i in range(len(vectors))], vectors)
            index.compact()
        opened = [TextIndex(Index.open(folder), encoder) for encoder in encoders.values()]
        for kind, texts in zip(encoders, opened, strict=True):
            calls[kind] = lambda texts=texts: texts.searcher.search([QUERY], k=10, threads=1)
        found = least_ms(calls, repeats=20)
        for texts in opened:
            texts.close()
    return found, len(vectors)


def report(
    options: argparse.Namespace,
    encoders: dict[str, Encoder],
    values: dict[tuple[str, str], dict[tuple[str, str], float]],
    cosines: dict[str, list[float]],
    encoding: dict[str, float],
    hits: dict[str, float],
    size: int,
) -> list[str]:
    lines = [
        f"Command: `python benchmarks/query_cost.py --data FOLDER --cache FOLDER --collections "
        f"{' '.join(options.collections)} --write`. CPU milliseconds on one thread for a query of 11 tokens; text to "
        f"hits in an index of {size:,} documents. Token cosine: with the vectors of the whole model. {NDCG}: exact "
        "scores, averages of the splits below; lost: relative to the whole model.",
        "",
        "| query encoder | encode | of full | text to hits | token cosine | sum of max | lost | xtr | lost |",
        "| --- " + "| ---: " * 8 + "|",
    ]
    for kind in encoders:
        cells = [f"{encoding[kind]:.2f}", f"{encoding[kind] / encoding['full']:.2f}", f"{hits[kind]:.2f}"]
        cells.append(f"{np.mean(cosines[kind]):.3f}")
        for alignment in ALIGNMENTS:
            mean, full = (np.mean([place[k, alignment] for place in values.values()]) for k in (kind, "full"))
            cells += [f"{mean:.3f}", f"{100 * (1 - mean / full):.1f} %"]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    lines += ["", "| xtr | " + " | ".join(encoders) + " |", "| --- " + "| ---: " * len(encoders) + "|"]
    for (label, split), found in values.items():
        decides = ", decides" if split == DEV else ""
        lines.append(f"| {label} {split}{decides} | " + " | ".join(f"{found[k, 'xtr']:.3f}" for k in encoders) + " |")
    return lines


if __name__ == "__main__":
    main()
